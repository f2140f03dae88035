// IEEE binary16: 1 sign, 5 exponent and 10 mantissa bits.
#pragma once

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr std::uint16_t kF16Nan = 0x7FFF;  // what PTX cvt.rn.f16.f32 gives for every NaN
constexpr std::uint16_t kF16Inf = 0x7C00;
constexpr float kF16Max = 65504.0f;

// Float of a binary16. Exact, subnormals included; every NaN becomes quiet_nan() (as PTX
// cvt.f32.f16).
VCATTN_HD float f16_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t magnitude = h & 0x7FFFu;
  if (magnitude > kF16Inf) return quiet_nan();
  if (magnitude == kF16Inf) return bits_float(sign | kFloatInfBits);
  if (magnitude >= 0x0400u) {
    constexpr std::uint32_t kRebias = (127u - 15u) << 23;
    return bits_float(sign | ((magnitude << 13) + kRebias));
  }
  constexpr float kSubnormalUnit = 5.9604644775390625e-8f;  // 2^-24
  const float value = mul_rn(static_cast<float>(magnitude), kSubnormalUnit);
  return bits_float(sign | float_bits(value));
}

// Nearest binary16, ties to even; subnormals kept; |x| >= 65520 is infinity (IEEE). Every NaN
// becomes kF16Nan. Bit-equal to PTX cvt.rn.f16.f32, and to F16C except for the payload and sign of
// NaN.
VCATTN_HD std::uint16_t f16_from_float(float x) {
  const std::uint32_t sign = (float_bits(x) & kFloatSignMask) >> 16;
  const std::uint32_t bits = float_bits(x) & kFloatAbsMask;
  if (bits > kFloatInfBits) return kF16Nan;
  constexpr std::uint32_t kOverflow =
      0x477F'F000u;  // 65520: ties away to infinity, its code being even
  if (bits >= kOverflow) return static_cast<std::uint16_t>(sign | kF16Inf);
  constexpr std::uint32_t kMinNormal = (127u - 14u) << 23;
  if (bits >= kMinNormal) {
    constexpr std::uint32_t kRebias = (127u - 15u) << 23;
    const std::uint32_t rounded = bits - kRebias + 0xFFFu + ((bits >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (rounded >> 13));
  }
  // Adding 0.5, whose ulp is 2^-24 (the subnormal unit), rounds to that unit; the code is what was
  // added.
  const std::uint32_t shifted = float_bits(add_rn(bits_float(bits), 0.5f));
  return static_cast<std::uint16_t>(sign | (shifted - float_bits(0.5f)));
}

// x rounded to the nearest binary16 and returned as a float.
VCATTN_HD float f16_round(float x) { return f16_to_float(f16_from_float(x)); }

}  // namespace vcattn::numerics
