// ExpCast-FP8 (arXiv 2609.15810): the E4M3 byte of a probability from its score by one affine map
// and a rounding.
//
// An E4M3 byte read as an integer is, between powers of two, a straight line through 8 log2(value)
// + 56. So with scores in *code units* (1/8 octave: a score in nats times kCodesPerNat) the byte of
// 2^((x - m) / 8) is
//   code = clip[0, 126](RNE(x - m + top + beta))
// where m is the reference (maximum) of the row and `top` the code that a score equal to m
// receives. Read back through e4m3_decode it is 2^((x - m + top + beta - 56) / 8) times a ratio
// between 0.958 and 1.108.
#pragma once

#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/exp_log.h"

namespace vcattn::numerics {

constexpr float kCodesPerOctave = 8.0f;
constexpr float kOctavesPerCode = 0.125f;
constexpr float kCodesPerNat = 11.5415603271117073f;  // 8 log2 e
constexpr float kExpCastBiasCodes = 56.0f;            // code of 1.0: 8 * exponent bias

struct ExpCast {
  float top;   // code of the reference
  float beta;  // offset in codes; a common factor 2^(beta/8), which the row sum divides out
};

// The paper's form: the reference is the running maximum of the row, at code 120 (decoded 256).
constexpr ExpCast kExpCastPaper{120.0f, -0.35f};

// Tile-local form: the reference is the maximum of the row within one tile of keys, never below any
// score of the tile, so the largest finite code is usable: 126 (decoded 448).
constexpr ExpCast kExpCastTileLocal{126.0f, 0.0f};

// Mean over one octave of decoded / 2^((x + top + beta - m - 56) / 8), for a score equidistributed
// modulo an octave:
//   R = sinh(h)/h * (1/8) sum_{j<8} (1 + j/8) 2^(-j/8),  h = ln2 / 16
// where the sum is the piecewise linear decode at the codes and sinh(h)/h comes from rounding to a
// code. It does not depend on beta or top: they shift by a fraction of a code what is uniform
// anyway. Without rounding the mean of (1 + f) 2^-f is 1 / (2 ln^2 2) = 1.0406845.
constexpr double kExpCastMeanRatio = 1.0403590409302552;
constexpr float kExpCastLogMeanRatio = 0.03956588523824934f;

// What to add to a score in code units: top + beta - m. A row whose reference is -inf (no key yet)
// has bias -inf, which gives code 0 to every score instead of -inf + inf. NaN stays NaN.
VCATTN_HD float exp_cast_bias(ExpCast cast, float m_codes) {
  if (m_codes == -infinity()) return m_codes;
  return sub_rn(add_rn(cast.top, cast.beta), m_codes);
}

// clip[0, 126](RNE(t)); -inf gives 0. Exact. A non-NaN t never gives 0x7F. NaN gives 0x7F, the E4M3
// NaN: attention over a NaN score has a NaN result, and any other code would turn bad input into a
// plausible picture. Masked keys must therefore be set to -inf, not multiplied away. A kernel whose
// scores are integers cannot see a NaN here; its row and key scales carry it (quantizer.h).
VCATTN_HD std::uint8_t exp_cast_round(float t) {
  return static_cast<std::uint8_t>(rne_clip_i32(t, 0, kE4m3MaxCode, kE4m3Nan));
}

// Code of score x in code units under bias = exp_cast_bias(cast, m): one addition, one rounding to
// an integer.
VCATTN_HD std::uint8_t exp_cast_code(float x_codes, float bias) {
  return exp_cast_round(add_rn(x_codes, bias));
}

// The same from the reference itself: RNE((x - m) + at_reference), where at_reference is the code
// of a score equal to m (top + beta). The difference is exact near the reference however large m
// is, so the reference always gets its code; use this where |m| may exceed 2^20 codes. m is finite.
VCATTN_HD std::uint8_t exp_cast_code_below(float x_codes, float m_codes, float at_reference) {
  return exp_cast_round(add_rn(sub_rn(x_codes, m_codes), at_reference));
}

// Code of a score in any unit: one FMA. slope is in code units per unit of s (kCodesPerNat for
// nats).
VCATTN_HD std::uint8_t exp_cast_code_fma(float s, float slope, float bias) {
  return exp_cast_round(fma_rn(s, slope, bias));
}

// Natural logarithm of the expected decoded value of a score equal to the reference:
//   ln(2) / 8 * (top + beta - 56) + ln R.
// The LSE of a row is m + ln(sum of decoded codes) - this. Error of the result: |ln ratio - ln R|
// <= 0.083 for the worst row (all scores at one fraction of an octave), near zero when scores
// spread over an octave.
VCATTN_HD float exp_cast_log_scale(ExpCast cast) {
  const float codes = sub_rn(add_rn(cast.top, cast.beta), kExpCastBiasCodes);
  return fma_rn(codes, kLn2 * kOctavesPerCode, kExpCastLogMeanRatio);
}

// --- The exact form ----------------------------------------------------------

constexpr float kExpExactReferenceOctaves =
    8.0f;  // a score equal to the reference encodes as 2^8 = 256

// Byte of an exact exponential: encode(2^(octaves + 8)), octaves = score minus reference <= 0. The
// exponential is <= 1 ulp of float (exp2_f32, same bits everywhere), the encoding exact. -inf gives
// 0, NaN 0x7F; more than 0.8 octaves above the reference saturates at 448.
VCATTN_HD std::uint8_t exp_exact_code(float octaves) {
  return e4m3_encode(exp2_f32(add_rn(octaves, kExpExactReferenceOctaves)));
}

// As exp_cast_log_scale: 8 ln 2. (E4M3 rounding of a log-uniform value is biased by less than
// 1e-3.)
VCATTN_HD float exp_exact_log_scale() { return kExpExactReferenceOctaves * kLn2; }

}  // namespace vcattn::numerics
