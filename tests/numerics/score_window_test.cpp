// Windowed INT8 scores: the multiplier of a row and the codes made with it.
#include "vcattn/numerics/score_window.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/portable_random.h"
#include "vcattn/numerics/f16.h"

namespace vcattn::numerics {
namespace {

/// Magnitudes from 2^-20 to 2^20, log-uniform.
float wanted_at(std::uint32_t i) { return std::exp2(40.0f * test::portable_uniform(1, i) - 20.0f); }

TEST(ScoreWindow, MultiplierIsAFloat16ThatFillsTheCodes) {
  for (std::uint32_t i = 0; i < 100000; ++i) {
    const float wanted = wanted_at(i);
    const float multiplier = window_multiplier(wanted);
    const ScoreWindow window = score_window(multiplier);
    if (wanted > 126.0f) {
      ASSERT_EQ(multiplier, wanted);
      ASSERT_EQ(window.slope, 126.0f);
      ASSERT_EQ(window.top, 1.0f);
      continue;
    }
    ASSERT_EQ(f16_round(multiplier), multiplier) << wanted;
    ASSERT_EQ(window.slope, multiplier);
    ASSERT_EQ(window.top, std::floor(window.top));
    ASSERT_LE(window.top, 1023.0f);
    // The top is code 126 after rounding, and never more.
    ASSERT_NEAR(window_top_code(window), 126.0f, 0.5f) << wanted;
    // Stretched by less than one unit in `top`, and not below what keeps |code| <= 127.
    ASSERT_GE(multiplier, wanted * (1.0f - 0x1p-11f) - 0x1p-12f) << wanted;
    if (wanted > kWindowMinMultiplier) {
      ASSERT_LE(multiplier, 126.0f / (126.0f / wanted - 1.0f) + 0x1p-11f * multiplier + 0x1p-12f);
    }
  }
}

TEST(ScoreWindow, ClosedFormExamples) {
  // 126 / 0.25 = 504 units exactly; 126 / 1 = 126; 126 / 50 = 2.52, so two units of 63.
  EXPECT_EQ(window_multiplier(0.25f), 0.25f);
  EXPECT_EQ(score_window(0.25f).top, 504.0f);
  EXPECT_EQ(window_multiplier(1.0f), 1.0f);
  EXPECT_EQ(window_multiplier(50.0f), 63.0f);
  EXPECT_EQ(score_window(63.0f).top, 2.0f);
  EXPECT_EQ(window_multiplier(126.0f), 126.0f);
  // Flat rows stop at 1023 units: 126 / 1023 is 252.25 / 2048.
  EXPECT_EQ(window_multiplier(0.0f), 252.0f / 2048.0f);
}

TEST(ScoreWindow, CodesAreThoseOfExpCastUpToTheUnit) {
  // Against float64: the code of a score x units from the reference is 126 + a x, within one code
  // (half from each rounding), clipped at 0; the reference itself is 126.
  for (std::uint32_t i = 0; i < 200; ++i) {
    const ScoreWindow window = score_window(window_multiplier(wanted_at(i)));
    const float m = std::round(1000.0f * test::portable_uniform(2, i));
    EXPECT_EQ(window_code(window, m, m), 126);
    for (float below = 0.0f; below < 1100.0f; below += 1.0f) {
      const double ideal = 126.0 - static_cast<double>(window.multiplier) * below;
      const int code = window_code(window, m - below, m);
      ASSERT_NEAR(code, std::max(ideal, 0.0), 1.0) << window.multiplier << " " << below;
    }
    EXPECT_EQ(window_code(window, m - 2000.0f, m), 0);
  }
}

TEST(ScoreWindow, ShiftIsFloorDivision) {
  for (const std::int32_t acc :
       {0, 1, 255, 256, -1, -256, -257, 127 * 127 * 256, -127 * 127 * 256}) {
    EXPECT_EQ(window_score(acc), static_cast<std::int32_t>(std::floor(acc / 256.0))) << acc;
    EXPECT_LE(std::abs(window_score(acc)), std::numeric_limits<std::int16_t>::max());
  }
}

TEST(ScoreWindow, InverseGivesTheScaleOfTheMultiplier) {
  // a = 256 * codes_per_score * q_scale * k_scale must hold for the scale that the inverse implies.
  const float codes_per_score = 1.02f, k_scale = 0.031f;
  for (const float wanted : {0.2f, 0.9f, 3.0f, 40.0f, 500.0f}) {
    const float multiplier = window_multiplier(wanted);
    const float inverse = window_q_inverse(multiplier, codes_per_score, k_scale);
    EXPECT_NEAR(256.0 * codes_per_score * k_scale / inverse, multiplier, 1e-6 * multiplier);
  }
  EXPECT_EQ(window_q_inverse(1.0f, 0.0f, k_scale), 0.0f);  // scale 0: every code is 0
}

TEST(ScoreWindow, NonFiniteIsCarried) {
  EXPECT_TRUE(std::isnan(window_multiplier(std::nanf(""))));
  EXPECT_TRUE(std::isnan(window_multiplier(std::numeric_limits<float>::infinity())));
}

}  // namespace
}  // namespace vcattn::numerics
