// E4M3 scores to ExpCast codes in half precision, the way the fast FP8 kernel does it: the score
// product accumulates in binary16, and Q and K are scaled so that a score is already in codes (1/8
// octave).
//
// In a tile of 128 keys, with m = max(0, largest s) of the tile or of the row so far (the recipe's
// p_reference; the kernel's is the latter),
//
//   offset = f16(126/128 - m (1 + 2^-10) / 128)  one fma, one rounding
//   y = clip[0, 1](f16(s / 128 + offset))        one fma, one rounding
//   code = RNE(128 y)
//   value of the key = decoded code * 2^(-16 offset)
//
// The factor is taken from the rounded offset, so that its rounding costs nothing; the 2^-10 keeps
// the code of m itself at or below 126 where the spacing of offsets exceeds a code (from 4,096
// codes, 355 nats; a code of 128 would be the byte of -0). The largest key
// of a head becomes code value 16; queries are then around 1 for scores of a few nats, well inside
// E4M3's normal range, and what underflows is worth less than a tenth of a code. (The floor of m at
// 0: see score_window.h.)
#pragma once

#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/f16.h"
#include "vcattn/numerics/quantizer.h"

namespace vcattn::numerics {

constexpr float kScoreHalfLargestKey = 16.0f;
constexpr float kScoreHalfSlope = 0.0078125f;                     // 1 / 128: y per code
constexpr float kScoreHalfTop = 0.984375f;                        // y of code 126
constexpr float kScoreHalfReferenceSlope = 0.00782012939453125f;  // (1 + 2^-10) / 128, a binary16

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

// What is added to s / 128 in a tile whose reference is m, a binary16. Kernels have m >= 0; below,
// (1 - 2^-10) / 128 keeps the code of m at or below 126.
VCATTN_HD float score_half_offset(float m) {
  const float slope =
      m < 0.0f ? 2.0f * kScoreHalfSlope - kScoreHalfReferenceSlope : kScoreHalfReferenceSlope;
  return f16_round(fma_rn(-m, slope, kScoreHalfTop));
}

// Code of a score s, a binary16 at most the m of `offset`. Hidden keys have -infinity, code 0.
VCATTN_HD std::uint8_t score_half_code(float s, float offset) {
  const float y = clip(f16_round(fma_rn(s, kScoreHalfSlope, offset)), 0.0f, 1.0f);
  return exp_cast_round(mul_rn(y, 128.0f));
}

}  // namespace vcattn::numerics
