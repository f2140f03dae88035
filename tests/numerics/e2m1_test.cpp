#include "vcattn/numerics/e2m1.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/referee.h"

namespace vcattn::numerics {
namespace {

using test::bits_of;
using test::e2m1_table;
using test::float_of;
using test::NearestTable;

std::uint8_t expected_code(const NearestTable& table, float x) {
  if (std::isnan(x)) return 0x7;
  const std::size_t code = table.nearest(std::abs(static_cast<double>(x)));
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 0x8u : 0u));
}

TEST(E2m1, DecodeOfEveryCode) {
  constexpr float kValues[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (unsigned code = 0; code < 16; ++code) {
    const float value = e2m1_decode(static_cast<std::uint8_t>(code));
    const float sign = code < 8 ? 1.0f : -1.0f;
    EXPECT_EQ(bits_of(value), bits_of(sign * kValues[code & 7u])) << code;
    EXPECT_EQ(bits_of(e2m1_decode(static_cast<std::uint8_t>(code | 0xF0u))), bits_of(value));
    EXPECT_EQ(e2m1_encode(value), code);
  }
}

TEST(E2m1, EncodeOfEveryBf16Value) {
  const NearestTable table = e2m1_table();
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    const float x = float_of(high << 16);
    ASSERT_EQ(e2m1_encode(x), expected_code(table, x)) << std::hexfloat << x;
  }
}

TEST(E2m1, EncodeAtEveryBoundary) {
  const NearestTable table = e2m1_table();
  for (std::size_t code = 0; code + 1 < table.size(); ++code) {
    const auto middle = static_cast<float>((table.value(code) + table.value(code + 1)) / 2.0);
    EXPECT_EQ(e2m1_encode(middle) % 2, 0) << "a tie goes to the even code";
    for (std::uint32_t bits = bits_of(middle) - 1; bits <= bits_of(middle) + 1; ++bits) {
      for (const float x : {float_of(bits), -float_of(bits)}) {
        EXPECT_EQ(e2m1_encode(x), expected_code(table, x)) << std::hexfloat << x;
      }
    }
  }
}

TEST(E2m1, EncodeOfSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(e2m1_encode(-0.0f), 0x8);
  EXPECT_EQ(e2m1_encode(kInf), 0x7);
  EXPECT_EQ(e2m1_encode(-kInf), 0xF);
  EXPECT_EQ(e2m1_encode(-std::nanf("")), 0x7);
}

TEST(E2m1, PackingKeepsBothNibbles) {
  for (unsigned even = 0; even < 16; ++even) {
    for (unsigned odd = 0; odd < 16; ++odd) {
      const std::uint8_t packed =
          e2m1_pack(static_cast<std::uint8_t>(even), static_cast<std::uint8_t>(odd));
      EXPECT_EQ(packed, even + 16 * odd);
      EXPECT_EQ(e2m1_unpack_even(packed), even);
      EXPECT_EQ(e2m1_unpack_odd(packed), odd);
    }
  }
}

}  // namespace
}  // namespace vcattn::numerics
