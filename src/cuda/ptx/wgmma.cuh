// Warpgroup matrix multiply-accumulate, asynchronous: d = a * b (+ d) (PTX ISA 9.7.15,
// wgmma.mma_async).
//
// 128 threads (four consecutive warps, the first a multiple of four) hold a tile of 64 x N
// accumulators. Warp w owns rows 16w..16w+15; lane = 4g + t (g = lane / 4, t = lane mod 4):
//
//   32-bit accumulators, N / 2 registers:
//   d[4j + 0], d[4j + 1]   row 16w + g      columns 8j + 2t, 8j + 2t + 1
//   d[4j + 2], d[4j + 3]   row 16w + g + 8  the same columns
//
//   16-bit accumulators, N / 4 registers:
//   d[2j + 0]   row 16w + g      columns 8j + 2t (low half) and 8j + 2t + 1 (high half)
//   d[2j + 1]   row 16w + g + 8  the same columns
//
// A from registers, one k-step in a[4 * step .. 4 * step + 3]; each register holds consecutive k,
// lowest in the low bits:
//
//                      8-bit, k = 32             16-bit, k = 16           tf32, k = 8
//   a[0] row 16w+g     k = 4t .. 4t+3            k = 2t, 2t+1             k = t
//   a[1] row 16w+g+8   k = 4t .. 4t+3            k = 2t, 2t+1             k = t
//   a[2] row 16w+g     k = 16+4t .. 16+4t+3      k = 8+2t, 8+2t+1         k = t+4
//   a[3] row 16w+g+8   k = 16+4t .. 16+4t+3      k = 8+2t, 8+2t+1         k = t+4
//
// A and B in shared memory: descriptor.cuh. B is N rows (columns of the product) of k elements.
//
// The life of a product. wgmma_fence, if any thread touched the registers since the last one; the
// products; wgmma_commit; wgmma_wait<n>(fragments...), after which the fragments may be touched.
// Until then neither d nor a may be read or written. The warps of a warpgroup complete separately.
#pragma once

#include "descriptor.cuh"
#include "fragment.cuh"
#include "wgmma_asm.cuh"

VC_PTX_BEGIN

// wgmma.fence: registers written before it, to the products after it.
VC_DEVICE void wgmma_fence(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  emu::wgmma_fence(where);
#endif
}

// wgmma.commit_group: the products since the last commit become one group.
VC_DEVICE void wgmma_commit(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  emu::wgmma_commit(where);
#endif
}

// wgmma.wait_group: at most kPending groups are unfinished. `finished` names the fragments whose
// groups are now finished (accumulators and A registers); each gets its register_fence.
template <int kPending, class... Fragments>
VC_DEVICE void wgmma_wait(Fragments&... finished) {
#if VC_ON_DEVICE
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#else
  emu::wgmma_wait(kPending);
#endif
  (register_fence(finished), ...);
}

#if VC_ON_DEVICE
#define VC_BODY_SS(regs, c, op, tail, element, out) VC_WGMMA_SS(regs, c, op, tail)
#define VC_BODY_RS(regs, c, op, tail, element, out) VC_WGMMA_RS(regs, c, op, tail)
#else
#define VC_BODY_SS(regs, c, op, tail, element, out)                                        \
  emu::wgmma_ss({op, emu::Element::element, emu::Accumulate::out, regs, kTransposeB}, d.r, \
                d.state, a.bits, b.bits, accumulate, where)
#define VC_BODY_RS(regs, c, op, tail, element, out)                                        \
  emu::wgmma_rs({op, emu::Element::element, emu::Accumulate::out, regs, kTransposeB}, d.r, \
                d.state, a.r + 4 * step, a.state + 4 * step, b.bits, accumulate, where)
#endif

// One shape: overloads for A in shared memory and A in registers.
#define VC_WGMMA(name, regs, type, c, op, tail, element, out)                             \
  VC_DEVICE void name(Fragment<type, regs>& d, MatrixDescriptor a, MatrixDescriptor b,    \
                      bool accumulate VC_WHERE) {                                         \
    [[maybe_unused]] constexpr bool kTransposeB = false;                                  \
    VC_BODY_SS(regs, c, op, tail, element, out);                                          \
  }                                                                                       \
  template <int kA>                                                                       \
  VC_DEVICE void name(Fragment<type, regs>& d, const Fragment<uint32_t, kA>& a, int step, \
                      MatrixDescriptor b, bool accumulate VC_WHERE) {                     \
    [[maybe_unused]] constexpr bool kTransposeB = false;                                  \
    VC_BODY_RS(regs, c, op, tail, element, out);                                          \
  }

// s8 x s8 -> s32, exact (modulo 2^32). k = 32.
VC_WGMMA(wgmma_s8, 32, int32_t, "r", "m64n64k32.s32.s8.s8", "", kS8, kS32)
VC_WGMMA(wgmma_s8, 64, int32_t, "r", "m64n128k32.s32.s8.s8", "", kS8, kS32)

// e4m3 x e4m3 -> f32. k = 32. The accumulator is not FP32: docs/kernels/emulator.md. The columns
// beyond 64 or 128 are for a block of ones (row sums).
VC_WGMMA(wgmma_e4m3, 32, float, "f", "m64n64k32.f32.e4m3.e4m3", ", 1, 1", kE4M3, kF32)
VC_WGMMA(wgmma_e4m3, 36, float, "f", "m64n72k32.f32.e4m3.e4m3", ", 1, 1", kE4M3, kF32)
VC_WGMMA(wgmma_e4m3, 64, float, "f", "m64n128k32.f32.e4m3.e4m3", ", 1, 1", kE4M3, kF32)
VC_WGMMA(wgmma_e4m3, 68, float, "f", "m64n136k32.f32.e4m3.e4m3", ", 1, 1", kE4M3, kF32)

// e4m3 x e4m3 -> f16, two accumulators to a register. k = 32.
VC_WGMMA(wgmma_e4m3_f16, 16, uint32_t, "r", "m64n64k32.f16.e4m3.e4m3", ", 1, 1", kE4M3, kF16)
VC_WGMMA(wgmma_e4m3_f16, 32, uint32_t, "r", "m64n128k32.f16.e4m3.e4m3", ", 1, 1", kE4M3, kF16)

// tf32 x tf32 -> f32, operands as 32-bit floats whose low 13 bits are ignored. k = 8.
VC_WGMMA(wgmma_tf32, 32, float, "f", "m64n64k8.f32.tf32.tf32", ", 1, 1", kTF32, kF32)
VC_WGMMA(wgmma_tf32, 64, float, "f", "m64n128k8.f32.tf32.tf32", ", 1, 1", kTF32, kF32)
#undef VC_WGMMA

// 16-bit operands. k = 16. kTransposeB: B lies MN-major (its k rows are contiguous along the
// columns of the product, as V is stored in an ordinary attention kernel); A in shared memory is
// K-major.
#define VC_WGMMA16(name, regs, op, element)                                                \
  template <bool kTransposeB>                                                              \
  VC_DEVICE void name(Fragment<float, regs>& d, MatrixDescriptor a, MatrixDescriptor b,    \
                      bool accumulate VC_WHERE) {                                          \
    if constexpr (kTransposeB) {                                                           \
      VC_BODY_SS(regs, "f", op, ", 1, 1, 0, 1", element, kF32);                            \
    } else {                                                                               \
      VC_BODY_SS(regs, "f", op, ", 1, 1, 0, 0", element, kF32);                            \
    }                                                                                      \
  }                                                                                        \
  template <bool kTransposeB, int kA>                                                      \
  VC_DEVICE void name(Fragment<float, regs>& d, const Fragment<uint32_t, kA>& a, int step, \
                      MatrixDescriptor b, bool accumulate VC_WHERE) {                      \
    if constexpr (kTransposeB) {                                                           \
      VC_BODY_RS(regs, "f", op, ", 1, 1, 1", element, kF32);                               \
    } else {                                                                               \
      VC_BODY_RS(regs, "f", op, ", 1, 1, 0", element, kF32);                               \
    }                                                                                      \
  }

VC_WGMMA16(wgmma_bf16, 32, "m64n64k16.f32.bf16.bf16", kBF16)
VC_WGMMA16(wgmma_bf16, 64, "m64n128k16.f32.bf16.bf16", kBF16)
VC_WGMMA16(wgmma_f16, 32, "m64n64k16.f32.f16.f16", kF16)
VC_WGMMA16(wgmma_f16, 64, "m64n128k16.f32.f16.f16", kF16)
#undef VC_WGMMA16
#undef VC_BODY_SS
#undef VC_BODY_RS

VC_PTX_END
