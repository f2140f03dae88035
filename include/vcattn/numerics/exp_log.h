// exp2 and exp with the same bits on host and device (they are built from fma_rn and mul_rn alone),
// and log.
#pragma once

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr float kLn2 = 0.693147180559945309f;
constexpr float kLog2E = 1.44269504088896341f;

// p * 2^n for p in [0.5, 2] and n in [-252, 252], rounded once: the first factor keeps p normal, so
// only the second multiplication can round (into the subnormals) or overflow.
VCATTN_HD float scale_exp2(float p, std::int32_t n) {
  const std::int32_t half = n / 2;
  return mul_rn(mul_rn(p, exp2_int(half)), exp2_int(n - half));
}

// 2^x. <= 1 ulp, subnormal results included; exact for integers; -inf and x < -150 give 0, x >= 128
// infinity, NaN gives NaN. Taylor polynomial of degree 7 on [-0.5, 0.5], truncation error 2^-27.
VCATTN_HD float exp2_f32(float x) {
  if (is_nan(x)) return quiet_nan();
  const float clipped = clip(x, -151.0f, 129.0f);
  const float n = rne(clipped);
  const float f = sub_rn(clipped, n);
  float p = 1.52527338e-5f;  // ln(2)^k / k!, k = 7 .. 0
  p = fma_rn(p, f, 1.54035304e-4f);
  p = fma_rn(p, f, 1.33335581e-3f);
  p = fma_rn(p, f, 9.61812911e-3f);
  p = fma_rn(p, f, 5.55041087e-2f);
  p = fma_rn(p, f, 2.40226507e-1f);
  p = fma_rn(p, f, 6.93147181e-1f);
  p = fma_rn(p, f, 1.0f);
  return scale_exp2(p, static_cast<std::int32_t>(n));
}

// e^x. <= 1 ulp, subnormal results included; exactly 1 at 0; -inf gives 0, overflow infinity, NaN
// NaN. x - n ln 2 is taken with ln 2 in two parts (Cody and Waite), then a Taylor polynomial of
// degree 7.
VCATTN_HD float exp_f32(float x) {
  if (is_nan(x)) return quiet_nan();
  const float clipped = clip(x, -104.5f, 89.5f);
  const float n = rne(mul_rn(clipped, kLog2E));
  float r = fma_rn(n, -0.693145751953125f, clipped);  // ln 2 to 16 bits: the product is exact
  r = fma_rn(n, -1.42860682030941723e-6f, r);
  float p = 1.98412698e-4f;  // 1 / k!, k = 7 .. 0
  p = fma_rn(p, r, 1.38888889e-3f);
  p = fma_rn(p, r, 8.33333333e-3f);
  p = fma_rn(p, r, 4.16666667e-2f);
  p = fma_rn(p, r, 1.66666667e-1f);
  p = fma_rn(p, r, 0.5f);
  p = fma_rn(p, r, 1.0f);
  p = fma_rn(p, r, 1.0f);
  return scale_exp2(p, static_cast<std::int32_t>(n));
}

// Natural logarithm by the platform's library: <= 1 ulp on either side, not the same bits on both.
VCATTN_HD float log_f32(float x) {
#if defined(__CUDA_ARCH__)
  return ::logf(x);
#else
  return std::log(x);
#endif
}

}  // namespace vcattn::numerics
