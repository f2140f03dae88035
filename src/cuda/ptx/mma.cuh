// Warp-wide matrix instructions: mma.sync, ldmatrix, stmatrix (PTX ISA 9.7.14.5). Synchronous: the
// registers are ordinary ones. lane = 4g + t (g = lane / 4, t = lane mod 4).
#pragma once

#include "memory.cuh"
#include "target.cuh"

VC_PTX_BEGIN

// m16n8k32, 8-bit: A 16 x 32 (row), B 32 x 8 (column), C 16 x 8. m16n8k16, 16-bit: k halves.
//
//                  8-bit                16-bit
//   a[0] row g     k = 4t .. 4t+3       k = 2t, 2t+1         c[0], c[1] row g    columns 2t, 2t+1
//   a[1] row g+8   the same             the same             c[2], c[3] row g+8  the same
//   a[2] row g     k = 16+4t .. +3      k = 8+2t, 8+2t+1
//   a[3] row g+8   the same             the same
//   b[0] column g  k = 4t .. 4t+3       k = 2t, 2t+1
//   b[1] column g  k = 16+4t .. +3      k = 8+2t, 8+2t+1
VC_DEVICE void mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2] VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emu::mma_sync(emu::Element::kS8, c, a, b, where);
#endif
}

VC_DEVICE void mma_e4m3(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2] VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emu::mma_sync(emu::Element::kE4M3, c, a, b, where);
#endif
}

VC_DEVICE void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2] VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emu::mma_sync(emu::Element::kF16, c, a, b, where);
#endif
}

VC_DEVICE void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2] VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emu::mma_sync(emu::Element::kBF16, c, a, b, where);
#endif
}

// tf32: A 16 x 8, B 8 x 8. a[0] (g, t), a[1] (g+8, t), a[2] (g, t+4), a[3] (g+8, t+4); b[0] (t, g),
// b[1] (t+4, g).
VC_DEVICE void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2] VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emu::mma_sync(emu::Element::kTF32, c, a, b, where);
#endif
}

// ldmatrix: kN 8 x 8 matrices of 16-bit elements. Lane 8i + j gives the address of row j of matrix
// i (16 bytes, aligned to 16; lanes beyond 8 * kN are ignored). Register i of lane 4g + t: row g,
// elements 2t and 2t + 1 of matrix i; transposed: elements (2t, g) and (2t + 1, g).
template <bool kTranspose, int kN>
VC_DEVICE void ldmatrix(uint32_t (&r)[kN], const void* row VC_WHERE) {
  static_assert(kN == 1 || kN == 2 || kN == 4);
#if VC_ON_DEVICE
  const uint32_t p = shared_address(row);
  if constexpr (kN == 4 && !kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
  } else if constexpr (kN == 4) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
  } else if constexpr (kN == 2 && !kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(p)
                 : "memory");
  } else if constexpr (kN == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(p)
                 : "memory");
  } else if constexpr (!kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(p)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(p)
                 : "memory");
  }
#else
  emu::ldmatrix(r, kN, kTranspose, row, where);
#endif
}

// stmatrix: the inverse of ldmatrix.
template <bool kTranspose, int kN>
VC_DEVICE void stmatrix(void* row, const uint32_t (&r)[kN] VC_WHERE) {
  static_assert(kN == 1 || kN == 2 || kN == 4);
#if VC_ON_DEVICE
  const uint32_t p = shared_address(row);
  if constexpr (kN == 4 && !kTranspose) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(p),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  } else if constexpr (kN == 4) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(p),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  } else if constexpr (kN == 2 && !kTranspose) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(p), "r"(r[0]),
                 "r"(r[1])
                 : "memory");
  } else if constexpr (kN == 2) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(p),
                 "r"(r[0]), "r"(r[1])
                 : "memory");
  } else if constexpr (!kTranspose) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(p), "r"(r[0])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(p), "r"(r[0])
                 : "memory");
  }
#else
  emu::stmatrix(r, kN, kTranspose, row, where);
#endif
}

VC_PTX_END
