// E4M3 scores to ExpCast codes in half precision, the way the fast FP8 kernels do it: the score
// product accumulates in binary16 and each row owns a slope.
//
// A score s (binary16, any unit) is worth `multiplier` codes (1/8 octave) per unit; the slope is
// multiplier / 128, a binary16 with all its bits. In a tile of 128 keys, with m = max(0, largest
// s),
//
//   offset = f16(126/128 - m * slope)                 one fma, one rounding
//   y = clip[0, 1](f16(s * slope + offset))           one fma, one rounding
//   code = RNE(128 y)
//   value of the key = decoded code * 2^(-16 offset)
//
// The factor is taken from the rounded offset, so that its rounding costs nothing. Scores cannot
// overflow: |k code| <= 16 and |q code| <= 16, and 16 * 16 * 128 < 65504. (The floor of m at 0: see
// score_window.h.)
#pragma once

#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/f16.h"
#include "vcattn/numerics/quantizer.h"

namespace vcattn::numerics {

constexpr float kScoreHalfLargestCode =
    16.0f;  // what the largest |q| of a row, |k| of a head become
constexpr float kScoreHalfMinMultiplier = 0.0078125f;  // slope 2^-14, the smallest normal
constexpr float kScoreHalfMaxMultiplier = 32768.0f;
constexpr float kScoreHalfTop = 126.0f / 128.0f;

VCATTN_HD QuantScale score_half_key_scale(float amax) {
  return quant_scale(amax, kScoreHalfLargestCode);
}

struct ScoreHalfRow {
  float multiplier;  // codes per unit of s; 11 significant bits
  float inverse;     // E4M3 code = e4m3_quantize(q, inverse)
};

// amax: largest |q| of the row. codes_per_unit: k_scale * softmax scale * kCodesPerNat. NaN or
// infinity in either gives multiplier NaN and codes 0.
VCATTN_HD ScoreHalfRow score_half_row(float amax, float codes_per_unit) {
  if (!is_finite(amax) || !is_finite(codes_per_unit)) return {quiet_nan(), 0.0f};
  const float unit = codes_per_unit < FLT_MIN ? FLT_MIN : codes_per_unit;
  const float wanted = mul_rn(div_rn(amax, kScoreHalfLargestCode), unit);
  const float floored = wanted < kScoreHalfMinMultiplier ? kScoreHalfMinMultiplier : wanted;
  const float rounded = bits_float((float_bits(floored) + 0x1FFFu) & ~0x1FFFu);
  const float multiplier = rounded > kScoreHalfMaxMultiplier ? kScoreHalfMaxMultiplier : rounded;
  return {multiplier, div_rn(unit, wanted > multiplier ? wanted : multiplier)};
}

// The slope of a row, exact.
VCATTN_HD float score_half_slope(float multiplier) { return mul_rn(multiplier, 0.0078125f); }

}  // namespace vcattn::numerics
