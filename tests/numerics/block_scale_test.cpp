#include "vcattn/numerics/block_scale.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "numerics/referee.h"
#include "support/portable_random.h"

namespace vcattn::numerics {
namespace {

using test::bits_of;
using test::float_of;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kFloatMax = std::numeric_limits<float>::max();
using Values = std::array<float, kNvfp4BlockSize>;

TEST(Ue4m3, IsE4m3OfTheMagnitude) {
  const test::NearestTable table = test::e4m3_table();
  for (unsigned code = 0; code < 0x7F; ++code) {
    EXPECT_EQ(ue4m3_decode(static_cast<std::uint8_t>(code)), table.value(code));
    EXPECT_EQ(ue4m3_decode(static_cast<std::uint8_t>(code | 0x80u)), table.value(code));
  }
  EXPECT_TRUE(std::isnan(ue4m3_decode(kUe4m3Nan)));
  EXPECT_EQ(ue4m3_decode(kUe4m3One), 1.0f);
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    const float x = float_of(high << 16);
    const std::size_t expected =
        std::isnan(x) ? 0x7Fu : table.nearest(std::abs(static_cast<double>(x)));
    ASSERT_EQ(ue4m3_encode(x), expected);
  }
}

TEST(Ue8m0, DecodeIsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(ue8m0_decode(static_cast<std::uint8_t>(code)), std::ldexp(1.0f, code - 127));
  }
  EXPECT_TRUE(std::isnan(ue8m0_decode(kUe8m0Nan)));
  EXPECT_EQ(ue8m0_decode(kUe8m0One), 1.0f);
}

TEST(Ue8m0, EncodeBracketsTheMagnitude) {
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x8000u, 0xFFFFu}) {
      const float x = float_of((high << 16) | low);
      if (std::isnan(x)) {
        ASSERT_EQ(ue8m0_encode_down(x), kUe8m0Nan);
        ASSERT_EQ(ue8m0_encode_up(x), kUe8m0Nan);
        continue;
      }
      int down = -127;
      int up = -127;
      if (std::isinf(x)) {
        down = up = 127;
      } else if (x != 0.0f) {
        const double magnitude = std::abs(static_cast<double>(x));
        down = std::max(-127, std::ilogb(magnitude));
        up = std::ilogb(magnitude);
        if (std::ldexp(1.0, up) < magnitude) ++up;
        up = std::min(127, std::max(-127, up));
      }
      ASSERT_EQ(ue8m0_encode_down(x), down + 127) << std::hexfloat << x;
      ASSERT_EQ(ue8m0_encode_up(x), up + 127) << std::hexfloat << x;
    }
  }
}

TEST(MxScale, FollowsTheOcpDefinition) {
  for (std::uint32_t high = 0x0080u; high < 0x7F80u; ++high) {
    const float amax = float_of(high << 16);
    for (const int max_exponent : {2, 8}) {
      const int expected = std::max(0, std::ilogb(amax) - max_exponent + 127);
      ASSERT_EQ(mx_scale(amax, max_exponent), expected);
    }
  }
  EXPECT_EQ(mx_scale(6.0f, 2), kUe8m0One);  // the largest E2M1 value needs scale 1
  EXPECT_EQ(mx_scale(448.0f, 8), kUe8m0One);
  EXPECT_EQ(mx_scale(0.0f, 2), 0);
  EXPECT_EQ(mx_scale(kInf, 2), kUe8m0Nan);
  EXPECT_EQ(mx_scale(std::nanf(""), 2), kUe8m0Nan);
}

TEST(Nvfp4TensorScale, LimitsAndValues) {
  EXPECT_EQ(kNvfp4MinTensorScale, std::ldexp(1.0f, -117));
  EXPECT_TRUE(std::isfinite(kNvfp4MaxTensorScale * kE4m3Max * kE2m1Max));
  EXPECT_EQ(nvfp4_tensor_scale(2688.0f), 1.0f);
  EXPECT_EQ(nvfp4_tensor_scale(0.0f), kNvfp4MinTensorScale);
  EXPECT_EQ(nvfp4_tensor_scale(kFloatMax), kNvfp4MaxTensorScale);
  EXPECT_TRUE(std::isnan(nvfp4_tensor_scale(kInf)));
  EXPECT_TRUE(std::isnan(nvfp4_tensor_scale(std::nanf(""))));
}

float amax_of(const Values& x) {
  float amax = 0.0f;
  for (const float v : x) amax = std::max(amax, std::abs(v));
  return amax;
}

// The definition in double: scale byte nearest to amax / 6 / tensor_scale, elements nearest to x /
// scale. A value within 1e-6 of a tie may go either way, because the contract rounds the quotients
// to float first.
void expect_nearest(const Values& x, float tensor_scale) {
  const test::NearestTable e4m3 = test::e4m3_table();
  const test::NearestTable e2m1 = test::e2m1_table();
  const Nvfp4Block block = quantize_nvfp4_block(x.data(), tensor_scale);
  const double wanted = static_cast<double>(amax_of(x)) / 6.0 / tensor_scale;
  ASSERT_LE(std::abs(e4m3.value(block.scale) - wanted),
            std::abs(e4m3.value(std::max<std::size_t>(1, e4m3.nearest(wanted))) - wanted) +
                1e-6 * wanted);
  const double scale = e4m3.value(block.scale) * static_cast<double>(tensor_scale);
  for (int i = 0; i < kNvfp4BlockSize; ++i) {
    const double v = std::abs(static_cast<double>(x[static_cast<std::size_t>(i)])) / scale;
    const unsigned code = (block.packed[i / 2] >> (4 * (i % 2))) & 0xFu;
    ASSERT_EQ(code >= 8, std::signbit(x[static_cast<std::size_t>(i)]));
    ASSERT_LE(std::abs(e2m1.value(code & 7u) - v),
              std::abs(e2m1.value(e2m1.nearest(v)) - v) + 1e-6 * v);
    const double decoded = (code >= 8 ? -1.0 : 1.0) * e2m1.value(code & 7u) * scale;
    ASSERT_NEAR(nvfp4_decode(block, i, tensor_scale), decoded, 2e-7 * std::abs(decoded));
  }
}

TEST(Nvfp4, CodesAreNearest) {
  for (std::uint32_t b = 0; b < 5'000; ++b) {
    Values x;
    const float magnitude = std::ldexp(1.0f, static_cast<int>(b % 60) - 30);
    for (std::uint32_t i = 0; i < x.size(); ++i) {
      x[i] = magnitude * test::portable_normal(5, 16 * b + i);
    }
    expect_nearest(x, nvfp4_tensor_scale(amax_of(x) * static_cast<float>(1 + b % 50)));
    expect_nearest(x, 1.0f);  // far from the block's own magnitude: saturates or rounds to zero
    if (HasFatalFailure()) return;
  }
}

TEST(Nvfp4, ExactlyRepresentableBlockIsKept) {
  const Values x = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  const Nvfp4Block block = quantize_nvfp4_block(x.data(), 1.0f);
  EXPECT_EQ(block.scale, kUe4m3One);
  for (int i = 0; i < kNvfp4BlockSize; ++i) {
    EXPECT_EQ(bits_of(nvfp4_decode(block, i, 1.0f)), bits_of(x[static_cast<std::size_t>(i)]));
  }
}

TEST(Nvfp4, ZeroBlockIsZero) {
  const Values x{};
  for (const float tensor_scale : {kNvfp4MinTensorScale, 1.0f, kNvfp4MaxTensorScale}) {
    const Nvfp4Block block = quantize_nvfp4_block(x.data(), tensor_scale);
    EXPECT_EQ(block.scale, 1);
    for (int i = 0; i < kNvfp4BlockSize; ++i) EXPECT_EQ(nvfp4_decode(block, i, tensor_scale), 0.0f);
  }
}

TEST(Nvfp4, FiniteInputNeverGivesNan) {
  constexpr float kMagnitudes[] = {0x1p-149f, 0x1p-126f, 1e-30f, 1e-3f, 1.0f, 1e30f, kFloatMax};
  for (const float magnitude : kMagnitudes) {
    for (const float tensor_scale : {kNvfp4MinTensorScale, 1e-10f, 1.0f, 1e10f,
                                     kNvfp4MaxTensorScale, nvfp4_tensor_scale(magnitude)}) {
      Values x{};
      x[3] = -magnitude;
      x[8] = magnitude;
      const Nvfp4Block block = quantize_nvfp4_block(x.data(), tensor_scale);
      ASSERT_NE(block.scale, kUe4m3Nan);
      for (int i = 0; i < kNvfp4BlockSize; ++i) {
        ASSERT_TRUE(std::isfinite(nvfp4_decode(block, i, tensor_scale)));
      }
      ASSERT_EQ(nvfp4_decode(block, 0, tensor_scale), 0.0f);
    }
  }
}

TEST(Nvfp4, LargestMagnitudeIsWithinThreePercentOfItself) {
  for (const float magnitude : {1e-30f, 1e-3f, 1.0f, 3e4f, 1e30f, kFloatMax}) {
    Values x{};
    x[5] = magnitude;
    const float tensor_scale = nvfp4_tensor_scale(magnitude);
    const Nvfp4Block block = quantize_nvfp4_block(x.data(), tensor_scale);
    EXPECT_EQ(block.scale, kE4m3MaxCode);
    EXPECT_NEAR(nvfp4_decode(block, 5, tensor_scale) / magnitude, 1.0f, 1e-6f);
  }
}

TEST(Nvfp4, NanAndInfinityPoisonTheScale) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    Values x{};
    x[0] = 1.0f;
    x[15] = bad;
    const Nvfp4Block block = quantize_nvfp4_block(x.data(), 1.0f);
    EXPECT_EQ(block.scale, kUe4m3Nan);
    for (int i = 0; i < kNvfp4BlockSize; ++i) {
      EXPECT_EQ(block.packed[i / 2] & 0x77, 0);
      EXPECT_TRUE(std::isnan(nvfp4_decode(block, i, 1.0f)));
    }
  }
  const Values ones = {1.0f};
  EXPECT_EQ(quantize_nvfp4_block(ones.data(), std::nanf("")).scale, kUe4m3Nan);
}

// {6, 5, 5, ..}: at scale 1 every 5 is off by 1 (E2M1 has 4 and 6); at 1.5 the 6 is exact (4 * 1.5)
// and every 5 becomes 3 * 1.5 = 4.5. {6, 3, 3, ..} is exact at scale 1 and only there.
TEST(Nvfp4, FourSixTakesTheScaleWithTheSmallerError) {
  Values fives, threes;
  fives.fill(5.0f);
  threes.fill(3.0f);
  fives[0] = threes[0] = 6.0f;
  const Nvfp4Block four = quantize_nvfp4_block_four_six(fives.data(), 1.0f);
  EXPECT_EQ(ue4m3_decode(four.scale), 1.5f);
  EXPECT_EQ(nvfp4_decode(four, 0, 1.0f), 6.0f);
  EXPECT_EQ(nvfp4_decode(four, 7, 1.0f), 4.5f);
  EXPECT_EQ(nvfp4_block_error(fives.data(), four, 1.0f), 15 * 0.25f);
  const Nvfp4Block six = quantize_nvfp4_block_four_six(threes.data(), 1.0f);
  EXPECT_EQ(ue4m3_decode(six.scale), 1.0f);
  EXPECT_EQ(nvfp4_block_error(threes.data(), six, 1.0f), 0.0f);
}

TEST(Nvfp4, FourSixHandlesZerosAndPoison) {
  const Values zeros{};
  EXPECT_EQ(quantize_nvfp4_block_four_six(zeros.data(), 1.0f).scale, 1);
  Values bad{};
  bad[3] = kInf;
  EXPECT_EQ(quantize_nvfp4_block_four_six(bad.data(), 1.0f).scale, kUe4m3Nan);
}

}  // namespace
}  // namespace vcattn::numerics
