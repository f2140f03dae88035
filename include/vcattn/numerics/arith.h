// Exactly specified scalar arithmetic, the only file of numerics/ that knows whether it is compiled
// for the host or for the device. Every other header is written in terms of these functions, which
// is what makes the CPU backend and the kernels agree bit for bit: a plain `a * b + c` may be fused
// by one compiler and not by another, `fma_rn` / `mul_rn` + `add_rn` may not.
//
// Host requirements: -ffp-contract=off, no fast-math, default rounding mode, subnormals not
// flushed. Device requirements: no --use_fast_math (it would flush subnormals).
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__CUDACC__)
#define VCATTN_HD __host__ __device__ __forceinline__
#else
#define VCATTN_HD inline
#endif

namespace vcattn::numerics {

// Bit patterns used throughout. The NaN is the one PTX conversions produce.
constexpr std::uint32_t kFloatSignMask = 0x8000'0000u;
constexpr std::uint32_t kFloatAbsMask = 0x7FFF'FFFFu;
constexpr std::uint32_t kFloatInfBits = 0x7F80'0000u;
constexpr std::uint32_t kFloatNanBits = 0x7FFF'FFFFu;

// Bits of a float. Exact, NaN payload kept.
VCATTN_HD std::uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

// Float with the given bits. Exact.
VCATTN_HD float bits_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

// a * b + c, rounded once (RNE). Exact to the IEEE definition, subnormals kept.
VCATTN_HD float fma_rn(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// a * b, a + b, a - b, a / b: each rounded once (RNE) and never fused with a neighbour.
VCATTN_HD float mul_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

VCATTN_HD float add_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

VCATTN_HD float sub_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}

VCATTN_HD float div_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// The NaN that results documented here as "NaN" carry.
VCATTN_HD float quiet_nan() { return bits_float(kFloatNanBits); }

VCATTN_HD float infinity() { return bits_float(kFloatInfBits); }

// True for every NaN. Written on bits so that no compiler option can fold it away.
VCATTN_HD bool is_nan(float x) { return (float_bits(x) & kFloatAbsMask) > kFloatInfBits; }

// True unless x is an infinity or a NaN.
VCATTN_HD bool is_finite(float x) { return (float_bits(x) & kFloatAbsMask) < kFloatInfBits; }

// |x|. Exact; clears the sign of a NaN as well.
VCATTN_HD float abs_bits(float x) { return bits_float(float_bits(x) & kFloatAbsMask); }

// max(running, |x|) where a NaN, once seen, wins over everything including infinity. Exact, and
// independent of the order of reduction: the comparison is of integers, because the bits of
// non-negative floats order as the floats do, with NaNs above infinity. `running` must be the
// result of an earlier call or +0. On the device the same maximum may be taken by atomicMax on
// unsigned.
VCATTN_HD float abs_max(float running, float x) {
  const std::uint32_t a = float_bits(running);
  const std::uint32_t b = float_bits(x) & kFloatAbsMask;
  return bits_float(a > b ? a : b);
}

// max(a, b) and min(a, b); NaN if either is NaN (fmaxf and std::max would drop it). Of -0 and +0
// either may be returned.
VCATTN_HD float max_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return (a > b || is_nan(a)) ? a : b;
#endif
}

VCATTN_HD float min_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return (a < b || is_nan(a)) ? a : b;
#endif
}

// x clipped to [lo, hi]; NaN stays NaN.
VCATTN_HD float clip(float x, float lo, float hi) {
  const float above = x < lo ? lo : x;
  return above > hi ? hi : above;
}

// x rounded to an integer, ties to even, as a float. Exact; infinities and NaN are returned
// unchanged; the sign of a zero result is that of x. |x| < 2^23: adding 2^23 leaves no fraction
// bits, so the addition itself rounds; larger values are integers.
VCATTN_HD float rne(float x) {
  constexpr float kTwo23 = 8388608.0f;
  const float magnitude = abs_bits(x);
  const float rounded = sub_rn(add_rn(magnitude, kTwo23), kTwo23);
  const float chosen = magnitude < kTwo23 ? rounded : magnitude;
  const float with_sign = bits_float(float_bits(chosen) | (float_bits(x) & kFloatSignMask));
  return is_nan(x) ? x : with_sign;
}

// x rounded to the nearest integer, ties to even, saturating at the ends of int32; NaN gives 0.
// Exact; the same as PTX cvt.rni.s32.f32.
VCATTN_HD std::int32_t rne_i32(float x) {
#if defined(__CUDA_ARCH__)
  return __float2int_rn(x);
#else
  constexpr float kTwo31 = 2147483648.0f;
  if (is_nan(x)) return 0;
  if (x >= kTwo31) return std::numeric_limits<std::int32_t>::max();
  if (x < -kTwo31) return std::numeric_limits<std::int32_t>::min();
  return static_cast<std::int32_t>(rne(x));
#endif
}

// rne_i32(x) clipped to [lo, hi], with |lo|, |hi| < 2^24 so that both are exact floats. NaN gives
// nan_code. Clipping before or after rounding is the same because the ends are integers.
VCATTN_HD std::int32_t rne_clip_i32(float x, std::int32_t lo, std::int32_t hi,
                                    std::int32_t nan_code) {
  if (is_nan(x)) return nan_code;
  return static_cast<std::int32_t>(rne(clip(x, static_cast<float>(lo), static_cast<float>(hi))));
}

// 2^n for n in [-126, 127]. Exact.
VCATTN_HD float exp2_int(std::int32_t n) {
  return bits_float(static_cast<std::uint32_t>(n + 127) << 23);
}

}  // namespace vcattn::numerics
