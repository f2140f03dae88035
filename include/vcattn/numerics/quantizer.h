// Symmetric quantizers with one scale per group (a token, a block, a channel): INT8 for Q and K,
// E4M3 for V.
#pragma once

#include "vcattn/numerics/e4m3.h"

namespace vcattn::numerics {

constexpr float kInt8Max = 127.0f;

// value ~ code * scale; code = round(value * inverse).
struct QuantScale {
  float scale;
  float inverse;
};

// Scale that maps amax, the largest magnitude of the group (by abs_max), onto largest_code.
//   scale   = max(amax / largest_code, FLT_MIN)   one rounding; always normal, so that 1 / scale is
//   finite inverse = 1 / scale                           one rounding; normal for every
//   largest_code >= 4
// amax == 0 therefore gives codes of zeros and no 0/0. NaN or infinite amax gives scale NaN and
// inverse 0: the codes are zeros and everything computed from them and the scale is NaN, in plain
// sight.
VCATTN_HD QuantScale quant_scale(float amax, float largest_code) {
  if (!is_finite(amax)) return {quiet_nan(), 0.0f};
  const float wanted = div_rn(amax, largest_code);
  const float scale = wanted < FLT_MIN ? FLT_MIN : wanted;
  return {scale, div_rn(1.0f, scale)};
}

VCATTN_HD QuantScale int8_scale(float amax) { return quant_scale(amax, kInt8Max); }

VCATTN_HD QuantScale e4m3_scale(float amax) { return quant_scale(amax, kE4m3Max); }

// RNE(x * inverse) clipped to [-127, 127]; one rounding of the product, then an exact one. NaN
// gives 0.
VCATTN_HD std::int8_t int8_quantize(float x, float inverse) {
  return static_cast<std::int8_t>(rne_clip_i32(mul_rn(x, inverse), -127, 127, 0));
}

// code * scale, one rounding.
VCATTN_HD float int8_dequantize(std::int8_t code, float scale) {
  return mul_rn(static_cast<float>(code), scale);
}

// E4M3 code of x * inverse, saturating at +-448. NaN (only possible in a group whose scale is NaN)
// gives code 0, so 0x7F never enters a matrix product from here.
VCATTN_HD std::uint8_t e4m3_quantize(float x, float inverse) {
  const float scaled = mul_rn(x, inverse);
  return is_nan(scaled) ? std::uint8_t{0} : e4m3_encode(scaled);
}

// decoded code * scale, one rounding.
VCATTN_HD float e4m3_dequantize(std::uint8_t code, float scale) {
  return mul_rn(e4m3_decode(code), scale);
}

}  // namespace vcattn::numerics
