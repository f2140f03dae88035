// Layouts of wgmma: operands are placed by the formulas of the PTX ISA written out here, products
// are small integers that every format holds exactly, and each accumulator register is compared
// with the integer sum.
#include <functional>

#include "cases/wgmma_cases.cuh"
#include "support.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/f16.h"

namespace vcattn::emu::test {
namespace {

using crosscheck::Data;
using ptx::Swizzle;

int element_bytes(Data data) {
  if (data == Data::kTF32) return 4;
  return data == Data::kF16 || data == Data::kBF16 ? 2 : 1;
}

uint32_t encode(Data data, int v) {
  const auto f = static_cast<float>(v);
  switch (data) {
    case Data::kS8:
      return static_cast<uint8_t>(v);
    case Data::kE4M3:
      return numerics::e4m3_encode(f);
    case Data::kF16:
      return numerics::f16_from_float(f);
    case Data::kBF16:
      return numerics::bf16_from_float(f);
    default:
      return ptx::bits_as<uint32_t>(f) | 0x1ABC;  // tf32 ignores the low 13 bits
  }
}

void store(std::vector<uint8_t>& image, size_t at, uint32_t bits, int bytes) {
  ASSERT_LE(at + static_cast<size_t>(bytes), image.size());
  __builtin_memcpy(image.data() + at, &bits, static_cast<size_t>(bytes));
}

// Byte `c` of row r of a K-major tile with atoms of 8 rows of `width` bytes: within an atom the
// 16-byte chunk number is XORed with the row number, its high bits when there are fewer chunks than
// rows.
size_t k_major_place(Swizzle s, int r, int c) {
  const int width = crosscheck::row_bytes(s), group = r / 8, row = r % 8;
  if (s == Swizzle::kNone) {
    return static_cast<size_t>(group * 8 * width + c / 16 * 128 + row * 16 + c % 16);
  }
  const int rows_per_step = 128 / width;
  const int chunk = (c / 16) ^ (row / rows_per_step);
  return static_cast<size_t>((group * 8 + row) * width + chunk * 16 + c % 16);
}

// Element (column n, k) of the 16 k-rows of an MN-major tile.
size_t mn_major_place(Swizzle s, int n, int k) {
  if (s == Swizzle::kNone)
    return static_cast<size_t>(n / 8 * 256 + k / 8 * 128 + k % 8 * 16 + n % 8 * 2);
  const int width = crosscheck::row_bytes(s), columns = width / 2, row = k % 8;
  const int chunk = (n % columns * 2 / 16) ^ (row / (128 / width));
  return static_cast<size_t>(n / columns * 16 * width + k / 8 * 8 * width + row * width +
                             chunk * 16 + n % 8 * 2);
}

template <class ShapeOf, Swizzle kSwizzle, bool kRegisters>
void check_case() {
  using Case = crosscheck::WgmmaCase<ShapeOf, kSwizzle, kRegisters>;
  SCOPED_TRACE(::testing::Message() << ShapeOf::kName << " swizzle " << static_cast<int>(kSwizzle)
                                    << (kRegisters ? " registers" : " shared"));
  const Data data = ShapeOf::kOperand;
  const int size = element_bytes(data), per_step = 32 / size, depth = Case::kSteps * per_step;
  Stream s(17);
  const int limit = data == Data::kS8 ? 128 : 4;
  std::vector<std::vector<int>> a(64, std::vector<int>(depth)),
      b(ShapeOf::kN, std::vector<int>(depth));
  for (auto* m : {&a, &b}) {
    for (auto& row : *m) {
      for (int& v : row) v = s.between(-limit, limit - 1);
    }
  }
  std::vector<uint8_t> a_in(Case::kInputs[0].bytes), b_in(Case::kInputs[1].bytes),
      d_in(Case::kInputs[2].bytes);
  for (int r = 0; r < ShapeOf::kN; ++r) {
    for (int k = 0; k < depth; ++k) {
      const size_t at = ShapeOf::kTransposeB ? mn_major_place(kSwizzle, r, k)
                                             : k_major_place(kSwizzle, r, k * size);
      store(b_in, at, encode(data, b[r][k]), size);
    }
  }
  for (int r = 0; r < 64; ++r) {
    for (int k = 0; k < depth; ++k) {
      if (!kRegisters) {
        store(a_in, k_major_place(kSwizzle, r, k * size), encode(data, a[r][k]), size);
        continue;
      }
      // Row 16w + g (+ 8), bytes 4t .. 4t + 3 of the low or the high half of the k-step.
      const int byte = k * size % 32, step = k * size / 32;
      const int thread = r / 16 * 32 + r % 8 * 4 + byte % 16 / 4, reg = byte / 16 * 2 + r % 16 / 8;
      store(a_in, static_cast<size_t>(((4 * step + reg) * 128 + thread) * 4 + byte % 4),
            encode(data, a[r][k]), size);
    }
  }
  std::vector<uint32_t> out(Case::kOutputWords);
  for (int i = 0; i < ShapeOf::kRegs * 128; ++i) {  // D starts as 3 everywhere
    const uint32_t three = ShapeOf::kSum == Data::kS32   ? 3
                           : ShapeOf::kSum == Data::kF32 ? ptx::bits_as<uint32_t>(3.0f)
                                                         : 0x42004200;
    store(d_in, static_cast<size_t>(4 * i), three, 4);
  }
  run<Case>({{a_in.data(), b_in.data(), d_in.data()}, out.data()}, 3);
  for (int row = 0; row < 64; ++row) {
    for (int n = 0; n < ShapeOf::kN; ++n) {
      int sum = 3;
      for (int k = 0; k < depth; ++k) sum += a[row][k] * b[n][k];
      const int thread = row / 16 * 32 + row % 8 * 4 + n % 8 / 2, high = row % 16 / 8;
      if (ShapeOf::kSum == Data::kHalfPairs) {
        const uint32_t word = out[static_cast<size_t>((n / 8 * 2 + high) * 128 + thread)];
        ASSERT_EQ(numerics::f16_to_float(static_cast<uint16_t>(word >> (16 * (n % 2)))),
                  static_cast<float>(sum));
        continue;
      }
      const uint32_t word = out[static_cast<size_t>((n / 8 * 4 + 2 * high + n % 2) * 128 + thread)];
      const float value = ShapeOf::kSum == Data::kS32
                              ? static_cast<float>(static_cast<int32_t>(word))
                              : ptx::bits_as<float>(word);
      ASSERT_EQ(value, static_cast<float>(sum)) << "row " << row << " column " << n;
    }
  }
}

template <class ShapeOf>
void check_shape() {
  check_case<ShapeOf, Swizzle::k128Bytes, false>();
  check_case<ShapeOf, Swizzle::k128Bytes, true>();
  check_case<ShapeOf, Swizzle::k64Bytes, false>();
  check_case<ShapeOf, Swizzle::k32Bytes, true>();
  check_case<ShapeOf, Swizzle::k32Bytes, false>();
  check_case<ShapeOf, Swizzle::kNone, false>();
  check_case<ShapeOf, Swizzle::kNone, true>();
}

TEST(WgmmaLayout, S8) {
  check_shape<crosscheck::S8N64>();
  check_shape<crosscheck::S8N128>();
}

TEST(WgmmaLayout, E4m3) {
  check_shape<crosscheck::E4m3N64>();
  check_shape<crosscheck::E4m3N72>();
  check_shape<crosscheck::E4m3N128>();
  check_shape<crosscheck::E4m3N136>();
}

TEST(WgmmaLayout, E4m3ToHalf) {
  check_shape<crosscheck::E4m3F16N64>();
  check_shape<crosscheck::E4m3F16N128>();
}

TEST(WgmmaLayout, Tf32) {
  check_shape<crosscheck::Tf32N64>();
  check_shape<crosscheck::Tf32N128>();
}

TEST(WgmmaLayout, SixteenBit) {
  check_shape<crosscheck::Bf16N64>();
  check_shape<crosscheck::Bf16N128>();
  check_shape<crosscheck::F16N64>();
  check_shape<crosscheck::F16N128>();
}

TEST(WgmmaLayout, SixteenBitTransposedB) {
  check_shape<crosscheck::Bf16N64T>();
  check_shape<crosscheck::Bf16N128T>();
  check_shape<crosscheck::F16N64T>();
  check_shape<crosscheck::F16N128T>();
}

}  // namespace
}  // namespace vcattn::emu::test
