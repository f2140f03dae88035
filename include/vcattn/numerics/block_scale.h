// Scales shared by a block of elements: UE4M3 (NVFP4, 16 elements) and UE8M0 (OCP MX, 32 elements),
// and the quantization of one NVFP4 block.
#pragma once

#include "vcattn/numerics/e2m1.h"
#include "vcattn/numerics/e4m3.h"

namespace vcattn::numerics {

constexpr int kNvfp4BlockSize = 16;

// --- UE4M3: E4M3 without its sign --------------------------------------------

constexpr std::uint8_t kUe4m3Nan = kE4m3Nan;
constexpr std::uint8_t kUe4m3One = 0x38;

// Value of a UE4M3 scale; the top bit is ignored. Exact; 0x7F gives NaN.
VCATTN_HD float ue4m3_decode(std::uint8_t code) {
  return e4m3_decode(static_cast<std::uint8_t>(code & 0x7Fu));
}

// Nearest UE4M3 code of |x|, ties to even, saturating at 448; NaN gives 0x7F. Exact.
VCATTN_HD std::uint8_t ue4m3_encode(float x) { return e4m3_encode(abs_bits(x)); }

// --- UE8M0: a power of two, value 2^(code - 127); 0xFF is NaN ----------------

constexpr std::uint8_t kUe8m0Nan = 0xFF;
constexpr std::uint8_t kUe8m0MaxCode = 0xFE;
constexpr std::uint8_t kUe8m0One = 127;

// Value of a UE8M0 scale. Exact (code 0 is the float subnormal 2^-127).
VCATTN_HD float ue8m0_decode(std::uint8_t code) {
  if (code == kUe8m0Nan) return quiet_nan();
  return bits_float(code == 0 ? 0x0040'0000u : static_cast<std::uint32_t>(code) << 23);
}

// Greatest power of two <= |x|, saturating at both ends (0 and below give 2^-127, infinity 2^127);
// NaN gives 0xFF. Exact; PTX cvt.rz.satfinite.ue8m0x2.f32.
VCATTN_HD std::uint8_t ue8m0_encode_down(float x) {
  const std::uint32_t exponent = (float_bits(x) & kFloatAbsMask) >> 23;
  if (is_nan(x)) return kUe8m0Nan;
  return static_cast<std::uint8_t>(exponent > kUe8m0MaxCode ? kUe8m0MaxCode : exponent);
}

// Least power of two >= |x|, saturating at both ends; NaN gives 0xFF. Exact; PTX
// cvt.rp.satfinite.ue8m0x2.f32.
VCATTN_HD std::uint8_t ue8m0_encode_up(float x) {
  if (is_nan(x)) return kUe8m0Nan;
  const std::uint32_t bits = float_bits(x) & kFloatAbsMask;
  if (bits <= 0x0040'0000u) return 0;  // <= 2^-127
  if (bits < 0x0080'0000u) return 1;   // the rest of the subnormals, up to 2^-126
  const std::uint32_t code = (bits >> 23) + ((bits & 0x7F'FFFFu) != 0u ? 1u : 0u);
  return static_cast<std::uint8_t>(code > kUe8m0MaxCode ? kUe8m0MaxCode : code);
}

// Shared scale of an MX block with largest magnitude amax (OCP MX 1.0, section 6.3): 2^(floor(log2
// amax) - max_exponent), where max_exponent is that of the element format (2 for E2M1, 8 for E4M3).
// amax == 0 gives 2^-127; NaN and infinity give 0xFF. Exact for normal amax; a subnormal amax
// counts as 2^-127.
VCATTN_HD std::uint8_t mx_scale(float amax, int max_exponent) {
  if (!is_finite(amax)) return kUe8m0Nan;
  const int code = static_cast<int>(ue8m0_encode_down(amax)) - max_exponent;
  return static_cast<std::uint8_t>(code < 0 ? 0 : code);
}

// --- NVFP4 -------------------------------------------------------------------

// Limits of the tensor scale. Below the first, the smallest block scale times the tensor scale
// would be subnormal and its reciprocal infinite; above the second, the largest decoded value would
// be infinite.
constexpr float kNvfp4MinTensorScale = 6.018531076210112e-36f;  // 2^-117
constexpr float kNvfp4MaxTensorScale = FLT_MAX / (kE4m3Max * kE2m1Max);

// Second-level scale of a tensor with largest magnitude amax: amax / (448 * 6), at least
// kNvfp4MinTensorScale (so amax == 0 is fine); NaN for a NaN or infinite amax. One rounding.
VCATTN_HD float nvfp4_tensor_scale(float amax) {
  if (!is_finite(amax)) return quiet_nan();
  const float scale = div_rn(amax, kE4m3Max * kE2m1Max);
  return scale < kNvfp4MinTensorScale ? kNvfp4MinTensorScale : scale;
}

struct Nvfp4Block {
  std::uint8_t packed[kNvfp4BlockSize / 2];  // element 2i in the low nibble of byte i
  std::uint8_t scale;                        // UE4M3
};

// Scale byte of a block with largest magnitude amax: UE4M3 of amax / 6 / tensor_scale, never zero:
// what would underflow takes 2^-9, so a scale can always be divided by. NaN or infinite amax, or
// NaN tensor scale: 0x7F.
VCATTN_HD std::uint8_t nvfp4_scale_byte(float amax, float tensor_scale) {
  if (!is_finite(amax) || is_nan(tensor_scale)) return kUe4m3Nan;
  const std::uint8_t byte = ue4m3_encode(div_rn(div_rn(amax, kE2m1Max), tensor_scale));
  return byte == 0 ? std::uint8_t{1} : byte;
}

// Reciprocal of ue4m3_decode(scale) * tensor_scale (two roundings); 0 when that is NaN, so that the
// codes of a poisoned block are zeros.
VCATTN_HD float nvfp4_inverse_scale(std::uint8_t scale, float tensor_scale) {
  const float block = mul_rn(ue4m3_decode(scale), tensor_scale);
  return is_nan(block) ? 0.0f : div_rn(1.0f, block);
}

// E2M1 code of one element under an inverse scale; saturates at +-6. NaN (only possible in a block
// whose scale is NaN) gives code 0.
VCATTN_HD std::uint8_t nvfp4_encode(float x, float inverse_scale) {
  const float scaled = mul_rn(x, inverse_scale);
  return is_nan(scaled) ? std::uint8_t{0} : e2m1_encode(scaled);
}

// A block under a given scale byte: codes of x / (scale * tensor_scale).
VCATTN_HD Nvfp4Block encode_nvfp4_block(const float* x, std::uint8_t scale, float tensor_scale) {
  Nvfp4Block block{};
  block.scale = scale;
  const float inverse = nvfp4_inverse_scale(scale, tensor_scale);
  for (int i = 0; i < kNvfp4BlockSize; i += 2) {
    block.packed[i / 2] = e2m1_pack(nvfp4_encode(x[i], inverse), nvfp4_encode(x[i + 1], inverse));
  }
  return block;
}

// Largest magnitude of a block; NaN if there is one.
VCATTN_HD float nvfp4_block_abs_max(const float* x) {
  float amax = 0.0f;
  for (int i = 0; i < kNvfp4BlockSize; ++i) amax = abs_max(amax, x[i]);
  return amax;
}

// Quantizes a block: value ~ e2m1_decode(code) * ue4m3_decode(scale) * tensor_scale.
// tensor_scale lies in [kNvfp4MinTensorScale, kNvfp4MaxTensorScale] or is NaN. Finite input never
// gives NaN whatever its magnitude: amax == 0 gives codes of zeros and scale byte 1; blocks too
// large or too small for the tensor scale saturate or round to zero. A NaN or infinity anywhere
// gives scale byte 0x7F and codes of zeros.
VCATTN_HD Nvfp4Block quantize_nvfp4_block(const float* x, float tensor_scale) {
  const float amax = nvfp4_block_abs_max(x);
  return encode_nvfp4_block(x, nvfp4_scale_byte(amax, tensor_scale), tensor_scale);
}

// Value of element i of a block: e2m1 * (ue4m3 * tensor_scale), two roundings; the first is exact
// when the tensor scale is a power of two.
VCATTN_HD float nvfp4_decode(const Nvfp4Block& block, int i, float tensor_scale) {
  const std::uint8_t packed = block.packed[i / 2];
  const std::uint8_t code = (i % 2) == 0 ? e2m1_unpack_even(packed) : e2m1_unpack_odd(packed);
  return mul_rn(e2m1_decode(code), mul_rn(ue4m3_decode(block.scale), tensor_scale));
}

// Sum of squared errors of a block, in order of the elements; NaN for a poisoned block.
VCATTN_HD float nvfp4_block_error(const float* x, const Nvfp4Block& block, float tensor_scale) {
  float sum = 0.0f;
  for (int i = 0; i < kNvfp4BlockSize; ++i) {
    const float error = sub_rn(nvfp4_decode(block, i, tensor_scale), x[i]);
    sum = fma_rn(error, error, sum);
  }
  return sum;
}

// As quantize_nvfp4_block, with the scale chosen per block: the largest magnitude becomes 6 or 4,
// whichever leaves the smaller squared error (6 on ties). E2M1 has no value between 4 and 6, so a
// block with elements just below its largest does better at 4. Source: "four over six" scale
// selection (arXiv 2512.02010).
VCATTN_HD Nvfp4Block quantize_nvfp4_block_four_six(const float* x, float tensor_scale) {
  const float amax = nvfp4_block_abs_max(x);
  const Nvfp4Block six = quantize_nvfp4_block(x, tensor_scale);
  if (!is_finite(amax)) return six;
  const std::uint8_t scale = nvfp4_scale_byte(mul_rn(amax, 1.5f), tensor_scale);
  const Nvfp4Block four = encode_nvfp4_block(x, scale, tensor_scale);
  const float four_error = nvfp4_block_error(x, four, tensor_scale);
  return four_error < nvfp4_block_error(x, six, tensor_scale) ? four : six;
}

}  // namespace vcattn::numerics
