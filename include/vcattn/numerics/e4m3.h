// FP8 E4M3 (the "fn" variant of OCP FP8): 1 sign, 4 exponent (bias 7) and 3 mantissa bits, no
// infinity. Codes 0x00..0x7E are +0 .. 448 in increasing order, 1..7 subnormal in units of 2^-9;
// 0x7F and 0xFF are NaN.
#pragma once

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr std::uint8_t kE4m3Nan = 0x7F;
constexpr std::uint8_t kE4m3MaxCode = 0x7E;
constexpr std::uint8_t kE4m3MinNormalCode = 0x08;
constexpr float kE4m3Max = 448.0f;
constexpr float kE4m3MinNormal = 0.015625f;        // 2^-6
constexpr float kE4m3MinSubnormal = 0.001953125f;  // 2^-9

// Float of an E4M3 code. Exact for all 256; 0x7F and 0xFF give quiet_nan().
VCATTN_HD float e4m3_decode(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  if (magnitude == kE4m3Nan) return quiet_nan();
  constexpr std::uint32_t kRebias = (127u - 7u) << 23;
  const float normal = bits_float((magnitude << 20) + kRebias);
  const float subnormal = mul_rn(static_cast<float>(magnitude), kE4m3MinSubnormal);
  const float value = magnitude < kE4m3MinNormalCode ? subnormal : normal;
  return bits_float(float_bits(value) | sign);
}

// Nearest E4M3 code, ties to even code, saturating: |x| > 448 and infinities give +-448. -0 is kept
// (0x80), and so is the sign of what underflows; every NaN gives 0x7F. Exact; bit-equal to PTX
// cvt.rn.satfinite.e4m3x2.f32.
VCATTN_HD std::uint8_t e4m3_encode(float x) {
  const std::uint32_t sign = (float_bits(x) >> 24) & 0x80u;
  const std::uint32_t bits = float_bits(x) & kFloatAbsMask;
  if (bits > kFloatInfBits) return kE4m3Nan;
  constexpr std::uint32_t kRebias = (127u - 7u) << 3;
  constexpr std::uint32_t kMinNormalBits = (127u - 6u) << 23;
  std::uint32_t code = ((bits + 0x7'FFFFu + ((bits >> 20) & 1u)) >> 20) - kRebias;
  if (bits < kMinNormalBits) {
    // Adding 2^14, whose ulp is 2^-9 (the subnormal unit), rounds to that unit; the code is what
    // was added.
    code = float_bits(add_rn(bits_float(bits), 16384.0f)) - float_bits(16384.0f);
  }
  code = code > kE4m3MaxCode ? kE4m3MaxCode : code;
  return static_cast<std::uint8_t>(sign | code);
}

// x rounded to the nearest E4M3 value (saturating) and returned as a float.
VCATTN_HD float e4m3_round(float x) { return e4m3_decode(e4m3_encode(x)); }

}  // namespace vcattn::numerics
