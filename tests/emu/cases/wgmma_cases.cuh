// wgmma in every shape of the layer, with A in registers and in shared memory, under every swizzle.
#pragma once

#include "case.cuh"

namespace vcattn::crosscheck {

// One row per shape: accumulator type, columns, operand data, and the call.
template <class Word, int kRegisters, int kColumns, Data kOperands, Data kSums, bool kTransposed>
struct Shape {
  using D = ptx::Fragment<Word, kRegisters>;
  static constexpr int kRegs = kRegisters;
  static constexpr int kN = kColumns;
  static constexpr Data kOperand = kOperands;
  static constexpr Data kSum = kSums;
  static constexpr bool kTransposeB = kTransposed;
};

#define VC_SHAPE(name, word, regs, n, operand, sum, transposed, call)                   \
  struct name : Shape<word, regs, n, Data::operand, Data::sum, transposed> {            \
    static constexpr const char* kName = #name;                                         \
    VC_DEVICE static void mma(D& d, ptx::MatrixDescriptor a, ptx::MatrixDescriptor b) { \
      ptx::call(d, a, b, true);                                                         \
    }                                                                                   \
    VC_DEVICE static void mma(D& d, const ptx::Fragment<uint32_t, 16>& a, int step,     \
                              ptx::MatrixDescriptor b) {                                \
      ptx::call(d, a, step, b, true);                                                   \
    }                                                                                   \
  };
VC_SHAPE(S8N64, int32_t, 32, 64, kS8, kS32, false, wgmma_s8)
VC_SHAPE(S8N128, int32_t, 64, 128, kS8, kS32, false, wgmma_s8)
VC_SHAPE(E4m3N64, float, 32, 64, kE4M3, kF32, false, wgmma_e4m3)
VC_SHAPE(E4m3N72, float, 36, 72, kE4M3, kF32, false, wgmma_e4m3)
VC_SHAPE(E4m3N128, float, 64, 128, kE4M3, kF32, false, wgmma_e4m3)
VC_SHAPE(E4m3N136, float, 68, 136, kE4M3, kF32, false, wgmma_e4m3)
VC_SHAPE(E4m3F16N64, uint32_t, 16, 64, kE4M3, kHalfPairs, false, wgmma_e4m3_f16)
VC_SHAPE(E4m3F16N128, uint32_t, 32, 128, kE4M3, kHalfPairs, false, wgmma_e4m3_f16)
VC_SHAPE(Tf32N64, float, 32, 64, kTF32, kF32, false, wgmma_tf32)
VC_SHAPE(Tf32N128, float, 64, 128, kTF32, kF32, false, wgmma_tf32)
VC_SHAPE(Bf16N64, float, 32, 64, kBF16, kF32, false, wgmma_bf16<false>)
VC_SHAPE(Bf16N128, float, 64, 128, kBF16, kF32, false, wgmma_bf16<false>)
VC_SHAPE(Bf16N64T, float, 32, 64, kBF16, kF32, true, wgmma_bf16<true>)
VC_SHAPE(Bf16N128T, float, 64, 128, kBF16, kF32, true, wgmma_bf16<true>)
VC_SHAPE(F16N64, float, 32, 64, kF16, kF32, false, wgmma_f16<false>)
VC_SHAPE(F16N128, float, 64, 128, kF16, kF32, false, wgmma_f16<false>)
VC_SHAPE(F16N64T, float, 32, 64, kF16, kF32, true, wgmma_f16<true>)
VC_SHAPE(F16N128T, float, 64, 128, kF16, kF32, true, wgmma_f16<true>)
#undef VC_SHAPE

// Bytes of one row of an atom, and the k-steps in it; without swizzle two k-steps of core matrices.
VC_CONSTEXPR int row_bytes(ptx::Swizzle s) {
  return s == ptx::Swizzle::kNone ? 64 : 256 >> static_cast<int>(s);
}
VC_CONSTEXPR int k_steps(ptx::Swizzle s) { return row_bytes(s) / 32; }

// Strides of the images that inputs hold: atoms of 8 rows one after another.
VC_CONSTEXPR uint32_t stride_bytes(ptx::Swizzle s) {
  return 8u * static_cast<uint32_t>(row_bytes(s));
}
constexpr uint32_t kCoreMatrix = 128;  // leading stride without swizzle

// MN-major B, 16 k-rows: panels of `row_bytes / 2` columns, each two atoms of 8 k-rows.
VC_CONSTEXPR uint32_t mn_stride(ptx::Swizzle s) {
  return s == ptx::Swizzle::kNone ? 2 * kCoreMatrix : 8u * static_cast<uint32_t>(row_bytes(s));
}
VC_CONSTEXPR uint32_t mn_leading(ptx::Swizzle s) {
  return s == ptx::Swizzle::kNone ? kCoreMatrix : 2 * mn_stride(s);
}

// in[0]: A, as an image of shared memory or as registers (register-major); in[1]: image of B;
// in[2]: initial D.
template <class ShapeOf, ptx::Swizzle kSwizzle, bool kFromRegisters>
struct WgmmaCase : OneBlock {
  static constexpr int kSteps = ShapeOf::kTransposeB ? 1 : k_steps(kSwizzle);
  static constexpr int kWidth = row_bytes(kSwizzle);
  static constexpr int kBytesA = kFromRegisters ? kSteps * 4 * 128 * 4 : 64 * kWidth;
  static constexpr int kBytesB = ShapeOf::kTransposeB ? ShapeOf::kN * 32 : ShapeOf::kN * kWidth;
  static constexpr Input kInputs[3] = {{ShapeOf::kOperand, kBytesA},
                                       {ShapeOf::kOperand, kBytesB},
                                       {ShapeOf::kSum, ShapeOf::kRegs * 128 * 4}};
  static constexpr int kOutputWords = ShapeOf::kRegs * 128;
  static constexpr double kRelative = 0;
  struct SharedStorage {
    alignas(1024) uint8_t a[64 * 128];
    alignas(1024) uint8_t b[136 * 128];
  };

  VC_DEVICE static void copy_in(uint8_t* to, const uint8_t* from, int bytes) {
    for (int i = ptx::thread_index() * 16; i < bytes; i += kThreads * 16) {
      using Chunk = ptx::Vec<uint32_t, 4>;
      ptx::store_shared(to + i, ptx::load_global<Chunk>(from + i));
    }
  }

  VC_DEVICE static ptx::MatrixDescriptor k_major(const uint8_t* tile, int step) {
    const auto d = ptx::make_descriptor(tile, kSwizzle, stride_bytes(kSwizzle), kCoreMatrix);
    const uint32_t bytes = kSwizzle == ptx::Swizzle::kNone ? 2 * kCoreMatrix : 32;
    return ptx::advance(d, bytes * static_cast<uint32_t>(step));
  }

  VC_DEVICE static ptx::MatrixDescriptor b_operand(const SharedStorage& s, int step) {
    if constexpr (ShapeOf::kTransposeB) {
      return ptx::make_descriptor(s.b, kSwizzle, mn_stride(kSwizzle), mn_leading(kSwizzle));
    } else {
      return k_major(s.b, step);
    }
  }

  VC_DEVICE static void run(const Params& p, SharedStorage& s) {
    const int t = ptx::thread_index();
    typename ShapeOf::D d;
    VC_UNROLL
    for (int i = 0; i < ShapeOf::kRegs; ++i) {
      using Word = std::remove_reference_t<decltype(d[0])>;
      d[i] = ptx::bits_as<Word>(word(p.in[2], i * 128 + t));
    }
    ptx::Fragment<uint32_t, 16> a;
    if constexpr (kFromRegisters) {
      VC_UNROLL
      for (int i = 0; i < 4 * kSteps; ++i) a[i] = word(p.in[0], i * 128 + t);
    } else {
      copy_in(s.a, p.in[0], kBytesA);
    }
    copy_in(s.b, p.in[1], kBytesB);
    ptx::fence_proxy_async();
    ptx::block_sync();
    ptx::wgmma_fence();
    VC_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (kFromRegisters) {
        ShapeOf::mma(d, a, step, b_operand(s, step));
      } else {
        ShapeOf::mma(d, k_major(s.a, step), b_operand(s, step));
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d, a);
    VC_UNROLL
    for (int i = 0; i < ShapeOf::kRegs; ++i) put(p.out, i * 128 + t, ptx::bits_as<uint32_t>(d[i]));
  }
};

}  // namespace vcattn::crosscheck
