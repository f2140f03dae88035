// Two 16-bit lanes in a register, byte permutation and the DPX instructions (PTX ISA 9.7.2
// - 9.7.4, 9.7.1.x; CUDA math API "SIMD" and "DPX"). A packed register is a uint32_t: lane 0 in the
// low half.
#pragma once

#include "target.cuh"

VC_PTX_BEGIN

// Byte i of the result is byte (selector >> 4i) & 7 of {hi, lo} (0-3 from lo, 4-7 from hi). The
// CUDA intrinsic ignores bit 3 of a selector; the sign replication that prmt.b32 has there is not
// offered.
VC_DEVICE uint32_t permute_bytes(uint32_t lo, uint32_t hi, uint32_t selector) {
#if VC_ON_DEVICE
  return __byte_perm(lo, hi, selector);
#else
  return emu::permute_bytes(lo, hi, selector);
#endif
}

// Declares one function of packed or plain integers: the device intrinsic and its meaning in the
// emulator.
#if VC_ON_DEVICE
#define VC_FN1(type, name, device_call) \
  VC_DEVICE type name(type a) { return device_call; }
#define VC_FN2(type, name, device_call) \
  VC_DEVICE type name(type a, type b) { return device_call; }
#define VC_FN3(type, name, device_call) \
  VC_DEVICE type name(type a, type b, type c) { return device_call; }
#else
#define VC_FN1(type, name, device_call) \
  VC_DEVICE type name(type a) { return emu::name(a); }
#define VC_FN2(type, name, device_call) \
  VC_DEVICE type name(type a, type b) { return emu::name(a, b); }
#define VC_FN3(type, name, device_call) \
  VC_DEVICE type name(type a, type b, type c) { return emu::name(a, b, c); }
#endif

// ---- signed 16-bit pairs ----
VC_FN2(uint32_t, max_s16x2, __vmaxs2(a, b))
VC_FN2(uint32_t, min_s16x2, __vmins2(a, b))
VC_FN2(uint32_t, add_s16x2, __vadd2(a, b))                  // wraps
VC_FN2(uint32_t, sub_s16x2, __vsub2(a, b))                  // wraps
VC_FN2(uint32_t, max_s16x2_relu, __vimax_s16x2_relu(a, b))  // max(a, b, 0)
VC_FN3(uint32_t, max3_s16x2, __vimax3_s16x2(a, b, c))       // VIMNMX3
VC_FN3(uint32_t, min3_s16x2, __vimin3_s16x2(a, b, c))
VC_FN3(uint32_t, max3_s16x2_relu, __vimax3_s16x2_relu(a, b, c))  // max(a, b, c, 0)
VC_FN3(uint32_t, add_max_s16x2, __viaddmax_s16x2(a, b, c))       // max(a + b, c), the sum wraps
VC_FN3(uint32_t, add_max_s16x2_relu, __viaddmax_s16x2_relu(a, b, c))  // max(a + b, c, 0), VIADDMNMX
VC_FN3(uint32_t, add_min_s16x2_relu, __viaddmin_s16x2_relu(a, b, c))  // max(min(a + b, c), 0)

// ---- signed 32-bit ----
VC_FN3(int32_t, max3_s32, __vimax3_s32(a, b, c))
VC_FN3(int32_t, min3_s32, __vimin3_s32(a, b, c))
VC_FN3(int32_t, add_max_s32, __viaddmax_s32(a, b, c))
VC_FN3(int32_t, add_max_s32_relu, __viaddmax_s32_relu(a, b, c))
VC_FN3(int32_t, add_min_s32_relu, __viaddmin_s32_relu(a, b, c))
VC_FN2(int32_t, max_s32, max(a, b))
VC_FN2(int32_t, min_s32, min(a, b))
VC_FN1(uint32_t, count_bits, static_cast<uint32_t>(__popc(a)))
VC_FN1(uint32_t, leading_zeros, static_cast<uint32_t>(__clz(static_cast<int>(a))))

// a . b + c of four signed bytes each (dp4a, PTX ISA 9.7.1.23); wraps.
VC_DEVICE int32_t dot4_s8(uint32_t a, uint32_t b, int32_t c) {
#if VC_ON_DEVICE
  return __dp4a(static_cast<int32_t>(a), static_cast<int32_t>(b), c);
#else
  return emu::dot4_s8(a, b, c);
#endif
}

// ---- half-precision pairs, round to nearest even, subnormals kept ----
#undef VC_FN1
#undef VC_FN2
#undef VC_FN3
#if VC_ON_DEVICE
#define VC_HALF2(name, op)                             \
  VC_DEVICE uint32_t name(uint32_t a, uint32_t b) {    \
    uint32_t d;                                        \
    asm(op " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); \
    return d;                                          \
  }
#define VC_HALF3(name, op)                                         \
  VC_DEVICE uint32_t name(uint32_t a, uint32_t b, uint32_t c) {    \
    uint32_t d;                                                    \
    asm(op " %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); \
    return d;                                                      \
  }
#else
#define VC_HALF2(name, op) \
  VC_DEVICE uint32_t name(uint32_t a, uint32_t b) { return emu::name(a, b); }
#define VC_HALF3(name, op) \
  VC_DEVICE uint32_t name(uint32_t a, uint32_t b, uint32_t c) { return emu::name(a, b, c); }
#endif

VC_HALF2(add_f16x2, "add.rn.f16x2")
VC_HALF2(sub_f16x2, "sub.rn.f16x2")
VC_HALF2(mul_f16x2, "mul.rn.f16x2")
VC_HALF2(max_f16x2, "max.f16x2")  // a number wins over NaN; +0 over -0
VC_HALF2(min_f16x2, "min.f16x2")
VC_HALF3(fma_f16x2, "fma.rn.f16x2")
VC_HALF3(fma_sat_f16x2, "fma.rn.sat.f16x2")    // clamped to [0, 1], NaN becomes 0
VC_HALF3(fma_relu_f16x2, "fma.rn.relu.f16x2")  // negative becomes 0, NaN stays (0x7FFF)
#undef VC_HALF2
#undef VC_HALF3

VC_PTX_END
