// What the attention kernel is launched with: plain data, by value.
#pragma once

#include <cstdint>

#include "cuda/device_view.h"
#include "cuda/sm90/config.h"

namespace vcattn::cuda::sm90 {

/// Images are described in layout.h. Query tile (b, h, i) is tile (b * q_heads + h) * q_tiles + i,
/// likewise for keys with kv_heads and k_tiles; k_tiles is the capacity, a batch entry with fewer
/// visible keys leaves its last tiles unread.
struct AttentionParams {
  const std::uint8_t* q = nullptr;
  const std::uint8_t* k = nullptr;
  const std::uint8_t* v = nullptr;
  const float* row_scale = nullptr;    ///< two per query row (RowScale), padded to whole tiles
  const float* means = nullptr;        ///< per (b, kv head): mean_groups images
  const float* value_scale = nullptr;  ///< per (b, kv head) and channel
  const std::uint8_t* ones = nullptr;  ///< per b: the column of ones of its last tile

  const std::int32_t* key_lengths = nullptr;  ///< per b; nullptr: skv
  int q_heads = 0;
  int group = 1;  ///< query heads that share a KV head
  int sq = 0, skv = 0;
  int q_tiles = 0, k_tiles = 0, mean_groups = 0;

  OutputView out;
  float* lse = nullptr;
  std::int64_t lse_stride[3] = {};
  const float* lse_shift = nullptr;  ///< per query row: what the mean key took away
};

/// Blocks along the query tiles: whole clusters.
inline int grid_tiles(const AttentionParams& p) {
  return (p.q_tiles + kCluster - 1) / kCluster * kCluster;
}

}  // namespace vcattn::cuda::sm90
