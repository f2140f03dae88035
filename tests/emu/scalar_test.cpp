// Packed, DPX, byte and conversion instructions against independent definitions: wide integer
// arithmetic here, and the project's own formats (include/vcattn/numerics), which share no code
// with the emulator.
#include <algorithm>
#include <cmath>
#include <limits>

#include "support.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/f16.h"

namespace vcattn::emu::test {
namespace {

int lane_of(uint32_t v, int i) { return static_cast<int16_t>(v >> (16 * i)); }

uint32_t pair(int lo, int hi) {
  return (static_cast<uint32_t>(lo) & 0xFFFF) | static_cast<uint32_t>(hi) << 16;
}

constexpr int kEdges16[] = {0,   1,     -1,     2,     127,    -128,  255,
                            256, 32767, -32768, 32766, -32767, 12345, -12345};

TEST(Packed, PermuteBytesSelects) {
  EXPECT_EQ(ptx::permute_bytes(0x33221100, 0x77665544, 0x3210), 0x33221100u);
  EXPECT_EQ(ptx::permute_bytes(0x33221100, 0x77665544, 0x7654), 0x77665544u);
  EXPECT_EQ(ptx::permute_bytes(0x33221100, 0x77665544, 0x6420), 0x66442200u);
  EXPECT_EQ(ptx::permute_bytes(0x33221100, 0x77665544, 0x6521), 0x66552211u);
  // Bit 3 of a selector and what lies above the four selectors are ignored.
  EXPECT_EQ(ptx::permute_bytes(0x000080FF, 0x7F000000, 0xF918), 0x7F8080FFu);
  EXPECT_EQ(ptx::permute_bytes(0x33221100, 0x77665544, 0xFFFFECA8), 0x66442200u);
}

TEST(Packed, SixteenBitPairsAtTheEdges) {
  for (const int a : kEdges16) {
    for (const int b : kEdges16) {
      for (const int c : kEdges16) {
        const uint32_t x = pair(a, b), y = pair(b, c), z = pair(c, a);
        for (int i = 0; i < 2; ++i) {
          const int p = lane_of(x, i), q = lane_of(y, i), r = lane_of(z, i);
          const int sum = (p + q + 98304) % 65536 - 32768;
          EXPECT_EQ(lane_of(ptx::max_s16x2(x, y), i), p > q ? p : q);
          EXPECT_EQ(lane_of(ptx::min_s16x2(x, y), i), p < q ? p : q);
          EXPECT_EQ(lane_of(ptx::add_s16x2(x, y), i), sum);
          EXPECT_EQ(lane_of(ptx::sub_s16x2(x, y), i), (p - q + 98304) % 65536 - 32768);
          const int max3 = std::max(std::max(p, q), r);
          EXPECT_EQ(lane_of(ptx::max3_s16x2(x, y, z), i), max3);
          EXPECT_EQ(lane_of(ptx::min3_s16x2(x, y, z), i), std::min(std::min(p, q), r));
          EXPECT_EQ(lane_of(ptx::max3_s16x2_relu(x, y, z), i), std::max(max3, 0));
          EXPECT_EQ(lane_of(ptx::max_s16x2_relu(x, y), i), std::max(std::max(p, q), 0));
          EXPECT_EQ(lane_of(ptx::add_max_s16x2(x, y, z), i), std::max(sum, r));
          EXPECT_EQ(lane_of(ptx::add_max_s16x2_relu(x, y, z), i), std::max(std::max(sum, r), 0));
          EXPECT_EQ(lane_of(ptx::add_min_s16x2_relu(x, y, z), i), std::max(std::min(sum, r), 0));
        }
      }
    }
  }
}

TEST(Packed, ThirtyTwoBitWrapsAndClamps) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max(),
                    kMin = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(ptx::max3_s32(kMin, -5, 7), 7);
  EXPECT_EQ(ptx::min3_s32(kMin, -5, 7), kMin);
  EXPECT_EQ(ptx::add_max_s32(kMax, 1, -3), -3);  // the sum wraps to kMin
  EXPECT_EQ(ptx::add_max_s32_relu(kMax, 1, -3), 0);
  EXPECT_EQ(ptx::add_min_s32_relu(5, 6, 9), 9);
  EXPECT_EQ(ptx::add_min_s32_relu(-5, -6, 9), 0);
  EXPECT_EQ(ptx::dot4_s8(0x80FF7F01u, 0x7F028003u, 5), -128 * 127 - 2 - 127 * 128 + 3 + 5);
  EXPECT_EQ(ptx::dot4_s8(0x7Fu, 2u, kMax), kMin + 253);
  EXPECT_EQ(ptx::count_bits(0xF0F00001u), 9u);
  EXPECT_EQ(ptx::leading_zeros(0), 32u);
  EXPECT_EQ(ptx::leading_zeros(1), 31u);
}

// Exact a * b + c of halves in units of 2^-48, rounded by integer arithmetic.
uint16_t exact_fma(uint16_t a, uint16_t b, uint16_t c) {
  const auto integer = [](uint16_t h) {  // value * 2^24
    const int e = h >> 10 & 31, f = h & 1023;
    const int64_t v = e == 0 ? f : static_cast<int64_t>(1024 + f) << (e - 1);
    return (h & 0x8000) != 0 ? -v : v;
  };
  __extension__ using Wide = __int128;
  const Wide sum =
      static_cast<Wide>(integer(a)) * integer(b) + (static_cast<Wide>(integer(c)) << 24);
  const bool product_negative = ((a ^ b) & 0x8000) != 0;
  if (sum == 0) return product_negative && (c & 0x8000) != 0 ? 0x8000 : 0;
  const int sign = sum < 0 ? 0x8000 : 0;
  Wide m = sum < 0 ? -sum : sum;
  int bits = 0;
  while (m >> bits != 0) ++bits;
  const int drop = std::max(bits - 11, 24);
  const Wide half = static_cast<Wide>(1) << (drop - 1), mask = (static_cast<Wide>(1) << drop) - 1;
  Wide q = m >> drop;
  const Wide rest = m & mask;
  if (rest > half || (rest == half && (q & 1) != 0)) ++q;
  // q counts units of 2^(drop - 48); 2^-24 is the unit of subnormals.
  int exponent = drop - 24 + 1;
  if (q == 2048) q = 1024, ++exponent;
  if (q < 1024) return static_cast<uint16_t>(sign | static_cast<int>(q));
  if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7C00);
  return static_cast<uint16_t>(sign | exponent << 10 | static_cast<int>(q - 1024));
}

TEST(Packed, HalfFmaIsRoundedOnceFromTheExactSum) {
  Stream s(5);
  for (int i = 0; i < 300000; ++i) {
    uint16_t h[3];
    for (uint16_t& x : h) {
      do x = static_cast<uint16_t>(s.u32());
      while ((x & 0x7C00) == 0x7C00);
      if (s.between(0, 3) == 0) x = static_cast<uint16_t>(x & 0x83FF);  // subnormals
    }
    const uint16_t expected = exact_fma(h[0], h[1], h[2]);
    const uint32_t got = ptx::fma_f16x2(pair(h[0], 0x3C00), pair(h[1], 0x4000), pair(h[2], 0));
    ASSERT_EQ(got & 0xFFFF, expected) << std::hex << h[0] << " " << h[1] << " " << h[2];
    ASSERT_EQ(got >> 16, 0x4000u);
    const uint32_t relu = ptx::fma_relu_f16x2(h[0], h[1], h[2]) & 0xFFFF;
    ASSERT_EQ(relu, (expected & 0x8000) != 0 ? 0u : expected);
    const uint32_t sat = ptx::fma_sat_f16x2(h[0], h[1], h[2]) & 0xFFFF;
    ASSERT_EQ(sat, (expected & 0x8000) != 0 ? 0u : std::min<uint32_t>(expected, 0x3C00));
    ASSERT_EQ(ptx::add_f16x2(h[0], h[2]) & 0xFFFF, exact_fma(h[0], 0x3C00, h[2]));
    ASSERT_EQ(ptx::sub_f16x2(h[0], h[2]) & 0xFFFF,
              exact_fma(h[0], 0x3C00, static_cast<uint16_t>(h[2] ^ 0x8000)));
  }
}

TEST(Packed, HalfExtremes) {
  EXPECT_EQ(ptx::max_f16x2(pair(0x7E00, 0x8000), pair(0x3C00, 0x0000)), pair(0x3C00, 0x0000));
  EXPECT_EQ(ptx::min_f16x2(pair(0x7E00, 0x8000), pair(0x3C00, 0x0000)), pair(0x3C00, 0x8000));
  EXPECT_EQ(ptx::fma_sat_f16x2(pair(0x7E00, 0xFC00), 0x3C003C00, 0), 0u);  // NaN and -inf become 0
}

TEST(Convert, HalvesAgreeWithTheProjectsFormat) {
  for (uint32_t h = 0; h < 65536; ++h) {
    if ((h & 0x7FFF) > 0x7C00) continue;
    EXPECT_EQ(ptx::float_from_f16(static_cast<uint16_t>(h)),
              numerics::f16_to_float(static_cast<uint16_t>(h)));
  }
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1021) {
    const float v = ptx::bits_as<float>(static_cast<uint32_t>(bits));
    ASSERT_EQ(ptx::f16_from_float(v), numerics::f16_from_float(v)) << bits;
    ASSERT_EQ(ptx::bf16_from_float(v), numerics::bf16_from_float(v)) << bits;
  }
}

TEST(Convert, E4m3AgreesWithTheProjectsFormat) {
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    const uint32_t halves = ptx::f16x2_from_e4m3x2(static_cast<uint16_t>(code << 8 | code));
    EXPECT_EQ(halves & 0xFFFF, halves >> 16);
    EXPECT_EQ(numerics::f16_to_float(static_cast<uint16_t>(halves)),
              numerics::e4m3_decode(static_cast<uint8_t>(code)));
  }
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 509) {
    const float v = ptx::bits_as<float>(static_cast<uint32_t>(bits));
    const uint16_t got = ptx::e4m3x2_from_floats(v, -v);
    ASSERT_EQ(got & 0x7F, numerics::e4m3_encode(v) & 0x7F) << bits;
    const int sign = std::isnan(v) ? got & 0x80 : numerics::e4m3_encode(v) & 0x80;
    ASSERT_EQ(got & 0x80, sign) << bits;
  }
}

TEST(Convert, PairsPutTheFirstInTheLowHalf) {
  EXPECT_EQ(ptx::f16x2_from_floats(1.0f, 2.0f), 0x40003C00u);
  EXPECT_EQ(ptx::f16x2_from_floats_relu(-1.0f, 2.0f), 0x40000000u);
  EXPECT_EQ(ptx::f16x2_from_floats_relu(NAN, -0.0f), 0x00007FFFu);
  EXPECT_EQ(ptx::bf16x2_from_floats(1.0f, -2.0f), 0xC0003F80u);
  EXPECT_EQ(ptx::e4m3x2_from_floats(1.0f, -448.0f), 0xFE38u);
  EXPECT_EQ(ptx::e4m3x2_from_f16x2(0xC4003C00u), 0xC838u);
}

TEST(Convert, IntegersRoundToEvenAndSaturate) {
  EXPECT_EQ(ptx::int_from_float(2.5f), 2);
  EXPECT_EQ(ptx::int_from_float(-3.5f), -4);
  EXPECT_EQ(ptx::int_from_float(3e9f), 2147483647);
  EXPECT_EQ(ptx::int_from_float(-INFINITY), -2147483647 - 1);
  EXPECT_EQ(ptx::int_from_float(NAN), 0);
  EXPECT_EQ(ptx::pack_s8(200, -200, 0xAABBCCDD), 0xCCDD7F80u);
  EXPECT_EQ(ptx::pack_u8(-1, 300, 0xAABBCCDD), 0xCCDD00FFu);
  EXPECT_EQ(ptx::tf32_from_float(ptx::bits_as<float>(0x3F801000u)),
            0x3F802000u);  // a tie, away from zero
  EXPECT_EQ(ptx::tf32_from_float(ptx::bits_as<float>(0xBF800FFFu)), 0xBF800000u);
}

}  // namespace
}  // namespace vcattn::emu::test
