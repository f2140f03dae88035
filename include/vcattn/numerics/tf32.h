// tf32: a float of which a matrix unit reads the top 19 bits (1 sign, 8 exponent, 10 mantissa).
#pragma once

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr std::uint32_t kTf32DroppedMask = 0x1FFFu;

// What a tf32 MMA sees of a float nobody rounded: the low 13 bits read as zero (rounding toward
// zero). Exact; a NaN whose payload lies entirely in those bits becomes an infinity, as it does in
// hardware.
VCATTN_HD float tf32_truncate(float x) { return bits_float(float_bits(x) & ~kTf32DroppedMask); }

// Nearest tf32, ties to even; overflows to infinity; NaN becomes quiet_nan() truncated
// (0x7FFFE000).
VCATTN_HD float tf32_round(float x) {
  const std::uint32_t bits = float_bits(x);
  const std::uint32_t rounded = bits + 0xFFFu + ((bits >> 13) & 1u);
  return tf32_truncate(is_nan(x) ? quiet_nan() : bits_float(rounded));
}

// Nearest tf32, ties away from zero: the rounding of PTX cvt.rna.tf32.f32. NaN as in tf32_round.
VCATTN_HD float tf32_round_away(float x) {
  return tf32_truncate(is_nan(x) ? quiet_nan() : bits_float(float_bits(x) + 0x1000u));
}

}  // namespace vcattn::numerics
