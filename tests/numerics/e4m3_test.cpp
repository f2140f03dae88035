#include "vcattn/numerics/e4m3.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/referee.h"

namespace vcattn::numerics {
namespace {

using test::bits_of;
using test::e4m3_table;
using test::float_of;
using test::NearestTable;

std::uint8_t expected_code(const NearestTable& table, float x) {
  if (std::isnan(x)) return 0x7F;
  const std::size_t code = table.nearest(std::abs(static_cast<double>(x)));
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 0x80u : 0u));
}

TEST(E4m3, DecodeOfEveryCode) {
  const NearestTable table = e4m3_table();
  ASSERT_EQ(table.value(0x7E), 448.0);
  ASSERT_EQ(table.value(1), std::ldexp(1.0, -9));
  for (unsigned code = 0; code < 256; ++code) {
    const float value = e4m3_decode(static_cast<std::uint8_t>(code));
    if ((code & 0x7Fu) == 0x7F) {
      EXPECT_EQ(bits_of(value), kFloatNanBits);
      continue;
    }
    EXPECT_EQ(std::abs(value), table.value(code & 0x7Fu)) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
}

TEST(E4m3, EncodeInvertsDecode) {
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7Fu) == 0x7F) continue;
    EXPECT_EQ(e4m3_encode(e4m3_decode(static_cast<std::uint8_t>(code))), code);
  }
}

TEST(E4m3, EncodeOfEveryBf16Value) {
  const NearestTable table = e4m3_table();
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    const float x = float_of(high << 16);
    ASSERT_EQ(e4m3_encode(x), expected_code(table, x)) << std::hexfloat << x;
  }
}

// Every decision boundary, and the floats on either side of it: where a tie rule shows.
TEST(E4m3, EncodeAtEveryBoundary) {
  const NearestTable table = e4m3_table();
  for (std::size_t code = 0; code + 1 < table.size(); ++code) {
    const auto middle = static_cast<float>((table.value(code) + table.value(code + 1)) / 2.0);
    for (std::uint32_t bits = bits_of(middle) - 1; bits <= bits_of(middle) + 1; ++bits) {
      for (const float x : {float_of(bits), -float_of(bits)}) {
        EXPECT_EQ(e4m3_encode(x), expected_code(table, x)) << std::hexfloat << x;
      }
    }
    EXPECT_EQ(e4m3_encode(middle) % 2, 0) << "a tie goes to the even code";
  }
}

TEST(E4m3, EncodeOfSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(e4m3_encode(0.0f), 0x00);
  EXPECT_EQ(e4m3_encode(-0.0f), 0x80);
  EXPECT_EQ(e4m3_encode(-1e-30f), 0x80);
  EXPECT_EQ(e4m3_encode(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(e4m3_encode(448.0f), 0x7E);
  EXPECT_EQ(e4m3_encode(464.0f), 0x7E);  // would round to NaN's code without saturation
  EXPECT_EQ(e4m3_encode(480.0f), 0x7E);
  EXPECT_EQ(e4m3_encode(kInf), 0x7E);
  EXPECT_EQ(e4m3_encode(-kInf), 0xFE);
  EXPECT_EQ(e4m3_encode(std::numeric_limits<float>::max()), 0x7E);
  for (const std::uint32_t nan : {0x7F80'0001u, 0x7FC0'0000u, 0xFFFF'FFFFu, 0xFF80'0001u}) {
    EXPECT_EQ(e4m3_encode(float_of(nan)), 0x7F);
  }
}

TEST(E4m3, RoundIsDecodeOfEncode) {
  EXPECT_EQ(e4m3_round(3.3f), 3.25f);
  EXPECT_EQ(e4m3_round(-1000.0f), -448.0f);
  EXPECT_TRUE(std::isnan(e4m3_round(std::nanf(""))));
}

}  // namespace
}  // namespace vcattn::numerics
