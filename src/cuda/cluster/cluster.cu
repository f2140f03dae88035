#include <algorithm>
#include <bit>

#include "cuda/cluster/assign.cuh"
#include "cuda/cluster/bookkeeping.cuh"
#include "cuda/cluster/chain.cuh"
#include "cuda/cluster/cluster.h"
#include "cuda/cluster/sort.h"
#include "cuda/host/launch.cuh"
#include "vcattn/numerics/token_order.h"

namespace vcattn::cuda::cluster {
namespace {

constexpr std::size_t kAlignment = 256;

/// Buffers one behind the other, from a base that may be null while only the size is wanted.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(std::size_t count) {
    auto* p = reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return p;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::size_t bytes_ = 0;
};

struct Buffers {
  CentroidViews centroids;
  std::int32_t *chain, *ranks;
  float* directions;
  std::uint32_t *labels, *sorted_labels;
  std::uint64_t *keys, *sorted_keys;
  std::int32_t *numbers, *sorted_numbers;
  std::byte* scratch;
  std::size_t scratch_bytes, bytes;

  Buffers(const Shape& s, std::byte* base) {
    Carver carver(base);
    const auto tasks = static_cast<std::size_t>(s.tasks());
    const std::size_t tokens = tasks * s.tokens, clusters = tasks * s.clusters;
    const std::size_t slots = tasks * padded_clusters(s.clusters);
    centroids.transposed = carver.take<float>(slots * s.dim);
    centroids.fragments = carver.take<std::uint16_t>(slots * s.dim);
    centroids.half_norms = carver.take<float>(slots);
    chain = carver.take<std::int32_t>(clusters);
    ranks = carver.take<std::int32_t>(clusters);
    directions = carver.take<float>(clusters * s.dim);
    labels = carver.take<std::uint32_t>(tokens);
    sorted_labels = carver.take<std::uint32_t>(tokens);
    keys = carver.take<std::uint64_t>(tokens);
    sorted_keys = carver.take<std::uint64_t>(tokens);
    numbers = carver.take<std::int32_t>(tokens);
    sorted_numbers = carver.take<std::int32_t>(tokens);
    scratch_bytes = sort_scratch_bytes(static_cast<std::int64_t>(tokens));
    scratch = carver.take<std::byte>(scratch_bytes);
    bytes = carver.bytes();
  }
};

unsigned divide_up(int a, int b) { return static_cast<unsigned>((a + b - 1) / b); }

template <int kDim>
struct Pass {
  const Arguments& a;
  const Shape& shape;
  const Options& options;
  const Grouping& grouping;
  Buffers buffers;
  cudaStream_t stream;

  dim3 grid(unsigned x) const {
    return dim3(x, static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.batch));
  }
  dim3 tiles(int positions) const { return grid(divide_up(positions, kTileTokens)); }
  /// Positions of a head in a Lloyd step. An entry of few visible keys takes all of them.
  int fit_slots() const {
    const int sampled =
        static_cast<int>(divide_up(shape.tokens, numerics::fit_stride(shape.tokens)));
    if (!has_lengths()) return sampled;
    return std::max(sampled, std::min(shape.tokens, numerics::kFitSampleFrom - 1));
  }
  dim3 clusters() const { return grid(static_cast<unsigned>(shape.clusters)); }
  std::int64_t in_all(int slots) const { return std::int64_t{shape.tasks()} * slots; }
  /// Bits of Head::key.
  int key_bits() const {
    const std::int64_t keys = std::int64_t{shape.tasks()} * (shape.clusters + 1);
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(keys)));
  }
  bool has_lengths() const { return a.key_lengths != nullptr; }

  Tokens tokens(bool only_if_stale, bool fit) const {
    return {InputView(a.v),
            a.key_lengths,
            only_if_stale ? grouping.stale : nullptr,
            shape.clusters,
            shape.keys_per_cluster,
            fit,
            fit ? fit_slots() : shape.tokens};
  }

  /// The positions of every head, which both kinds of sort take along.
  void number(int slots) const {
    launch<NumberKernel>(grid(divide_up(slots, NumberKernel::kTile)), {slots, buffers.numbers},
                         stream, "positions");
  }

  void assign(const Tokens& t) const {
    launch<AssignKernel<kDim>>(
        tiles(t.slots),
        {t, buffers.centroids.fragments, buffers.centroids.half_norms, buffers.labels}, stream,
        "nearest centroids");
  }

  void iterate(const Tokens& t) const {
    assign(t);
    sort_pairs(buffers.scratch, buffers.scratch_bytes, buffers.labels, buffers.sorted_labels,
               buffers.numbers, buffers.sorted_numbers, in_all(t.slots), key_bits(), stream);
    launch<UpdateKernel<kDim>>(
        clusters(), {t, buffers.centroids, buffers.sorted_labels, buffers.sorted_numbers}, stream,
        "centroids");
  }

  /// From the final centroids to the order, in `sorted`.
  void order(const Tokens& t, std::int32_t* sorted) const {
    const bool chained = options.order == ClusterOrder::kChain;
    assign(t);
    if (chained) {
      launch<ChainKernel<kDim>>(grid(1), {t, buffers.centroids, buffers.chain, buffers.ranks},
                                stream, "chain of clusters");
      launch<DirectionKernel<kDim>>(clusters(),
                                    {t, grouping.centroids, buffers.chain, buffers.directions},
                                    stream, "directions");
    }
    launch<OrderKeyKernel<kDim>>(
        tiles(t.slots),
        {t, buffers.labels, chained ? buffers.ranks : nullptr, buffers.directions, buffers.keys},
        stream, "order keys");
    sort_pairs(buffers.scratch, buffers.scratch_bytes, buffers.keys, buffers.sorted_keys,
               buffers.numbers, sorted, in_all(t.slots), 32 + key_bits(), stream);
  }

  void run() const {
    const bool conditional = options.only_if_stale && has_lengths();
    const Tokens t = tokens(conditional, /*fit=*/false);
    if (conditional) {  // the sorts run in any case and shall find something
      check(cudaMemsetAsync(buffers.labels, 0, in_all(t.slots) * sizeof(*buffers.labels), stream),
            "workspace");
      check(cudaMemsetAsync(buffers.keys, 0, in_all(t.slots) * sizeof(*buffers.keys), stream),
            "workspace");
    }
    number(fit_slots());
    launch<SeedKernel<kDim>>(
        grid(static_cast<unsigned>(padded_clusters(shape.clusters))),
        {t, buffers.centroids, options.warm, has_lengths() ? grouping.stale : nullptr}, stream,
        "first centroids");
    const int warm_iterations = std::max(1, options.iterations / 2);
    for (int i = 0; i < options.iterations || (options.warm && i < warm_iterations); ++i) {
      const bool needed = !options.warm || i < warm_iterations;
      if (needed) {
        iterate(tokens(conditional, /*fit=*/true));
      } else if (has_lengths()) {
        iterate(tokens(/*only_if_stale=*/true, /*fit=*/true));
      }
    }
    if (fit_slots() != shape.tokens) number(shape.tokens);
    order(t, has_lengths() ? buffers.sorted_numbers : grouping.order);
    if (has_lengths()) {
      launch<KeepKernel>(grid(divide_up(shape.tokens, KeepKernel::kTile)),
                         {t, buffers.sorted_numbers, grouping.order, grouping.lengths}, stream,
                         "order");
    }
  }
};

template <int kDim>
void run_pass(const Arguments& a, const Shape& shape, const Options& options,
              const Grouping& grouping, std::byte* workspace, cudaStream_t stream) {
  Pass<kDim> pass{a, shape, options, grouping, Buffers(shape, workspace), stream};
  pass.buffers.centroids.centroids = grouping.centroids;
  pass.run();
}

struct GroupingLayout {
  Grouping grouping;
  std::size_t bytes;
  GroupingLayout(const Shape& s, std::byte* base) {
    Carver carver(base);
    const auto tasks = static_cast<std::size_t>(s.tasks());
    grouping.order = carver.take<std::int32_t>(tasks * s.tokens);
    grouping.centroids = carver.take<float>(tasks * s.clusters * s.dim);
    grouping.lengths = carver.take<std::int32_t>(static_cast<std::size_t>(s.batch));
    grouping.stale = carver.take<std::int32_t>(1);
    bytes = carver.bytes();
  }
};

}  // namespace

Shape shape_of(const Arguments& a, const Recipe& recipe) {
  Shape s;
  s.batch = static_cast<int>(a.v.batch());
  s.heads = static_cast<int>(a.v.heads());
  s.tokens = static_cast<int>(a.v.tokens());
  s.dim = a.v.dim() <= 64 ? 64 : 128;
  s.keys_per_cluster = recipe.keys_per_cluster;
  s.clusters = static_cast<int>(divide_up(s.tokens, s.keys_per_cluster));
  return s;
}

const char* refuses(const Shape& s) {
  if (s.clusters > kMaxClusters) return "more than 16,384 clusters: raise keys_per_cluster";
  const std::int64_t keys = std::int64_t{s.batch} * s.heads * (s.clusters + 1);
  return keys < (std::int64_t{1} << 31) ? "" : "more than 2^31 clusters over all heads";
}

std::size_t grouping_bytes(const Shape& shape) { return GroupingLayout(shape, nullptr).bytes; }

Grouping grouping_at(const Shape& shape, std::byte* base) {
  return GroupingLayout(shape, base).grouping;
}

std::size_t workspace_bytes(const Shape& shape) { return Buffers(shape, nullptr).bytes; }

void check_lengths(const Arguments& a, const Shape& shape, const Grouping& grouping,
                   cudaStream_t stream) {
  launch<CheckLengthsKernel>(dim3(1),
                             {a.key_lengths, grouping.lengths, shape.batch, grouping.stale}, stream,
                             "key lengths");
}

void group(const Arguments& a, const Shape& shape, const Options& options, const Grouping& grouping,
           std::byte* workspace, cudaStream_t stream) {
  if (shape.dim == 64) {
    run_pass<64>(a, shape, options, grouping, workspace, stream);
  } else {
    run_pass<128>(a, shape, options, grouping, workspace, stream);
  }
}

void usable_order(const Shape& shape, const Grouping& grouping, std::int32_t* order,
                  cudaStream_t stream) {
  launch<UsableOrderKernel>(
      dim3(divide_up(shape.tokens, UsableOrderKernel::kTile), static_cast<unsigned>(shape.heads),
           static_cast<unsigned>(shape.batch)),
      {shape.tokens, grouping.stale, grouping.order, order}, stream, "usable order");
}

}  // namespace vcattn::cuda::cluster
