// The centroids of each head: where they start and how a Lloyd step moves them. Each is kept three
// times: as float32, transposed for the chain, and as the bfloat16 fragments that the assignment
// multiplies.
#pragma once

#include "cuda/cluster/tokens.cuh"
#include "vcattn/numerics/arith.h"

namespace vcattn::cuda::cluster {

inline constexpr int kClusterStep = 16;  ///< clusters that the assignment takes at a time

VC_CONSTEXPR int padded_clusters(int clusters) {
  return (clusters + kClusterStep - 1) / kClusterStep * kClusterStep;
}

/// Position of a channel of a cluster in the head's fragments, in bfloat16 elements. A lane 4g + t
/// of mma m16n8k16 reads 16 bytes, the channels 32j + 8t .. + 7 of cluster g of eight: words 0 and
/// 1 are its B registers of step 2j, words 2 and 3 those of step 2j + 1. (Which channels a step
/// sums is of no account as long as A and B agree.)
template <int kDim>
VC_DEVICE int fragment_position(int cluster, int channel) {
  const int lane = 4 * (cluster % 8) + channel % 32 / kPacket;
  return ((cluster / 8 * (kDim / 32) + channel / 32) * 32 + lane) * kPacket + channel % kPacket;
}

struct CentroidViews {
  float* centroids = nullptr;          ///< (tasks, clusters, kDim)
  float* transposed = nullptr;         ///< (tasks, kDim, padded clusters)
  std::uint16_t* fragments = nullptr;  ///< (tasks, padded clusters * kDim)
  float* half_norms = nullptr;  ///< (tasks, padded clusters): |c|^2 / 2; infinite: no cluster
};

template <int kDim>
struct NormStorage {
  float partial[kDim / ptx::kWarpSize];
};

/// Writes the forms of one centroid. By the first kDim threads of the block, all of whose whole
/// warps must call it; `x` is the thread's channel.
template <int kDim>
VC_DEVICE void publish(const CentroidViews& views, NormStorage<kDim>& shared, std::int64_t task,
                       int slots, int cluster, bool exists, float x) {
  const int channel = ptx::thread_index();
  const std::uint16_t rounded = ptx::bf16_from_float(x);
  ptx::store_global(
      views.fragments + task * slots * kDim + fragment_position<kDim>(cluster, channel), rounded);
  ptx::store_global(views.transposed + (task * kDim + channel) * slots + cluster, x);
  const float value = ptx::float_from_bf16(rounded);
  float sum = numerics::mul_rn(value, value);
  VC_UNROLL
  for (int bit = 1; bit < ptx::kWarpSize; bit *= 2) {
    sum = numerics::add_rn(sum, ptx::shuffle_xor(sum, bit));
  }
  if (ptx::lane_index() == 0) ptx::store_shared(&shared.partial[channel / ptx::kWarpSize], sum);
  ptx::named_barrier_sync(1, kDim);
  if (channel != 0) return;
  for (int i = 1; i < kDim / ptx::kWarpSize; ++i) {
    sum = numerics::add_rn(sum, ptx::load_shared<float>(&shared.partial[i]));
  }
  ptx::store_global(views.half_norms + task * slots + cluster,
                    exists ? numerics::mul_rn(0.5f, sum) : numerics::infinity());
}

/// Grid: padded clusters. Evenly spaced tokens, or the centroids that are there.
template <int kDim>
struct SeedKernel {
  static constexpr int kThreads = kDim, kBlocksPerSm = 1;
  struct Params {
    Tokens tokens;
    CentroidViews views;
    bool warm = false;
    const std::int32_t* stale = nullptr;  ///< nullptr, or warm only while this is zero
  };
  using SharedStorage = NormStorage<kDim>;

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    if (p.tokens.idle()) return;
    const Head head(p.tokens);
    const int cluster = ptx::block_index().x, channel = ptx::thread_index();
    const bool exists = cluster < head.clusters;
    const bool warm =
        p.warm && (p.stale == nullptr || ptx::load_global<std::int32_t>(p.stale) == 0);
    float x = 0.0f;
    if (exists) {
      float* kept = p.views.centroids + (head.first_cluster() + cluster) * kDim + channel;
      if (warm) {
        x = ptx::load_global<float>(kept);
      } else {
        x = channel_of(p.tokens.v, head.row(start(head, cluster)), channel);
        ptx::store_global(kept, x);
      }
    }
    publish<kDim>(p.views, shared, head.task, padded_clusters(p.tokens.clusters), cluster, exists,
                  x);
  }

 private:
  VC_DEVICE static int start(const Head& head, int cluster) {
    if (head.clusters == 1) return 0;
    return static_cast<int>(static_cast<std::int64_t>(cluster) * (head.count - 1) /
                            (head.clusters - 1));
  }
  VC_DEVICE static float channel_of(const InputView& v, std::int64_t row, int channel) {
    return channel < v.dim ? load_channel(v, row + channel * v.stride[3]) : 0.0f;
  }
};

/// Grid: clusters. Each centroid becomes the mean of its tokens, which the sort has laid side by
/// side in ascending order; an empty cluster keeps its own. The sums are float64 in a fixed order.
template <int kDim>
struct UpdateKernel {
  static constexpr int kThreads = 128, kBlocksPerSm = 4;
  static constexpr int kLanes = kDim / kPacket, kRows = kThreads / kLanes;
  static constexpr int kInFlight = 4;  ///< rows a thread reads before it adds them
  struct Params {
    Tokens tokens;
    CentroidViews views;
    const std::uint32_t* keys = nullptr;  ///< sorted
    const std::int32_t* order = nullptr;  ///< the tokens, in the order of the keys
  };
  struct SharedStorage {
    int bounds[2];
    NormStorage<kDim> norm;
    double partial[kRows][kDim];
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    if (p.tokens.idle()) return;
    const Head head(p.tokens);
    const int cluster = ptx::block_index().x, thread = ptx::thread_index();
    if (cluster >= head.clusters) return;
    if (thread % 64 == 0) {
      const int which = thread / 64;
      ptx::store_shared(
          &shared.bounds[which],
          lower_bound(p.keys + head.first_position(), head.positions, head.key(cluster + which)));
    }
    ptx::block_sync();
    const int begin = ptx::load_shared<int>(&shared.bounds[0]);
    const int end = ptx::load_shared<int>(&shared.bounds[1]);
    if (begin == end) return;
    double sum[kPacket] = {};
    add_rows(p, head, begin, end, sum);
    const int row = thread / kLanes, first = thread % kLanes * kPacket;
    VC_UNROLL
    for (int i = 0; i < kPacket; ++i) ptx::store_shared(&shared.partial[row][first + i], sum[i]);
    ptx::block_sync();
    if (thread >= kDim) return;
    double total = 0.0;
    for (int r = 0; r < kRows; ++r) total += ptx::load_shared<double>(&shared.partial[r][thread]);
    const auto mean = static_cast<float>(total / static_cast<double>(end - begin));
    ptx::store_global(p.views.centroids + (head.first_cluster() + cluster) * kDim + thread, mean);
    publish<kDim>(p.views, shared.norm, head.task, padded_clusters(p.tokens.clusters), cluster,
                  true, mean);
  }

 private:
  VC_DEVICE static int lower_bound(const std::uint32_t* keys, int count, std::uint32_t key) {
    int first = 0;
    while (count > 0) {
      const int half = count / 2;
      if (ptx::load_global_constant<std::uint32_t>(keys + first + half) < key) {
        first += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return first;
  }

  VC_DEVICE static void add_rows(const Params& p, const Head& head, int begin, int end,
                                 double (&sum)[kPacket]) {
    const int row = ptx::thread_index() / kLanes;
    const int first = ptx::thread_index() % kLanes * kPacket;
    const std::int32_t* order = p.order + head.first_position();
    VC_NO_UNROLL
    for (int at = begin + row; at < end; at += kInFlight * kRows) {
      int token[kInFlight];  // positions of the sample
      VC_UNROLL
      for (int i = 0; i < kInFlight; ++i) {
        const int position = at + i * kRows;
        token[i] = position < end ? ptx::load_global_constant<std::int32_t>(order + position) : -1;
      }
      float x[kInFlight][kPacket] = {};
      VC_UNROLL
      for (int i = 0; i < kInFlight; ++i) {
        if (token[i] >= 0)
          load_channels<kDim>(p.tokens.v, head.row(token[i] * head.stride), first, x[i]);
      }
      VC_UNROLL
      for (int i = 0; i < kInFlight; ++i) {
        VC_UNROLL
        for (int c = 0; c < kPacket; ++c) sum[c] += static_cast<double>(x[i][c]);
      }
    }
  }
};

}  // namespace vcattn::cuda::cluster
