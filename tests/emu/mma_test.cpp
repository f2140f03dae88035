// mma.sync, ldmatrix and stmatrix: small integers, every register compared with its place in the
// tile.
#include "support.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/f16.h"

namespace vcattn::emu::test {
namespace {

template <Element kElement>
struct Multiply : BlockOf<32> {
  struct Params {
    const uint32_t* a;  // 4 registers of 32 lanes
    const uint32_t* b;
    uint32_t* c;
  };
  struct SharedStorage {
    uint32_t none;
  };
  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    const int t = ptx::thread_index();
    uint32_t a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = ptx::load_global<uint32_t>(p.a + i * 32 + t);
    for (int i = 0; i < 2; ++i) b[i] = ptx::load_global<uint32_t>(p.b + i * 32 + t);
    if constexpr (kElement == Element::kS8) {
      int32_t c[4] = {1, 2, 3, 4};
      ptx::mma_s8(c, a, b);
      for (int i = 0; i < 4; ++i) ptx::store_global(p.c + i * 32 + t, c[i]);
    } else {
      float c[4] = {1, 2, 3, 4};
      if constexpr (kElement == Element::kE4M3) ptx::mma_e4m3(c, a, b);
      if constexpr (kElement == Element::kF16) ptx::mma_f16(c, a, b);
      if constexpr (kElement == Element::kBF16) ptx::mma_bf16(c, a, b);
      if constexpr (kElement == Element::kTF32) ptx::mma_tf32(c, a, b);
      for (int i = 0; i < 4; ++i) ptx::store_global(p.c + i * 32 + t, static_cast<int32_t>(c[i]));
    }
  }
};

uint32_t encode(Element e, int v) {
  const auto f = static_cast<float>(v);
  switch (e) {
    case Element::kS8:
      return static_cast<uint8_t>(v);
    case Element::kE4M3:
      return numerics::e4m3_encode(f);
    case Element::kF16:
      return numerics::f16_from_float(f);
    case Element::kBF16:
      return numerics::bf16_from_float(f);
    default:
      return ptx::bits_as<uint32_t>(f);
  }
}

template <Element kElement>
void check_multiply() {
  const int size = kElement == Element::kTF32                                ? 4
                   : kElement == Element::kF16 || kElement == Element::kBF16 ? 2
                                                                             : 1;
  const int depth = 32 / size, per_register = 4 / size;
  Stream s(3);
  std::vector<std::vector<int>> a(16, std::vector<int>(depth)), b(8, std::vector<int>(depth));
  for (auto* m : {&a, &b}) {
    for (auto& row : *m) {
      for (int& v : row) v = s.between(-8, 8);
    }
  }
  std::vector<uint32_t> ra(128), rb(64), rc(128);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      for (int e = 0; e < per_register; ++e) {
        const int k = (i / 2 * 4 + t) * per_register + e;  // second half of k in registers 2 and 3
        ra[i * 32 + lane] |= encode(kElement, a[g + i % 2 * 8][k]) << (8 * size * e);
        if (i < 2)
          rb[i * 32 + lane] |= encode(kElement, b[g][(i * 4 + t) * per_register + e])
                               << (8 * size * e);
      }
    }
  }
  run<Multiply<kElement>>({ra.data(), rb.data(), rc.data()});
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      int sum = i + 1;
      for (int k = 0; k < depth; ++k)
        sum += a[lane / 4 + i / 2 * 8][k] * b[lane % 4 * 2 + i % 2][k];
      EXPECT_EQ(static_cast<int32_t>(rc[i * 32 + lane]), sum) << lane << " " << i;
    }
  }
}

TEST(MmaSync, S8) { check_multiply<Element::kS8>(); }
TEST(MmaSync, E4m3) { check_multiply<Element::kE4M3>(); }
TEST(MmaSync, F16) { check_multiply<Element::kF16>(); }
TEST(MmaSync, Bf16) { check_multiply<Element::kBF16>(); }
TEST(MmaSync, Tf32) { check_multiply<Element::kTF32>(); }

template <bool kTranspose, int kN>
struct Move : BlockOf<32> {
  struct Params {
    uint32_t* loaded;
    uint16_t* stored;
  };
  struct SharedStorage {
    alignas(16) uint16_t from[4 * 64];
    alignas(16) uint16_t to[4 * 64];
  };
  VC_DEVICE static void run(const Params& p, SharedStorage& s) {
    const int t = ptx::thread_index();
    for (int i = t; i < kN * 64; i += 32) ptx::store_shared(&s.from[i], static_cast<uint16_t>(i));
    ptx::warp_sync();
    uint32_t r[kN];
    ptx::ldmatrix<kTranspose>(r, &s.from[t % (8 * kN) * 8]);
    for (int i = 0; i < kN; ++i) ptx::store_global(p.loaded + i * 32 + t, r[i]);
    ptx::stmatrix<kTranspose>(&s.to[t % (8 * kN) * 8], r);
    ptx::warp_sync();
    for (int i = t; i < kN * 64; i += 32)
      ptx::store_global(p.stored + i, ptx::load_shared<uint16_t>(&s.to[i]));
  }
};

template <bool kTranspose, int kN>
void check_move() {
  std::vector<uint32_t> loaded(kN * 32);
  std::vector<uint16_t> stored(kN * 64);
  run<Move<kTranspose, kN>>({loaded.data(), stored.data()});
  for (uint32_t i = 0; i < kN; ++i) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const uint32_t g = lane / 4, t = lane % 4;
      const uint32_t first = kTranspose ? 2 * t * 8 + g : g * 8 + 2 * t,
                     second = first + (kTranspose ? 8 : 1);
      EXPECT_EQ(loaded[i * 32 + lane], (i * 64 + first) | (i * 64 + second) << 16);
    }
  }
  for (uint32_t i = 0; i < kN * 64; ++i) EXPECT_EQ(stored[i], i);
}

TEST(MatrixMove, LoadAndStore) {
  check_move<false, 1>();
  check_move<false, 2>();
  check_move<false, 4>();
  check_move<true, 1>();
  check_move<true, 2>();
  check_move<true, 4>();
}

}  // namespace
}  // namespace vcattn::emu::test
