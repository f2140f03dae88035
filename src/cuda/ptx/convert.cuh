// Conversions and approximate functions (PTX ISA 9.7.9.21 cvt, 9.7.3.20 ex2).
// Pairs: `lo` goes into the low half, as memory order does.
#pragma once

#include "target.cuh"

VC_PTX_BEGIN

#if VC_ON_DEVICE
#define VC_PAIR(result, constraint, name, op)                      \
  VC_DEVICE result name(float lo, float hi) {                      \
    result d;                                                      \
    asm(op " %0, %1, %2;" : "=" constraint(d) : "f"(hi), "f"(lo)); \
    return d;                                                      \
  }
#define VC_CONVERT(result, rc, name, type, tc, op) \
  VC_DEVICE result name(type a) {                  \
    result d;                                      \
    asm(op " %0, %1;" : "=" rc(d) : tc(a));        \
    return d;                                      \
  }
#else
#define VC_PAIR(result, constraint, name, op) \
  VC_DEVICE result name(float lo, float hi) { return emu::name(lo, hi); }
#define VC_CONVERT(result, rc, name, type, tc, op) \
  VC_DEVICE result name(type a) { return emu::name(a); }
#endif

// ---- two floats to a packed pair ----
VC_PAIR(uint32_t, "r", f16x2_from_floats, "cvt.rn.f16x2.f32")
VC_PAIR(uint32_t, "r", f16x2_from_floats_relu,
        "cvt.rn.relu.f16x2.f32")  // negative becomes +0, NaN 0x7FFF
VC_PAIR(uint32_t, "r", bf16x2_from_floats, "cvt.rn.bf16x2.f32")
// E4M3, saturating at 448; NaN becomes 0x7F. About a third of the rate of the others.
VC_PAIR(uint16_t, "h", e4m3x2_from_floats, "cvt.rn.satfinite.e4m3x2.f32")

VC_CONVERT(uint16_t, "h", e4m3x2_from_f16x2, uint32_t, "r", "cvt.rn.satfinite.e4m3x2.f16x2")
VC_CONVERT(uint32_t, "r", f16x2_from_e4m3x2, uint16_t, "h", "cvt.rn.f16x2.e4m3x2")  // exact

// ---- single values ----
VC_CONVERT(int32_t, "r", int_from_float, float, "f",
           "cvt.rni.s32.f32")  // nearest even, saturating, NaN 0
VC_CONVERT(float, "f", float_from_int, int32_t, "r", "cvt.rn.f32.s32")
VC_CONVERT(uint32_t, "r", tf32_from_float, float, "f",
           "cvt.rna.tf32.f32")  // nearest, ties away from zero
VC_CONVERT(float, "f", float_from_f16, uint16_t, "h", "cvt.f32.f16")
VC_CONVERT(uint16_t, "h", f16_from_float, float, "f", "cvt.rn.f16.f32")
VC_CONVERT(uint16_t, "h", bf16_from_float, float, "f", "cvt.rn.bf16.f32")

// ---- approximations; the emulator returns the correctly rounded value ----
VC_CONVERT(float, "f", exp2_approx, float, "f", "ex2.approx.ftz.f32")  // relative error below 2^-22
VC_CONVERT(float, "f", log2_approx, float, "f",
           "lg2.approx.ftz.f32")  // absolute error below 2^-22 near 1
VC_CONVERT(float, "f", reciprocal_approx, float, "f", "rcp.approx.ftz.f32")  // at most 1 ulp
VC_CONVERT(float, "f", rsqrt_approx, float, "f", "rsqrt.approx.ftz.f32")
#undef VC_PAIR
#undef VC_CONVERT

VC_DEVICE float float_from_bf16(uint16_t a) {
  return bits_as<float>(static_cast<uint32_t>(a) << 16);
}

// cvt.pack.sat.s8.s32.b32: bytes {previous[15:0], sat8(hi), sat8(lo)}: two calls pack four values.
VC_DEVICE uint32_t pack_s8(int32_t hi, int32_t lo, uint32_t previous) {
#if VC_ON_DEVICE
  uint32_t d;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(hi), "r"(lo), "r"(previous));
  return d;
#else
  return emu::pack_s8(hi, lo, previous);
#endif
}

VC_DEVICE uint32_t pack_u8(int32_t hi, int32_t lo, uint32_t previous) {
#if VC_ON_DEVICE
  uint32_t d;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(hi), "r"(lo), "r"(previous));
  return d;
#else
  return emu::pack_u8(hi, lo, previous);
#endif
}

VC_PTX_END
