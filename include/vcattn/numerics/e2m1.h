// FP4 E2M1 (OCP MX): 1 sign, 2 exponent and 1 mantissa bit. Codes 0..7 are 0, .5, 1, 1.5, 2, 3, 4,
// 6; adding 8 negates. There is neither infinity nor NaN.
#pragma once

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr float kE2m1Max = 6.0f;
constexpr std::uint8_t kE2m1MaxCode = 0x7;

// Float of an E2M1 code; only the low four bits are read. Exact for all 16.
VCATTN_HD float e2m1_decode(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8u) << 28;
  const std::uint32_t magnitude = code & 0x7u;
  // Codes 0 and 1 are zero and the only subnormal (0.5); the others are a float with a one-bit
  // mantissa.
  const float normal = bits_float((magnitude << 22) + (126u << 23));
  const float value = magnitude < 2u ? mul_rn(static_cast<float>(magnitude), 0.5f) : normal;
  return bits_float(float_bits(value) | sign);
}

// Nearest E2M1 code, ties to even code, saturating at +-6 (infinities too); the sign of zero and of
// what underflows is kept (0x8). NaN gives +6 (0x7), there being nothing better: callers carry NaN
// in the scale. Exact; bit-equal to PTX cvt.rn.satfinite.e2m1x2.f32.
VCATTN_HD std::uint8_t e2m1_encode(float x) {
  if (is_nan(x)) return kE2m1MaxCode;
  const std::uint32_t sign = (float_bits(x) >> 28) & 0x8u;
  const float a = abs_bits(x);
  // One comparison per boundary; a tie belongs to the even neighbour, hence > and >= in turn.
  std::uint32_t code = 0;
  code += a > 0.25f ? 1u : 0u;
  code += a >= 0.75f ? 1u : 0u;
  code += a > 1.25f ? 1u : 0u;
  code += a >= 1.75f ? 1u : 0u;
  code += a > 2.5f ? 1u : 0u;
  code += a >= 3.5f ? 1u : 0u;
  code += a > 5.0f ? 1u : 0u;
  return static_cast<std::uint8_t>(sign | code);
}

// Two codes in a byte: the element of lower index in the low nibble (the order MMA operands use).
VCATTN_HD std::uint8_t e2m1_pack(std::uint8_t even_code, std::uint8_t odd_code) {
  return static_cast<std::uint8_t>((even_code & 0xFu) | ((odd_code & 0xFu) << 4));
}

VCATTN_HD std::uint8_t e2m1_unpack_even(std::uint8_t packed) {
  return static_cast<std::uint8_t>(packed & 0xFu);
}

VCATTN_HD std::uint8_t e2m1_unpack_odd(std::uint8_t packed) {
  return static_cast<std::uint8_t>(packed >> 4);
}

}  // namespace vcattn::numerics
