// Where an element of an operand lies in the images that preparation writes and the attention
// kernel copies into shared memory as they are. Every image is a sequence of tiles, each already in
// wgmma's swizzled K-major layout, so that one bulk copy moves a tile.
#pragma once

#include <cstdint>

#include "cuda/sm90/config.h"
#include "vcattn/numerics/arith.h"

namespace vcattn::cuda::sm90 {

/// Q and K: 128 rows (tokens) of kDim bytes; a row of 64 bytes uses the 64-byte swizzle. A tile of
/// Q is two of these halves of 64 rows, which is the same thing.
template <int kDim>
VCATTN_HD int score_operand_offset(int row, int channel) {
  const int chunk = channel >> 4;
  if constexpr (kDim == 128) return row * 128 + ((chunk ^ (row & 7)) << 4) + (channel & 15);
  return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4) + (channel & 15);
}

/// Tokens of a tile of V are permuted inside each group of 32, so that the accumulator fragment of
/// Q.K is the A fragment of P.V: slot 16h + 4t + e holds token 16h + 8 (e / 2) + 2t + e mod 2.
VCATTN_HD int value_slot(int token) {
  const int half = token & 16, pair = (token >> 3) & 1, t = (token >> 1) & 3;
  return (token & ~31) | half | (t << 2) | (pair << 1) | (token & 1);
}

/// V: kDim rows (channels) of 128 bytes (tokens), 128-byte swizzle.
VCATTN_HD int value_offset(int channel, int token) {
  const int slot = value_slot(token);
  return channel * 128 + (((slot >> 4) ^ (channel & 7)) << 4) + (slot & 15);
}

/// The column of ones that yields row sums: eight more rows of a V tile, E4M3 1.0 for keys and 0
/// for padding.
inline constexpr int kOnesBytes = 8 * 128;
inline constexpr std::uint8_t kE4m3One = 0x38;
VCATTN_HD int ones_offset(int row, int token) { return value_offset(row, token); }

/// Means: per group of 8 tiles, kDim rows (channels) of 8 tf32 values, 32-byte swizzle. In floats.
VCATTN_HD int mean_offset(int channel, int tile_in_group) {
  const int chunk = (tile_in_group >> 2) ^ ((channel >> 2) & 1);
  return channel * 8 + chunk * 4 + (tile_in_group & 3);
}

}  // namespace vcattn::cuda::sm90
