#include "vcattn/numerics/quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/referee.h"
#include "support/portable_random.h"

namespace vcattn::numerics {
namespace {

using test::float_of;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kFloatMax = std::numeric_limits<float>::max();

// Every positive finite bf16 and the extreme floats.
template <typename Check>
void for_each_amax(const Check& check) {
  for (std::uint32_t high = 0; high < 0x7F80u; ++high) check(float_of(high << 16));
  for (const std::uint32_t bits : {0x0000'0001u, 0x007F'FFFFu, 0x0080'0001u, 0x7F7F'FFFFu}) {
    check(float_of(bits));
  }
}

TEST(Quantizer, ScaleAndInverseAreAlwaysNormal) {
  for (const float largest : {kInt8Max, kE4m3Max}) {
    for_each_amax([&](float amax) {
      const QuantScale s = quant_scale(amax, largest);
      ASSERT_TRUE(std::isnormal(s.scale)) << amax;
      ASSERT_TRUE(std::isnormal(s.inverse)) << amax;
      ASSERT_EQ(s.scale, std::max(amax / largest, FLT_MIN));
      ASSERT_EQ(s.inverse, 1.0f / s.scale);
    });
  }
}

TEST(Quantizer, TheLargestMagnitudeTakesTheLargestCode) {
  for_each_amax([](float amax) {
    if (amax / kE4m3Max < FLT_MIN) return;
    const QuantScale int8 = int8_scale(amax);
    ASSERT_EQ(int8_quantize(amax, int8.inverse), 127);
    ASSERT_EQ(int8_quantize(-amax, int8.inverse), -127);
    const QuantScale e4m3 = e4m3_scale(amax);
    ASSERT_EQ(e4m3_quantize(amax, e4m3.inverse), 0x7E);
    ASSERT_EQ(e4m3_quantize(-amax, e4m3.inverse), 0xFE);
  });
}

TEST(Quantizer, ErrorIsAtMostHalfAStep) {
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    const float amax =
        std::ldexp(1.0f + test::portable_uniform(1, i), static_cast<int>(i % 200) - 100);
    const float x = amax * (2.0f * test::portable_uniform(2, i) - 1.0f);
    const QuantScale int8 = int8_scale(amax);
    const double code = int8_quantize(x, int8.inverse);
    ASSERT_LE(std::abs(code * int8.scale - x), 0.50002 * int8.scale);
    ASSERT_EQ(int8_dequantize(static_cast<std::int8_t>(code), int8.scale),
              static_cast<float>(code * int8.scale));

    const QuantScale e4m3 = e4m3_scale(amax);
    const std::uint8_t byte = e4m3_quantize(x, e4m3.inverse);
    const double step = std::max(std::abs(static_cast<double>(x)) * 0x1p-4, e4m3.scale * 0x1p-10);
    ASSERT_LE(std::abs(static_cast<double>(e4m3_dequantize(byte, e4m3.scale)) - x), step * 1.00001);
  }
}

TEST(Quantizer, Int8CodeIsTheRoundedProduct) {
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    const float inverse = 40.0f + test::portable_uniform(3, i);
    const float x = test::portable_normal(4, i);
    const float product = x * inverse;
    const double expected = std::clamp(std::nearbyint(static_cast<double>(product)), -127.0, 127.0);
    ASSERT_EQ(int8_quantize(x, inverse), expected);
  }
  EXPECT_EQ(int8_quantize(2.5f, 1.0f), 2);  // ties to even
  EXPECT_EQ(int8_quantize(-3.5f, 1.0f), -4);
  EXPECT_EQ(int8_quantize(1e30f, 1.0f), 127);
  EXPECT_EQ(int8_quantize(-kInf, 1.0f), -127);
}

TEST(Quantizer, ZeroGroupHasZeroCodesAndAUsableScale) {
  for (const QuantScale s : {int8_scale(0.0f), e4m3_scale(0.0f)}) {
    EXPECT_EQ(s.scale, FLT_MIN);
    EXPECT_TRUE(std::isnormal(s.inverse));
    EXPECT_EQ(int8_quantize(0.0f, s.inverse), 0);
    EXPECT_EQ(e4m3_quantize(0.0f, s.inverse), 0);
    EXPECT_EQ(e4m3_decode(e4m3_quantize(-0.0f, s.inverse)), 0.0f);
  }
}

TEST(Quantizer, TinyGroupsGiveNeitherInfinityNorNan) {
  for (const float amax : {float_of(1), 1e-42f, 0x1p-126f, 0x1p-120f}) {
    const QuantScale s = e4m3_scale(amax);
    EXPECT_NE(e4m3_quantize(amax, s.inverse) & 0x7F, 0x7F);
    EXPECT_LE(e4m3_dequantize(e4m3_quantize(amax, s.inverse), s.scale), 2.0f * amax);
    EXPECT_LE(std::abs(int8_quantize(amax, int8_scale(amax).inverse)), 127);
  }
}

TEST(Quantizer, NanAndInfinityPoisonTheScaleNotTheCodes) {
  for (const float amax : {kInf, std::nanf("")}) {
    for (const QuantScale s : {int8_scale(amax), e4m3_scale(amax)}) {
      EXPECT_TRUE(std::isnan(s.scale));
      EXPECT_EQ(s.inverse, 0.0f);
      for (const float x : {1.0f, -kFloatMax, kInf, -kInf, std::nanf("")}) {
        EXPECT_EQ(int8_quantize(x, s.inverse), 0);
        EXPECT_EQ(e4m3_decode(e4m3_quantize(x, s.inverse)), 0.0f);
        EXPECT_TRUE(std::isnan(int8_dequantize(int8_quantize(x, s.inverse), s.scale)));
        EXPECT_TRUE(std::isnan(e4m3_dequantize(e4m3_quantize(x, s.inverse), s.scale)));
      }
    }
  }
}

}  // namespace
}  // namespace vcattn::numerics
