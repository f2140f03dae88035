// Sort keys of the grouping's order: how near centroids are, and where a token lies along the chain
// of clusters.
#pragma once

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

// Lloyd steps of this many tokens or more look at every kFitStride-th only, from token 0: their
// means do not need all, and the final assignment and order take every token.
constexpr int kFitSampleFrom = 16384;
constexpr int kFitStride = 4;

VCATTN_HD int fit_stride(std::int64_t tokens) { return tokens >= kFitSampleFrom ? kFitStride : 1; }

constexpr int kProjectionChannels = 8;  ///< of a row, summed in order before the partial sums meet

// Bits that order as unsigned numbers the way the floats do (-0 below +0), NaNs behind all.
VCATTN_HD std::uint32_t sortable_bits(float x) {
  const std::uint32_t bits = float_bits(x);
  if (is_nan(x)) return 0xFFFF'FFFFu;
  return (bits & kFloatSignMask) != 0 ? ~bits : bits | kFloatSignMask;
}

// Bits that order distances, which are not negative, as signed numbers, NaNs behind infinity and
// equal to each other.
VCATTN_HD std::int32_t distance_bits(float distance) {
  return static_cast<std::int32_t>(is_nan(distance) ? kFloatNanBits
                                                    : float_bits(distance) & kFloatAbsMask);
}

// One step of a squared distance: sum + (a - b)^2, each operation rounded. Channels in order.
VCATTN_HD float add_squared_difference(float sum, float a, float b) {
  const float difference = sub_rn(a, b);
  return add_rn(sum, mul_rn(difference, difference));
}

// One step of a projection: sum + value * direction, each operation rounded. A row's projection is
// the sum of partial ones, each over kProjectionChannels neighbouring channels in order from 0;
// partial sums are added in a butterfly: first neighbours, then pairs of them, and so on.
VCATTN_HD float add_projection(float sum, float value, float direction) {
  return add_rn(sum, mul_rn(value, direction));
}

}  // namespace vcattn::numerics
