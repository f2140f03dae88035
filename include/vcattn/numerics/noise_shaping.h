// Noise-shaped rounding of the rows of Q and K: rounding errors are moved to where the other
// operand is small.
//
// An error dk of a key matters only through q . dk, that is through H = the mean of q q^T. Channels
// are rounded from the last to the first, and the error of each is handed on to those that are not
// rounded yet, by the factors that leave least of dk^T H dk: the regression of this channel of q on
// them (GPTQ, arXiv 2210.17323, without its inverse). For queries the same with H of the keys.
//
//   y_c = x_c * inverse scale of the row                  one rounding
//   t_c = y_c + (S * scale_c) * unit,  S = sum over i > c of E_i F_ic
//   z_c = t_c rounded to the format, saturating; its code is that of t_c
//   E_c = clip[-127, 127](RNE((t_c - z_c) / unit))
//
// F_ic * scale_c are the factors, INT8 with one scale per channel, and E the errors in INT8: S is
// exact in any order of summation, so that every backend gets the same codes. What the eight bits
// lose is some per cent of an error whose compensation halves it.
//
// Factors, from G = H over its trace (zeros if that is zero or not finite):
//   A = G, plus kShapingDamping / n on the diagonal, n x n
//   for k = 0 .. n - 1, for every row i > k:
//     l = A_ik / A_kk, A_ij = fma(-l, A_kj, A_ij) for every j != k, A_ik = -l
//   factor of channel i on c < i: -A_ic (what Gaussian elimination leaves below the diagonal is the
//   inverse of its unit triangular factor)
#pragma once

#include "vcattn/numerics/quantizer.h"

namespace vcattn::numerics {

constexpr float kShapingDamping = 0.01f;  // of the mean of the diagonal

// The unit of E for INT8 codes, whose errors are at most 1/2 unless they saturate.
constexpr float kShapingUnitInt8 = 0.0078125f;  // 2^-7

// The unit of E for a row of E4M3 codes with largest magnitude `largest` before shaping, saturation
// and subnormals included: 2^-10 of its power of two, of which an error is at most 2^-4.
VCATTN_HD float shaping_unit_e4m3(float largest) {
  const auto biased = static_cast<std::int32_t>((float_bits(largest) & kFloatAbsMask) >> 23);
  const std::int32_t exponent = biased - 127;
  return exp2_int((exponent < -6 ? -6 : exponent > 8 ? 8 : exponent) - 10);
}

// t of a channel; `sum` is S, a whole number below 2^21.
VCATTN_HD float shaping_target(float y, float sum, float scale, float unit) {
  return fma_rn(mul_rn(sum, scale), unit, y);
}

// E of a channel; `units` is 1 / unit. NaN gives 0; a row with one is NaN, whatever its codes.
VCATTN_HD std::int8_t shaping_error(float t, float z, float units) {
  return int8_quantize(sub_rn(t, z), units);
}

}  // namespace vcattn::numerics
