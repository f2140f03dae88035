// Warp collectives, mma.sync, ldmatrix and stmatrix.
#pragma once

#include "case.cuh"

namespace vcattn::crosscheck {

struct CollectiveCase : OneBlock {
  static constexpr int kResults = 9;
  static constexpr Input kInputs[3] = {{Data::kBits, 512}, {Data::kBits, 512}, {Data::kBits, 512}};
  static constexpr int kOutputWords = kResults * 128;
  static constexpr double kRelative = 0;
  struct SharedStorage {
    uint32_t none;
  };
  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    const int t = ptx::thread_index();
    const uint32_t v = word(p.in[0], t), w = word(p.in[1], t);
    const auto result = [&](int i, uint32_t r) { put(p.out, i * 128 + t, r); };
    result(0, ptx::shuffle_xor(v, 9));
    result(1, ptx::shuffle(v, static_cast<int>(w & 31)));
    result(2, ptx::shuffle_up(v, 5));
    result(3, ptx::shuffle_down(v, 5));
    result(4, ptx::vote_ballot((w & 1) != 0));
    result(5, ptx::vote_any((w & 0xFF) == 0) ? 1u : 0u);
    result(6, ptx::vote_all((w & 0xFF) != 0) ? 1u : 0u);
    result(7, static_cast<uint32_t>(ptx::warp_add(static_cast<int32_t>(v))));
    result(8, static_cast<uint32_t>(ptx::warp_max(static_cast<int32_t>(v))));
  }
};

// Four warps, each with its own tile. in[0]: A registers, in[1]: B registers, in[2]: C.
template <Data kOperand>
struct MmaCase : OneBlock {
  static constexpr Data kSum = kOperand == Data::kS8 ? Data::kS32 : Data::kF32;
  static constexpr Input kInputs[3] = {{kOperand, 2048}, {kOperand, 1024}, {kSum, 2048}};
  static constexpr int kOutputWords = 512;
  static constexpr double kRelative = 0;
  struct SharedStorage {
    uint32_t none;
  };
  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    const int t = ptx::thread_index();
    uint32_t a[4], b[2];
    using Word = std::conditional_t<kOperand == Data::kS8, int32_t, float>;
    Word c[4];
    VC_UNROLL
    for (int i = 0; i < 4; ++i) {
      a[i] = word(p.in[0], i * 128 + t);
      c[i] = ptx::bits_as<Word>(word(p.in[2], i * 128 + t));
    }
    VC_UNROLL
    for (int i = 0; i < 2; ++i) b[i] = word(p.in[1], i * 128 + t);
    if constexpr (kOperand == Data::kS8) ptx::mma_s8(c, a, b);
    if constexpr (kOperand == Data::kE4M3) ptx::mma_e4m3(c, a, b);
    if constexpr (kOperand == Data::kF16) ptx::mma_f16(c, a, b);
    if constexpr (kOperand == Data::kBF16) ptx::mma_bf16(c, a, b);
    if constexpr (kOperand == Data::kTF32) ptx::mma_tf32(c, a, b);
    VC_UNROLL
    for (int i = 0; i < 4; ++i) put(p.out, i * 128 + t, ptx::bits_as<uint32_t>(c[i]));
  }
};

// in[0]: 512 bytes of matrices per warp. Loads them straight and transposed, stores both back.
template <int kN>
struct MatrixMoveCase : OneBlock {
  static constexpr Input kInputs[3] = {{Data::kBits, 2048}, {Data::kBits, 16}, {Data::kBits, 16}};
  static constexpr int kOutputWords = 2 * kN * 128 + 2 * 512;
  static constexpr double kRelative = 0;
  struct SharedStorage {
    alignas(16) uint32_t from[512];
    alignas(16) uint32_t to[2][512];
  };
  VC_DEVICE static void run(const Params& p, SharedStorage& s) {
    const int t = ptx::thread_index(), warp = ptx::warp_index(), lane = t % 32;
    for (int i = t; i < 512; i += 128) {
      ptx::store_shared(&s.from[i], word(p.in[0], i));
      ptx::store_shared(&s.to[0][i], 0u);
      ptx::store_shared(&s.to[1][i], 0u);
    }
    ptx::block_sync();
    const int row = warp * 128 + lane % (8 * kN) * 4;
    uint32_t straight[kN], turned[kN];
    ptx::ldmatrix<false>(straight, &s.from[row]);
    ptx::ldmatrix<true>(turned, &s.from[row]);
    VC_UNROLL
    for (int i = 0; i < kN; ++i) {
      put(p.out, i * 128 + t, straight[i]);
      put(p.out, (kN + i) * 128 + t, turned[i]);
    }
    ptx::stmatrix<false>(&s.to[0][row], turned);
    ptx::stmatrix<true>(&s.to[1][row], straight);
    ptx::block_sync();
    for (int i = t; i < 512; i += 128) {
      put(p.out, 2 * kN * 128 + i, ptx::load_shared<uint32_t>(&s.to[0][i]));
      put(p.out, 2 * kN * 128 + 512 + i, ptx::load_shared<uint32_t>(&s.to[1][i]));
    }
  }
};

}  // namespace vcattn::crosscheck
