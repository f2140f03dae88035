// E4M3 scores to ExpCast codes in half precision, the way the fast FP8 kernel does it: the score
// product accumulates in binary16, and Q and K are scaled so that a score is already in codes (1/8
// octave).
//
// In a tile of 128 keys, with m = max(0, largest s),
//
//   offset = f16(126/128 - m / 128)              one fma, one rounding
//   y = clip[0, 1](f16(s / 128 + offset))        one fma, one rounding
//   code = RNE(128 y)
//   value of the key = decoded code * 2^(-16 offset)
//
// The factor is taken from the rounded offset, so that its rounding costs nothing. The largest key
// of a head becomes code value 16; queries are then around 1 for scores of a few nats, well inside
// E4M3's normal range, and what underflows is worth less than a tenth of a code. (The floor of m at
// 0: see score_window.h.)
#pragma once

#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/quantizer.h"

namespace vcattn::numerics {

constexpr float kScoreHalfLargestKey = 16.0f;

VCATTN_HD QuantScale score_half_key_scale(float amax) {
  return quant_scale(amax, kScoreHalfLargestKey);
}

// What a query is multiplied by before it is rounded to E4M3: codes_per_score = softmax scale *
// kCodesPerNat. A row that would leave E4M3's range (products of a single channel beyond 600 nats)
// is shrunk to fit: its softmax is one-hot either way.
VCATTN_HD float score_half_query_factor(float amax, float codes_per_score, float k_scale) {
  const float factor = mul_rn(codes_per_score, k_scale);
  const float largest = mul_rn(amax, factor);
  return largest > kE4m3Max ? mul_rn(factor, div_rn(kE4m3Max, largest)) : factor;
}

}  // namespace vcattn::numerics
