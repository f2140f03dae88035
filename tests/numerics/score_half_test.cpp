// Half-precision E4M3 scores: offsets and codes against exact arithmetic, over every binary16.
#include "vcattn/numerics/score_half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/portable_random.h"

namespace vcattn::numerics {
namespace {

/// Nearest binary16 of a double below 65520, ties to even. The inputs below have few enough bits
/// for the double to be exact.
double f16_of(double x) {
  if (x == 0.0) return 0.0;
  const int exponent = std::max(std::ilogb(x), -14);
  return std::ldexp(std::nearbyint(std::ldexp(x, 10 - exponent)), exponent - 10);
}

template <class F>
void for_each_score(F f) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float s = f16_to_float(static_cast<std::uint16_t>(bits));
    if (is_finite(s)) f(s);
  }
}

TEST(ScoreHalf, OffsetIsRoundedOnce) {
  for_each_score([](float m) {
    const double slope = (m < 0.0f ? 1.0 - 0x1p-10 : 1.0 + 0x1p-10) / 128.0;
    ASSERT_EQ(score_half_offset(m), f16_of(126.0 / 128.0 - m * slope)) << m;
  });
}

TEST(ScoreHalf, TheReferenceGetsTheLargestCodeItsSpacingAllows) {
  for_each_score([](float m) {
    const double code = 128.0 * (m / 128.0 + static_cast<double>(score_half_offset(m)));
    ASSERT_LE(std::nearbyint(code), 126.0) << m;
    // Binary16 scores of this size lie m / 1024 codes apart, or more closely.
    ASSERT_GE(code, 126.0 - std::abs(m) / 512.0 - 1.0 / 16.0) << m;
    ASSERT_EQ(score_half_code(m, score_half_offset(m)), std::nearbyint(std::max(code, 0.0))) << m;
  });
}

TEST(ScoreHalf, CodesFollowTheScoresBelowTheReference) {
  for (std::uint32_t i = 0; i < 300; ++i) {
    const float m = f16_round(std::exp2(14.0f * test::portable_uniform(1, i) - 2.0f));
    const float offset = score_half_offset(m);
    for (std::uint32_t j = 0; j < 300; ++j) {
      const float s = f16_round(m - 150.0f * test::portable_uniform(2, 300 * i + j));
      const double y = f16_of(s / 128.0 + static_cast<double>(offset));
      ASSERT_EQ(score_half_code(s, offset), std::nearbyint(128.0 * std::clamp(y, 0.0, 1.0)))
          << m << " " << s;
    }
    EXPECT_EQ(score_half_code(-infinity(), offset), 0);
  }
}

TEST(ScoreHalf, ProductsOfScaledOperandsAreInCodes) {
  const float codes_per_score = 1.02f;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const float k_amax = std::exp2(20.0f * test::portable_uniform(3, i) - 10.0f);
    const float q_amax = std::exp2(10.0f * test::portable_uniform(4, i) - 5.0f);
    const QuantScale key = score_half_key_scale(k_amax);
    EXPECT_NEAR(k_amax * key.inverse, 16.0f, 1e-5f);
    const float factor = score_half_query_factor(q_amax, codes_per_score, key.scale);
    ASSERT_LE(q_amax * factor, kE4m3Max * (1.0f + 0x1p-22f));
    const float score = (q_amax * factor) * (k_amax * key.inverse);
    const float wanted = codes_per_score * q_amax * k_amax;
    if (wanted < 448.0f * 16.0f) {
      ASSERT_NEAR(score, wanted, 1e-5f * wanted);
    } else {
      ASSERT_NEAR(score, 448.0f * 16.0f, 0.01f);  // one channel alone: one-hot either way
    }
  }
}

TEST(ScoreHalf, NonFiniteIsCarried) {
  EXPECT_TRUE(is_nan(score_half_offset(quiet_nan())));
  EXPECT_EQ(score_half_code(quiet_nan(), 0.0f), kE4m3Nan);
  EXPECT_TRUE(is_nan(score_half_key_scale(std::numeric_limits<float>::infinity()).scale));
}

}  // namespace
}  // namespace vcattn::numerics
