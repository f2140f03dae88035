#include "vcattn/numerics/exp_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/referee.h"

namespace vcattn::numerics {
namespace {

using test::float_of;
using test::ulp_error;
constexpr float kInf = std::numeric_limits<float>::infinity();

// Every `stride`-th float, both signs, that an exponential neither flushes nor overflows.
template <typename Function, typename Referee>
double worst_ulp(const Function& function, const Referee& referee, float limit,
                 std::uint32_t stride) {
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits <= test::bits_of(limit); bits += stride) {
    for (const float x : {float_of(bits), -float_of(bits)}) {
      const double exact = referee(static_cast<double>(x));
      if (exact >= std::ldexp(1.0, 128)) continue;
      worst = std::max(worst, ulp_error(function(x), exact));
    }
  }
  return worst;
}

TEST(ExpLog, Exp2IsWithinOneUlp) {
  const auto exp2_64 = [](double x) { return std::exp2(x); };
  EXPECT_LE(worst_ulp([](float x) { return exp2_f32(x); }, exp2_64, 150.0f, 1009), 1.0);
}

TEST(ExpLog, ExpIsWithinOneUlp) {
  const auto exp_64 = [](double x) { return std::exp(x); };
  EXPECT_LE(worst_ulp([](float x) { return exp_f32(x); }, exp_64, 104.0f, 1009), 1.0);
}

TEST(ExpLog, Exp2OfIntegersIsExact) {
  for (int n = -149; n <= 127; ++n) EXPECT_EQ(exp2_f32(static_cast<float>(n)), std::ldexp(1.0f, n));
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
}

TEST(ExpLog, EndsOfTheRange) {
  EXPECT_EQ(exp2_f32(-kInf), 0.0f);
  EXPECT_EQ(exp2_f32(-151.0f), 0.0f);
  EXPECT_EQ(exp2_f32(-1e30f), 0.0f);
  EXPECT_EQ(exp2_f32(128.0f), kInf);
  EXPECT_EQ(exp2_f32(kInf), kInf);
  EXPECT_LT(exp2_f32(std::nextafter(128.0f, 0.0f)), kInf);
  EXPECT_EQ(exp_f32(-kInf), 0.0f);
  EXPECT_EQ(exp_f32(-1e30f), 0.0f);
  EXPECT_EQ(exp_f32(89.0f), kInf);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_LT(exp_f32(88.72f), kInf);
  EXPECT_TRUE(std::isnan(exp2_f32(std::nanf(""))));
  EXPECT_TRUE(std::isnan(exp_f32(std::nanf(""))));
}

TEST(ExpLog, LogIsWithinOneUlp) {
  double worst = 0.0;
  for (std::uint32_t bits = 1; bits < kFloatInfBits; bits += 1009) {
    const float x = float_of(bits);
    worst = std::max(worst, ulp_error(log_f32(x), std::log(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 1.0);
}

}  // namespace
}  // namespace vcattn::numerics
