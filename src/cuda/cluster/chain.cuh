// The chain of clusters and the sort keys of the tokens along it.
#pragma once

#include "cuda/cluster/centroids.cuh"
#include "vcattn/numerics/token_order.h"

namespace vcattn::cuda::cluster {

inline constexpr int kChainThreads = 512;
inline constexpr int kMaxClusters = 32 * kChainThreads;  ///< a bit each in their thread

/// Grid: one block per head. Greedy chain: from the centroid farthest from the mean of all, on to
/// the nearest not yet visited, the lowest index among equals. A thread owns every 512th cluster.
template <int kDim>
struct ChainKernel {
  static constexpr int kThreads = kChainThreads, kBlocksPerSm = 1;
  static constexpr int kWarps = kThreads / ptx::kWarpSize;
  struct Params {
    Tokens tokens;
    CentroidViews views;
    std::int32_t* chain = nullptr;  ///< (tasks, clusters): rank -> cluster
    std::int32_t* ranks = nullptr;  ///< (tasks, clusters): cluster -> rank
  };
  struct SharedStorage {
    alignas(16) float from[kDim];
    std::int32_t key[kWarps];
    std::int32_t cluster[kWarps];
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    if (p.tokens.idle()) return;
    const Head head(p.tokens);
    const float* centroids = p.views.centroids + head.first_cluster() * kDim;
    const int thread = ptx::thread_index();
    if (thread < kDim) {
      double sum = 0.0;
      for (int k = 0; k < head.clusters; ++k) {
        sum += static_cast<double>(ptx::load_global<float>(centroids + k * kDim + thread));
      }
      ptx::store_shared(&shared.from[thread],
                        static_cast<float>(sum / static_cast<double>(head.clusters)));
    }
    std::uint32_t visited = 0;
    for (int rank = 0; rank < head.clusters; ++rank) {
      ptx::block_sync();
      // The farthest is the one whose negated distance is least.
      const int next = least(p, head, shared, visited, /*negate=*/rank == 0);
      if (next % kThreads == thread) visited |= 1u << (next / kThreads);
      if (thread == 0) {
        ptx::store_global(p.chain + head.first_cluster() + rank, next);
        ptx::store_global(p.ranks + head.first_cluster() + next, rank);
      }
      // Everybody has read `from` before the barrier inside least().
      if (thread < kDim) {
        ptx::store_shared(&shared.from[thread],
                          ptx::load_global<float>(centroids + next * kDim + thread));
      }
    }
  }

 private:
  VC_DEVICE static int least(const Params& p, const Head& head, SharedStorage& shared,
                             std::uint32_t visited, bool negate) {
    constexpr std::int32_t kMost = 0x7FFFFFFF;
    const int slots = padded_clusters(p.tokens.clusters), thread = ptx::thread_index();
    const float* columns = p.views.transposed + head.task * kDim * slots;
    std::int32_t best = kMost, cluster = kMost;
    for (int k = thread, i = 0; k < head.clusters; k += kThreads, ++i) {
      if ((visited >> i & 1u) != 0) continue;
      const std::int32_t bits = numerics::distance_bits(distance(columns + k, slots, shared));
      const std::int32_t key = negate ? -bits : bits;
      if (key < best || cluster == kMost) {
        best = key;
        cluster = k;
      }
    }
    reduce(best, cluster);
    if (ptx::lane_index() == 0) {
      ptx::store_shared(&shared.key[thread / ptx::kWarpSize], best);
      ptx::store_shared(&shared.cluster[thread / ptx::kWarpSize], cluster);
    }
    ptx::block_sync();
    const int from = ptx::lane_index() % kWarps;
    best = ptx::load_shared<std::int32_t>(&shared.key[from]);
    cluster = ptx::load_shared<std::int32_t>(&shared.cluster[from]);
    reduce(best, cluster);
    return cluster;
  }

  VC_DEVICE static float distance(const float* column, int slots, const SharedStorage& shared) {
    constexpr int kBatch = 16;
    float sum = 0.0f;
    VC_NO_UNROLL
    for (int first = 0; first < kDim; first += kBatch) {
      float x[kBatch];
      VC_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        x[i] =
            ptx::load_global_constant<float>(column + static_cast<std::int64_t>(first + i) * slots);
      }
      VC_UNROLL
      for (int i = 0; i < kBatch; i += 4) {
        const auto from = ptx::load_shared<ptx::Vec<float, 4>>(&shared.from[first + i]);
        VC_UNROLL
        for (int c = 0; c < 4; ++c) {
          sum = numerics::add_squared_difference(sum, x[i + c], from[c]);
        }
      }
    }
    return sum;
  }

  /// The least key of the warp and the lowest of its clusters, in every lane.
  VC_DEVICE static void reduce(std::int32_t& key, std::int32_t& cluster) {
    VC_UNROLL
    for (int bit = 1; bit < ptx::kWarpSize; bit *= 2) {
      const std::int32_t other = ptx::shuffle_xor(key, bit);
      const std::int32_t its_cluster = ptx::shuffle_xor(cluster, bit);
      if (other < key || (other == key && its_cluster < cluster)) {
        key = other;
        cluster = its_cluster;
      }
    }
  }
};

/// Grid: clusters. The direction of a cluster, from the one before it in the chain to the one
/// after.
template <int kDim>
struct DirectionKernel {
  static constexpr int kThreads = kDim, kBlocksPerSm = 1;
  struct Params {
    Tokens tokens;
    const float* centroids = nullptr;
    const std::int32_t* chain = nullptr;
    float* directions = nullptr;  ///< (tasks, clusters, kDim)
  };
  struct SharedStorage {};

  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    if (p.tokens.idle()) return;
    const Head head(p.tokens);
    const int rank = ptx::block_index().x, channel = ptx::thread_index();
    if (rank >= head.clusters) return;
    const std::int64_t base = head.first_cluster();
    const auto centroid_at = [&](int r) {
      const auto cluster = ptx::load_global_constant<std::int32_t>(p.chain + base + r);
      return ptx::load_global_constant<float>(p.centroids + (base + cluster) * kDim + channel);
    };
    const float after = centroid_at(rank + 1 < head.clusters ? rank + 1 : rank);
    const float before = centroid_at(rank > 0 ? rank - 1 : 0);
    const auto cluster = ptx::load_global_constant<std::int32_t>(p.chain + base + rank);
    ptx::store_global(p.directions + (base + cluster) * kDim + channel,
                      numerics::sub_rn(after, before));
  }
};

/// Grid: tiles of 128 tokens. Keys of the final order: head and rank of the cluster above (the
/// label instead of the rank where there is no chain), projection below.
template <int kDim>
struct OrderKeyKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = 4;
  static constexpr int kLanes = kDim / kPacket, kRows = kThreads / kLanes;
  static_assert(kPacket == numerics::kProjectionChannels);
  struct Params {
    Tokens tokens;
    const std::uint32_t* labels = nullptr;  ///< AssignKernel's keys
    const std::int32_t* ranks = nullptr;    ///< nullptr: order by label
    const float* directions = nullptr;
    std::uint64_t* keys = nullptr;
  };
  struct SharedStorage {};

  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    if (p.tokens.idle()) return;
    const Head head(p.tokens);
    const int lane = ptx::thread_index() % kLanes;
    VC_UNROLL
    for (int i = 0; i < kTileTokens / kRows; ++i) {
      const int token =
          ptx::block_index().x * kTileTokens + i * kRows + ptx::thread_index() / kLanes;
      const bool visible = token < head.count;
      int label = p.tokens.clusters;
      float projection = 0.0f;
      if (visible) {
        label = static_cast<int>(
            ptx::load_global_constant<std::uint32_t>(p.labels + head.first_position() + token) -
            head.key(0));
        if (p.ranks != nullptr) projection = project(p, head, token, label, lane);
      }
      VC_UNROLL
      for (int bit = 1; bit < kLanes; bit *= 2) {
        projection = numerics::add_rn(projection, ptx::shuffle_xor(projection, bit));
      }
      if (lane != 0 || token >= p.tokens.v.tokens) continue;
      int rank = label;
      if (visible && p.ranks != nullptr) {
        rank = ptx::load_global_constant<std::int32_t>(p.ranks + head.first_cluster() + label);
      }
      ptx::store_global(
          p.keys + head.first_position() + token,
          static_cast<std::uint64_t>(head.key(rank)) << 32 | numerics::sortable_bits(projection));
    }
  }

 private:
  VC_DEVICE static float project(const Params& p, const Head& head, int token, int label,
                                 int lane) {
    const float* from = p.directions + (head.first_cluster() + label) * kDim + lane * kPacket;
    const auto low = ptx::load_global_constant<ptx::Vec<float, 4>>(from);
    const auto high = ptx::load_global_constant<ptx::Vec<float, 4>>(from + 4);
    float x[kPacket];
    load_channels<kDim>(p.tokens.v, head.row(token), lane * kPacket, x);
    float sum = 0.0f;
    VC_UNROLL
    for (int c = 0; c < kPacket; ++c) {
      sum = numerics::add_projection(sum, x[c], c < 4 ? low[c % 4] : high[c % 4]);
    }
    return sum;
  }
};

}  // namespace vcattn::cuda::cluster
