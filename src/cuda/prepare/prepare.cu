#include "cuda/host/launch.cuh"
#include "cuda/prepare/prepare.h"
#include "cuda/prepare/scores.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/prepare/values.cuh"
#include "cuda/sm90/layout.h"

namespace vcattn::cuda::prepare {
namespace {

constexpr int kSampleStride = 16;  ///< of Q's tiles, for the energy of its channels

int divide_up(std::int64_t a, int b) { return static_cast<int>((a + b - 1) / b); }

template <class T>
T* at(std::byte* base, std::size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

/// The tiles of Q that are sampled: whole ones, unless there is only a part.
int sampled_tiles(const Shape& shape) {
  const int whole = shape.sq / kTileRows;
  return whole == 0 ? 1 : divide_up(whole, kSampleStride);
}

template <int kDim>
struct Pass {
  const Arguments& a;
  const Shape& shape;
  const Workspace& w;
  const Options& options;
  std::byte* base;
  cudaStream_t stream;

  const InputView q{a.q}, k{a.k}, v{a.v};

  dim3 grid(int tiles, int heads) const {
    return dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(heads),
                static_cast<unsigned>(shape.batch));
  }

  void statistics() const {
    float* q_sums = options.balance ? at<float>(base, w.q_sums) : nullptr;
    const int q_sampled = sampled_tiles(shape);
    launch<TileSumsKernel<kDim>>(grid(shape.k_tiles, shape.kv_heads),
                                 {k, a.key_lengths, shape.k_tiles, 1, at<float>(base, w.k_sums)},
                                 stream, "key sums");
    if (options.balance) {
      launch<TileSumsKernel<kDim>>(grid(q_sampled, shape.q_heads),
                                   {q, nullptr, q_sampled, kSampleStride, q_sums}, stream,
                                   "query sums");
    }
    const int sampled_rows = shape.sq < kTileRows ? shape.sq : q_sampled * kTileRows;
    launch<ChannelStatisticsKernel<kDim>>(
        dim3(static_cast<unsigned>(shape.kv_heads), static_cast<unsigned>(shape.batch)),
        {at<float>(base, w.k_sums), q_sums, a.key_lengths, shape.k_tiles, q_sampled, sampled_rows,
         shape.group(), shape.kv_heads, shape.skv, at<float>(base, w.mean),
         at<float>(base, w.balance), at<float>(base, w.inverse_balance)},
        stream, "channel statistics");
    launch<KeyMaximumKernel<kDim>>(grid(shape.k_tiles, shape.kv_heads),
                                   {k, a.key_lengths, at<float>(base, w.mean),
                                    at<float>(base, w.inverse_balance), key_maxima()},
                                   stream, "key maximum");
  }

  template <class Format>
  void scores(bool lse) const {
    launch<QuantizeKeysKernel<kDim, Format>>(
        grid(shape.k_tiles, shape.kv_heads),
        {k, a.key_lengths, options.order, at<float>(base, w.mean),
         at<float>(base, w.inverse_balance), key_maxima(), shape.k_tiles,
         at<std::uint8_t>(base, w.k)},
        stream, "quantize keys");
    launch<QuantizeQueriesKernel<kDim, Format>>(
        grid(shape.q_tiles, shape.q_heads),
        {q, at<float>(base, w.mean), at<float>(base, w.balance), key_maxima(), options.score_scale,
         shape.group(), shape.q_tiles, at<std::uint8_t>(base, w.q), at<float>(base, w.row_scale),
         lse ? at<float>(base, w.lse_shift) : nullptr},
        stream, "quantize queries");
  }

  void values() const {
    const ValueParams params{v,
                             a.key_lengths,
                             options.order,
                             options.demean,
                             options.refit,
                             shape.k_tiles,
                             shape.mean_groups,
                             key_maxima() + shape.batch * shape.kv_heads,
                             at<std::uint8_t>(base, w.v),
                             at<float>(base, w.means),
                             at<float>(base, w.value_scale),
                             at<std::uint8_t>(base, w.ones)};
    launch<ValueMaximumKernel<kDim>>(grid(shape.k_tiles, shape.kv_heads), params, stream,
                                     "value maximum");
    launch<QuantizeValuesKernel<kDim>>(grid(shape.k_tiles, shape.kv_heads), params, stream,
                                       "quantize values");
  }

  void run() const {
    check(cudaMemsetAsync(base + w.maxima, 0, w.maxima_bytes, stream), "workspace");
    statistics();
    if (options.int8_scores) {
      scores<Int8Format>(a.lse.has_value());
    } else {
      scores<E4m3Format>(a.lse.has_value());
    }
    values();
  }

 private:
  std::uint32_t* key_maxima() const { return at<std::uint32_t>(base, w.maxima); }
};

}  // namespace

Shape shape_of(const Arguments& a) {
  Shape s;
  s.batch = static_cast<int>(a.q.batch());
  s.q_heads = static_cast<int>(a.q.heads());
  s.kv_heads = static_cast<int>(a.k.heads());
  s.sq = static_cast<int>(a.q.tokens());
  s.skv = static_cast<int>(a.k.tokens());
  s.dim = a.q.dim() <= 64 ? 64 : 128;
  s.q_tiles = divide_up(s.sq, sm90::kTileQueries);
  s.k_tiles = divide_up(s.skv, sm90::kTileKeys);
  s.mean_groups = divide_up(s.k_tiles, sm90::kMeanGroup);
  return s;
}

Workspace plan_workspace(const Shape& s, bool lse) {
  Workspace w;
  const auto take = [&w](std::size_t bytes) {
    const std::size_t offset = w.bytes;
    w.bytes += (bytes + 255) / 256 * 256;
    return offset;
  };
  const std::size_t q_heads = static_cast<std::size_t>(s.batch) * s.q_heads;
  const std::size_t kv_heads = static_cast<std::size_t>(s.batch) * s.kv_heads;
  const std::size_t dim = static_cast<std::size_t>(s.dim), row = dim * sizeof(float);
  const std::size_t q_rows = q_heads * s.q_tiles * kTileRows;
  const std::size_t k_rows = kv_heads * s.k_tiles * kTileRows;
  w.q = take(q_rows * dim);
  w.k = take(k_rows * dim);
  w.v = take(k_rows * dim);
  w.row_scale = take(q_rows * 2 * sizeof(float));
  if (lse) w.lse_shift = take(q_rows * sizeof(float));
  w.means = take(kv_heads * s.mean_groups * sm90::kMeanGroup * row);
  w.value_scale = take(kv_heads * row);
  w.ones = take(static_cast<std::size_t>(s.batch) * sm90::kOnesBytes);
  w.k_sums = take(kv_heads * s.k_tiles * 2 * row);
  w.q_sums = take(q_heads * sampled_tiles(s) * 2 * row);
  w.mean = take(kv_heads * row);
  w.balance = take(kv_heads * row);
  w.inverse_balance = take(kv_heads * row);
  w.maxima_bytes = kv_heads * (1 + dim) * sizeof(std::uint32_t);
  w.maxima = take(w.maxima_bytes);
  return w;
}

sm90::AttentionParams prepare(const Arguments& a, const Shape& s, const Workspace& w,
                              const Options& options, std::byte* base, cudaStream_t stream) {
  if (s.dim == 64) {
    Pass<64>{a, s, w, options, base, stream}.run();
  } else {
    Pass<128>{a, s, w, options, base, stream}.run();
  }
  sm90::AttentionParams p;
  p.q = at<std::uint8_t>(base, w.q);
  p.k = at<std::uint8_t>(base, w.k);
  p.v = at<std::uint8_t>(base, w.v);
  p.row_scale = at<float>(base, w.row_scale);
  p.means = at<float>(base, w.means);
  p.value_scale = at<float>(base, w.value_scale);
  p.ones = at<std::uint8_t>(base, w.ones);
  p.key_lengths = a.key_lengths;
  p.q_heads = s.q_heads;
  p.group = s.group();
  p.sq = s.sq;
  p.skv = s.skv;
  p.q_tiles = s.q_tiles;
  p.k_tiles = s.k_tiles;
  p.mean_groups = s.mean_groups;
  p.out = OutputView(a.out);
  if (a.lse) {
    p.lse = a.lse->data;
    for (int i = 0; i < 3; ++i) p.lse_stride[i] = a.lse->stride[i];
    p.lse_shift = at<float>(base, w.lse_shift);
  }
  return p;
}

}  // namespace vcattn::cuda::prepare
