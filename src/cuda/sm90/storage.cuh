// Shared memory of a block, and what all its roles know.
#pragma once

#include "cuda/ptx/ptx.cuh"
#include "cuda/sm90/config.h"
#include "cuda/sm90/layout.h"
#include "cuda/sm90/params.h"

namespace vcattn::cuda::sm90 {

inline constexpr int kConsumers = 2;  ///< warpgroups of 64 query rows each
/// Which hand a stage back one by one.
inline constexpr int kConsumerWarps = kConsumers * ptx::kWarpgroupSize / ptx::kWarpSize;

/// Stage t (mod kStages) holds the values of tile t and the keys of tile t + 1: what one step of
/// the main loop multiplies. The keys of tile 0 come first, in the last stage.
template <class C>
struct alignas(1024) Stage {
  std::uint8_t k[kTileKeys * C::kDim];
  std::uint8_t v[kTileKeys * C::kDim];
  std::uint8_t ones[kOnesBytes];  ///< rows kDim .. kDim + 7 of v
};

template <class C>
struct AttentionStorage {
  Stage<C> stage[C::kStages];
  alignas(1024) std::uint8_t q[kConsumers][64 * C::kDim];
  alignas(1024) float means[2][kMeanGroup * C::kDim];
  /// Scaled row sums of the last 8 tiles, each thread its own A fragment of the mean product.
  alignas(16) std::uint32_t row_sums[kConsumers * ptx::kWarpgroupSize][4];
  ptx::Mbarrier full[C::kStages];        ///< one arrival and the bytes of the copies
  ptx::Mbarrier empty[C::kStages];       ///< every consumer warp
  ptx::Mbarrier peer_empty[C::kStages];  ///< the producer of the other block of the cluster
  ptx::Mbarrier start;                   ///< queries and the keys of tile 0
};

/// What this block computes: 128 query rows of one head against all visible keys. Where the number
/// of query tiles is odd, the tile of the last block lies beyond them: it computes the last one
/// once more and stores nothing, because its tokens lie beyond sq.
struct Work {
  int batch, head, query_tile;
  int keys, tiles;            ///< visible keys, and tiles of 128 that hold them
  std::int64_t q_tile_index;  ///< of Q's images and rows
  std::int64_t kv_head_index;
};

VC_DEVICE Work find_work(const AttentionParams& p) {
  const ptx::Index3 block = ptx::block_index();
  Work work;
  work.query_tile = block.x;
  work.head = block.y;
  work.batch = block.z;
  work.keys = p.skv;
  if (p.key_lengths != nullptr) {
    // On the device nobody could check them: a bad one must not hang or leave the images.
    const auto keys = ptx::load_global_constant<std::int32_t>(p.key_lengths + work.batch);
    work.keys = keys < 0 ? 0 : keys < p.skv ? keys : p.skv;
  }
  work.tiles = (work.keys + kTileKeys - 1) / kTileKeys;
  const int tile = work.query_tile < p.q_tiles ? work.query_tile : p.q_tiles - 1;
  work.q_tile_index =
      (static_cast<std::int64_t>(work.batch) * p.q_heads + work.head) * p.q_tiles + tile;
  work.kv_head_index =
      static_cast<std::int64_t>(work.batch) * (p.q_heads / p.group) + work.head / p.group;
  return work;
}

}  // namespace vcattn::cuda::sm90
