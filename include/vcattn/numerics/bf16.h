// bfloat16: 1 sign, 8 exponent and 7 mantissa bits; the top half of a float.
#pragma once

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr std::uint16_t kBf16Nan = 0x7FFF;     // what PTX cvt.rn.bf16.f32 gives for every NaN
constexpr float kBf16Max = 3.38953138925e38f;  // 0x7F7F, (2 - 2^-7) * 2^127

// Float of a bf16. Exact for every pattern, NaN payload kept.
VCATTN_HD float bf16_to_float(std::uint16_t h) {
  return bits_float(static_cast<std::uint32_t>(h) << 16);
}

// Nearest bf16, ties to even; subnormals kept; beyond the largest finite value plus half a ulp it
// is infinity (IEEE). Every NaN becomes kBf16Nan. Bit-equal to PTX cvt.rn.bf16.f32.
VCATTN_HD std::uint16_t bf16_from_float(float x) {
  const std::uint32_t bits = float_bits(x);
  const std::uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  return is_nan(x) ? kBf16Nan : static_cast<std::uint16_t>(rounded >> 16);
}

// x rounded to the nearest bf16 and returned as a float.
VCATTN_HD float bf16_round(float x) { return bf16_to_float(bf16_from_float(x)); }

// As bf16_from_float, but a finite x never becomes infinite: it saturates at +-kBf16Max.
VCATTN_HD std::uint16_t bf16_from_float_satfinite(float x) {
  return bf16_from_float(is_finite(x) ? clip(x, -kBf16Max, kBf16Max) : x);
}

}  // namespace vcattn::numerics
