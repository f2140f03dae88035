// The nearest centroid of every token: argmax v . c - |c|^2 / 2 in bfloat16 products.
#pragma once

#include "cuda/cluster/centroids.cuh"

namespace vcattn::cuda::cluster {

/// Grid: tiles of 128 positions. A warp holds 32 tokens in registers and runs along the centroids,
/// whose fragments every warp of a head reads: they stay in the first-level cache.
template <int kDim>
struct AssignKernel {
  static constexpr int kThreads = 128, kBlocksPerSm = 3;
  static constexpr int kWarpTokens = 32;
  static constexpr int kGroups = kDim / 32;  ///< of 32 channels, two steps of the product
  struct Params {
    Tokens tokens;
    const std::uint16_t* fragments = nullptr;
    const float* half_norms = nullptr;
    std::uint32_t* keys = nullptr;  ///< (tasks, slots): Head::key of the nearest centroid
  };
  struct SharedStorage {};

  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    if (p.tokens.idle()) return;
    const Head head(p.tokens);
    const int first = ptx::block_index().x * kTileTokens + ptx::warp_index() * kWarpTokens;
    Packed rows[4][kGroups];
    load_rows(head, first, rows);
    Nearest nearest[4];
    const int slots = padded_clusters(p.tokens.clusters);
    const std::uint16_t* fragments =
        p.fragments + head.task * slots * kDim + ptx::lane_index() * kPacket;
    const float* half_norms = p.half_norms + head.task * slots + ptx::lane_index() % 4 * 2;
    VC_NO_UNROLL
    for (int cluster = 0; cluster < head.clusters; cluster += kClusterStep) {
      multiply(fragments + cluster * kDim, half_norms + cluster, cluster, rows, nearest);
    }
    VC_UNROLL
    for (int r = 0; r < 4; ++r) store(p, head, first + 8 * r + ptx::lane_index() / 4, nearest[r]);
  }

 private:
  struct Nearest {
    float closeness = -numerics::infinity();
    int cluster = 0;

    /// The lowest cluster wins among equals; a NaN never does.
    VC_DEVICE void offer(float other, int its_cluster) {
      if (other > closeness) {
        closeness = other;
        cluster = its_cluster;
      }
    }
  };

  /// Row r of the lane is position first + 8r + lane / 4.
  VC_DEVICE static void load_rows(const Head& head, int first, Packed (&rows)[4][kGroups]) {
    const int lane = ptx::lane_index();
    VC_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int position = first + 8 * r + lane / 4;
      VC_UNROLL
      for (int j = 0; j < kGroups; ++j) {
        rows[r][j] = {};
        if (position < head.positions) {
          rows[r][j] = load_packed<kDim>(head.tokens.v, head.row(position * head.stride),
                                         32 * j + lane % 4 * kPacket);
        }
      }
    }
  }

  /// Sixteen clusters: two columns of mma for two row tiles.
  VC_DEVICE static void multiply(const std::uint16_t* fragments, const float* half_norms,
                                 int cluster, const Packed (&rows)[4][kGroups],
                                 Nearest (&nearest)[4]) {
    constexpr int kColumns = kClusterStep / 8;
    Packed b[kColumns][kGroups];
    float sum[kColumns][2][4];
    VC_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      VC_UNROLL
      for (int j = 0; j < kGroups; ++j) {
        b[n][j] = ptx::load_global_constant<Packed>(fragments + (n * kGroups + j) * 32 * kPacket);
      }
      const auto norm = ptx::load_global_constant<ptx::Vec<float, 2>>(half_norms + 8 * n);
      VC_UNROLL
      for (int i = 0; i < 8; ++i) sum[n][i / 4][i % 4] = -norm[i % 2];
    }
    VC_UNROLL
    for (int j = 0; j < kGroups; ++j) {
      VC_UNROLL
      for (int half = 0; half < 2; ++half) {
        VC_UNROLL
        for (int m = 0; m < 2; ++m) {
          const Packed& upper = rows[2 * m][j];
          const Packed& lower = rows[2 * m + 1][j];
          const std::uint32_t a[4] = {upper[2 * half], lower[2 * half], upper[2 * half + 1],
                                      lower[2 * half + 1]};
          VC_UNROLL
          for (int n = 0; n < kColumns; ++n) {
            const std::uint32_t columns[2] = {b[n][j][2 * half], b[n][j][2 * half + 1]};
            ptx::mma_bf16(sum[n][m], a, columns);
          }
        }
      }
    }
    VC_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      const int column = cluster + 8 * n + ptx::lane_index() % 4 * 2;
      VC_UNROLL
      for (int r = 0; r < 4; ++r) {
        nearest[r].offer(sum[n][r / 2][r % 2 * 2], column);
        nearest[r].offer(sum[n][r / 2][r % 2 * 2 + 1], column + 1);
      }
    }
  }

  /// The best of the four lanes that share a row.
  VC_DEVICE static void store(const Params& p, const Head& head, int position, Nearest nearest) {
    VC_UNROLL
    for (int bit = 1; bit < 4; bit *= 2) {
      const float closeness = ptx::shuffle_xor(nearest.closeness, bit);
      const int cluster = ptx::shuffle_xor(nearest.cluster, bit);
      if (closeness > nearest.closeness ||
          (closeness == nearest.closeness && cluster < nearest.cluster)) {
        nearest = {closeness, cluster};
      }
    }
    if (ptx::lane_index() % 4 != 0 || position >= p.tokens.slots) return;
    ptx::store_global(p.keys + head.first_position() + position,
                      head.key(position < head.positions ? nearest.cluster : p.tokens.clusters));
  }
};

}  // namespace vcattn::cuda::cluster
