// Fixed-point scores of an INT8 product: 16 bits of the S32 accumulator and one float16 multiplier
// per query row, so that a GPU takes two scores from two accumulators with one byte permutation and
// turns both into ExpCast codes with one packed multiplication.
//
// x = floor(acc / 256) is bytes 1 and 2 of the accumulator: |acc| <= 127 * 127 * 256 < 2^22, so
// nothing is lost above. One unit of x is `a` code units (1/8 octave each). The keys of a head
// share one INT8 scale, and each query row's scale is chosen so that its `a` is a float16:
//   a = 256 * codes_per_score * q_scale * k_scale.
// A tile's reference is its largest x, not below 0 (smoothed keys make a row's scores sum to zero),
// and the code of a score is RNE(slope * max(x - m + top, 0)).
#pragma once

#include "vcattn/numerics/exp_cast.h"

namespace vcattn::numerics {

constexpr float kWindowUnit = 256.0f;     // accumulator units per unit of x
constexpr float kWindowMaxTop = 1023.0f;  // x - m + top is added to a float16 magic number
// The least multiplier: at it, code 126 is kWindowMaxTop units above code 0.
constexpr float kWindowMinMultiplier = 126.0f / 1023.0f;

struct ScoreWindow {
  float multiplier;  // a: code units per unit of x
  float slope;       // min(a, 126): what codes are made with; a float16
  float top;         // units between code 0 and the reference, in [1, 1023]
};

// The multiplier of a row whose largest magnitude is to become INT8 127: `wanted` is
// 256 * codes_per_score * k_scale * (amax / 127). It is stretched so that a whole number of units
// fills 126 codes: then the reference always gets code 126, where decoded and exact probability
// differ by the mean of that ratio over an octave, and the largest probability of a tile carries no
// bias (exp_cast.h). A multiple of 2^-11 below 1 and a float16 above; beyond 126 (one unit is then
// more than all codes) it is `wanted` itself, and only the slope enters a float16. NaN and infinity
// give NaN.
VCATTN_HD float window_multiplier(float wanted) {
  constexpr float kTopCode = 126.0f;
  if (!is_finite(wanted)) return quiet_nan();
  if (wanted > kTopCode) return wanted;
  // Truncated, so that the stretched multiplier is not below `wanted`.
  const float most = wanted < kWindowMinMultiplier ? kWindowMaxTop : div_rn(kTopCode, wanted);
  const float top = static_cast<float>(static_cast<std::int32_t>(clip(most, 1.0f, kWindowMaxTop)));
  const float stretched = div_rn(kTopCode, top);
  const float power = bits_float(float_bits(stretched) & kFloatInfBits);
  const float grid = stretched < 1.0f ? 0.00048828125f : mul_rn(power, 0.0009765625f);
  return mul_rn(rne(div_rn(stretched, grid)), grid);
}

// The window of a multiplier. slope * top is 126 up to half a code, so it rounds to 126.
VCATTN_HD ScoreWindow score_window(float multiplier) {
  constexpr float kTopCode = 126.0f;
  const float slope = multiplier < kTopCode ? multiplier : kTopCode;
  return {multiplier, slope, clip(rne(div_rn(kTopCode, slope)), 1.0f, kWindowMaxTop)};
}

// Reciprocal of the row's Q scale under its multiplier: codes are int8_quantize(q, inverse).
VCATTN_HD float window_q_inverse(float multiplier, float codes_per_score, float k_scale) {
  return div_rn(mul_rn(mul_rn(kWindowUnit, codes_per_score), k_scale), multiplier);
}

// Code units between the reference and code 0: slope * top, 126 up to the rounding of the slope.
VCATTN_HD float window_top_code(const ScoreWindow& window) {
  return mul_rn(window.slope, window.top);
}

// x of an accumulator.
VCATTN_HD std::int32_t window_score(std::int32_t accumulator) { return accumulator >> 8; }

// Code of a score x under the tile's reference m, both integers as floats. Exact product (at most
// 21 bits), one rounding to an integer.
VCATTN_HD std::uint8_t window_code(const ScoreWindow& window, float x, float m) {
  const float units = add_rn(sub_rn(x, m), window.top);
  return exp_cast_round(mul_rn(window.slope, units > 0.0f ? units : 0.0f));
}

}  // namespace vcattn::numerics
