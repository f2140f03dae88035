// ExpCast of single scores: bytes, ratios, ends of the range. Rows are in exp_cast_rows_test.cpp.
#include "vcattn/numerics/exp_cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "numerics/referee.h"

namespace vcattn::numerics {
namespace {

using test::float_of;
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");
constexpr ExpCast kForms[] = {kExpCastPaper, kExpCastTileLocal};

TEST(ExpCast, Constants) {
  EXPECT_EQ(kCodesPerNat, static_cast<float>(8.0 / std::log(2.0)));
  EXPECT_EQ(kCodesPerOctave * kOctavesPerCode, 1.0f);
  EXPECT_EQ(kExpCastPaper.top, 120.0f);
  EXPECT_EQ(kExpCastPaper.beta, -0.35f);
  EXPECT_EQ(kExpCastTileLocal.top, 126.0f);
  EXPECT_EQ(kExpCastTileLocal.beta, 0.0f);
}

TEST(ExpCast, CodeIsTheClippedRoundedSum) {
  for (const ExpCast cast : kForms) {
    for (int i = -200'000; i <= 20'000; ++i) {
      const float x =
          static_cast<float>(i) * 0x1p-10f;  // code units, -195 .. 20 above the reference
      const float m = 37.25f;
      const float bias = exp_cast_bias(cast, m);
      ASSERT_EQ(bias, cast.top + cast.beta - m);
      const double sum = static_cast<double>(x + bias);
      const double expected = std::clamp(std::nearbyint(sum), 0.0, 126.0);
      ASSERT_EQ(exp_cast_code(x, bias), expected) << x;
      const float octaves = x * kOctavesPerCode;
      ASSERT_EQ(exp_cast_code_fma(octaves, kCodesPerOctave, bias), expected) << x;
    }
  }
}

TEST(ExpCast, FmaFormRoundsOnce) {
  // 2^-24 more than a tie: the product alone would round back onto it.
  const float s = 1.0f + 0x1p-12f;
  EXPECT_EQ(exp_cast_code_fma(s, s, -(1.0f + 0x1p-11f) + 0.5f), 1);
  EXPECT_EQ(exp_cast_round(add_rn(mul_rn(s, s), -(1.0f + 0x1p-11f) + 0.5f)), 0);
}

TEST(ExpCast, ReferenceTakesTheTopCode) {
  for (const ExpCast cast : kForms) {
    for (const float m : {-1e4f, -3.5f, 0.0f, 77.0f, 1e4f}) {
      EXPECT_EQ(exp_cast_code(m, exp_cast_bias(cast, m)), static_cast<int>(cast.top));
    }
  }
}

// A grid over one octave, as the paper counts, and the closed form: the rounding boundaries of exp
// + RNE lie at 8 log2(1 + (j + .5) / 8), those of ExpCast at j + .5 - beta.
double same_byte_fraction(ExpCast cast, double reference_octaves, int octave) {
  constexpr int kGrid = 1 << 20;
  int same = 0;
  for (int i = 0; i < kGrid; ++i) {
    const double u = -octave - (i + 0.5) / kGrid;
    const auto x = static_cast<float>(8.0 * u);
    const auto exact = static_cast<float>(std::exp2(u + reference_octaves));
    const int by_cast = exp_cast_code(x, exp_cast_bias(cast, 0.0f));
    const int by_exp = e4m3_encode(exact);
    EXPECT_LE(std::abs(by_cast - by_exp), 1) << u;
    same += by_cast == by_exp ? 1 : 0;
  }
  return static_cast<double>(same) / kGrid;
}

double same_byte_closed_form(double beta) {
  double differ = 0.0;
  for (int j = 0; j < 8; ++j) {
    differ += std::abs(8.0 * std::log2(1.0 + (j + 0.5) / 8.0) - (j + 0.5 - beta));
  }
  return 1.0 - differ / 8.0;
}

TEST(ExpCast, SameByteAsExpThenRoundOnMostOfAnOctave) {
  EXPECT_NEAR(same_byte_closed_form(-0.35), 0.796, 0.0005);  // the published 79.6 %
  for (const int octave : {0, 1, 5, 12}) {
    EXPECT_NEAR(same_byte_fraction(kExpCastPaper, 8.0, octave), same_byte_closed_form(-0.35), 2e-5);
  }
  // The tile-local form has no offset: fewer equal bytes, the same error once the sum divides out
  // the factor.
  EXPECT_NEAR(same_byte_fraction(kExpCastTileLocal, 8.75, 3), same_byte_closed_form(0.0), 2e-5);
}

TEST(ExpCast, NeverMoreThanOneCodeFromExpThenRoundInTheNormalRange) {
  for (int i = 0; i < 1'000'000; ++i) {
    const double u = -13.9 * i / 1e6;  // down to code 8
    const int by_cast =
        exp_cast_code(static_cast<float>(8.0 * u), exp_cast_bias(kExpCastPaper, 0.0f));
    const int by_exp = e4m3_encode(static_cast<float>(std::exp2(u + 8.0)));
    ASSERT_LE(std::abs(by_cast - by_exp), 1) << u;
  }
}

struct Range {
  double low;
  double high;
};

// Extremes of decoded / exact, where exact has the reference at 2^((top - 56) / 8). beta shifts
// both.
Range ratio_range(ExpCast cast) {
  Range range{HUGE_VAL, 0.0};
  const test::NearestTable table = test::e4m3_table();
  const double lowest = -(cast.top - 9.0);  // still a normal code
  constexpr int kGrid = 4'000'000;
  for (int i = 0; i < kGrid; ++i) {
    const double x = lowest * i / kGrid;
    const std::uint8_t code = exp_cast_code(static_cast<float>(x), exp_cast_bias(cast, 0.0f));
    const double exact =
        std::exp2((static_cast<double>(static_cast<float>(x)) + cast.top - 56.0) / 8.0);
    const double ratio = table.value(code) / exact;
    range.low = std::min(range.low, ratio);
    range.high = std::max(range.high, ratio);
  }
  return range;
}

TEST(ExpCast, DecodedRatioStaysInThePublishedInterval) {
  const Range paper = ratio_range(kExpCastPaper);
  EXPECT_NEAR(paper.low, 0.929, 5e-5);
  EXPECT_NEAR(paper.high, 1.0745, 5e-5);
  // The same interval divided by 2^(-0.35 / 8).
  const Range local = ratio_range(kExpCastTileLocal);
  EXPECT_NEAR(local.low, 0.95760, 5e-5);
  EXPECT_NEAR(local.high, 1.10762, 5e-5);
  EXPECT_NEAR(local.high / local.low, paper.high / paper.low, 1e-4);
}

TEST(ExpCast, MeanRatioConstantIsTheClosedForm) {
  double codes = 0.0;
  for (int j = 0; j < 8; ++j) codes += (1.0 + j / 8.0) * std::exp2(-j / 8.0) / 8.0;
  const double h = std::log(2.0) / 16.0;
  EXPECT_NEAR(kExpCastMeanRatio, codes * std::sinh(h) / h, 1e-15);
  EXPECT_EQ(kExpCastLogMeanRatio, static_cast<float>(std::log(kExpCastMeanRatio)));
}

TEST(ExpCast, MeanRatioIsTheMeanWhateverBetaAndTop) {
  const test::NearestTable table = test::e4m3_table();
  for (const ExpCast cast : {kExpCastPaper, kExpCastTileLocal, ExpCast{120.0f, 0.21875f}}) {
    constexpr int kGrid = 1 << 20;
    double sum = 0.0;
    for (int i = 0; i < kGrid; ++i) {
      const double x = -24.0 - 8.0 * (i + 0.5) / kGrid;
      const double t = x + static_cast<double>(cast.top) + static_cast<double>(cast.beta);
      const std::uint8_t code = exp_cast_code(static_cast<float>(x), exp_cast_bias(cast, 0.0f));
      sum += table.value(code) / std::exp2((t - 56.0) / 8.0);
    }
    EXPECT_NEAR(sum / kGrid, kExpCastMeanRatio, 1e-6);
  }
}

TEST(ExpCast, LogScale) {
  const double ln2 = std::log(2.0);
  const double log_ratio = std::log(kExpCastMeanRatio);
  EXPECT_NEAR(exp_cast_log_scale(kExpCastPaper), ln2 / 8.0 * (119.65 - 56.0) + log_ratio, 1e-6);
  EXPECT_NEAR(exp_cast_log_scale(kExpCastTileLocal), ln2 / 8.0 * 70.0 + log_ratio, 1e-6);
  EXPECT_NEAR(exp_exact_log_scale(), 8.0 * ln2, 1e-6);
}

TEST(ExpCast, UnderflowPoints) {
  const float paper = exp_cast_bias(kExpCastPaper, 0.0f);
  EXPECT_EQ(exp_cast_code(8.0f * -14.9f, paper), 0);
  EXPECT_EQ(exp_cast_code(8.0f * -14.88f, paper), 1);
  const float local = exp_cast_bias(kExpCastTileLocal, 0.0f);
  EXPECT_EQ(exp_cast_code(8.0f * -15.6875f, local), 0);  // a tie, to even
  EXPECT_EQ(exp_cast_code(8.0f * -15.68f, local), 1);
}

TEST(ExpCast, MaskedScoresGetCodeZero) {
  for (const ExpCast cast : kForms) {
    EXPECT_EQ(exp_cast_code(-kInf, exp_cast_bias(cast, 0.0f)), 0);
    EXPECT_EQ(exp_cast_code(-kInf, exp_cast_bias(cast, -1e30f)), 0);
    const float empty_row = exp_cast_bias(cast, -kInf);
    EXPECT_EQ(empty_row, -kInf);
    EXPECT_EQ(exp_cast_code(-kInf, empty_row), 0);
    EXPECT_EQ(exp_cast_code(3.0f, empty_row), 0);
    EXPECT_EQ(exp_cast_code_fma(-kInf, kCodesPerNat, exp_cast_bias(cast, 0.0f)), 0);
  }
  EXPECT_EQ(exp_exact_code(-kInf), 0);
}

TEST(ExpCast, OnlyNanGivesTheNanByte) {
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0xFFFFu}) {
      const float t = float_of((high << 16) | low);
      ASSERT_EQ(exp_cast_round(t) == kE4m3Nan, std::isnan(t)) << std::hexfloat << t;
      ASSERT_LE(exp_cast_round(t), 0x7F);
      ASSERT_EQ(exp_exact_code(t) == kE4m3Nan, std::isnan(t)) << std::hexfloat << t;
    }
  }
  EXPECT_EQ(exp_cast_round(126.4f), 126);
  EXPECT_EQ(exp_cast_round(126.6f), 126);
  EXPECT_EQ(exp_cast_round(kInf), 126);
}

TEST(ExpCast, NanIsPassedOn) {
  for (const ExpCast cast : kForms) {
    EXPECT_EQ(exp_cast_code(kNan, exp_cast_bias(cast, 0.0f)), kE4m3Nan);
    EXPECT_EQ(exp_cast_code(0.0f, exp_cast_bias(cast, kNan)), kE4m3Nan);
    EXPECT_EQ(exp_cast_code(kNan, exp_cast_bias(cast, -kInf)), kE4m3Nan);
    EXPECT_EQ(exp_cast_code(kInf, exp_cast_bias(cast, kInf)), kE4m3Nan);  // as inf - inf in softmax
  }
}

TEST(ExpExact, IsTheNearestByteOfTheExponential) {
  const test::NearestTable table = test::e4m3_table();
  int differ = 0;
  constexpr int kGrid = 1'000'000;
  for (int i = 0; i < kGrid; ++i) {
    const float u = -20.0f * static_cast<float>(i) / kGrid;
    const int expected = static_cast<int>(table.nearest(std::exp2(static_cast<double>(u) + 8.0)));
    const int code = exp_exact_code(u);
    ASSERT_LE(std::abs(code - expected), 1);
    differ += code != expected ? 1 : 0;
  }
  EXPECT_LE(differ, 10);  // only where an ulp decides
  EXPECT_EQ(exp_exact_code(0.0f), 120);
  EXPECT_EQ(exp_exact_code(1.0f), 126);
}

}  // namespace
}  // namespace vcattn::numerics
