#include "vcattn/numerics/arith.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/referee.h"
#include "support/portable_random.h"

namespace vcattn::numerics {
namespace {

using test::bits_of;
using test::float_of;
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

TEST(Arith, FmaRoundsOnceAndProductsAreNotFused) {
  const float a =
      1.0f + 0x1p-12f;  // a * a = 1 + 2^-11 + 2^-24: the last term is lost by a rounding
  volatile float va = a;
  EXPECT_EQ(fma_rn(va, va, -(1.0f + 0x1p-11f)), 0x1p-24f);
  EXPECT_EQ(add_rn(mul_rn(va, va), -(1.0f + 0x1p-11f)), 0.0f);
}

TEST(Arith, OperationsAreCorrectlyRounded) {
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    const float a = test::portable_normal(1, i);
    const float b = test::portable_normal(2, i) + 6.5f;
    const double da = a;
    const double db = b;
    // Products and sums of floats near 1 are exact in double, and a quotient is far enough from a
    // tie.
    ASSERT_EQ(mul_rn(a, b), static_cast<float>(da * db));
    ASSERT_EQ(add_rn(a, b), static_cast<float>(da + db));
    ASSERT_EQ(sub_rn(a, b), static_cast<float>(da - db));
    ASSERT_EQ(div_rn(a, b), static_cast<float>(da / db));
  }
}

TEST(Arith, SubnormalsAreKept) {
  volatile float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(mul_rn(tiny, 3.0f), 3.0f * std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(add_rn(tiny, tiny), float_of(2));
  EXPECT_EQ(fma_rn(tiny, 1.0f, 0.0f), tiny);
}

TEST(Arith, BitCastsKeepEveryPattern) {
  for (const std::uint32_t bits :
       {0u, 1u, 0x8000'0000u, 0x7F80'0001u, 0xFFC1'2345u, 0x3F80'0000u}) {
    EXPECT_EQ(float_bits(bits_float(bits)), bits);
  }
  EXPECT_EQ(bits_of(quiet_nan()), 0x7FFF'FFFFu);
  EXPECT_EQ(infinity(), kInf);
  EXPECT_EQ(abs_bits(-2.5f), 2.5f);
  for (int n = -126; n <= 127; ++n) EXPECT_EQ(exp2_int(n), std::ldexp(1.0f, n));
}

TEST(Arith, Classification) {
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0xFFFFu}) {
      const float x = float_of((high << 16) | low);
      ASSERT_EQ(is_nan(x), std::isnan(x));
      ASSERT_EQ(is_finite(x), std::isfinite(x));
    }
  }
}

TEST(Arith, AbsMaxKeepsNanInEveryOrder) {
  EXPECT_EQ(abs_max(abs_max(0.0f, -3.0f), 2.0f), 3.0f);
  EXPECT_EQ(abs_max(abs_max(0.0f, 2.0f), -kInf), kInf);
  EXPECT_EQ(bits_of(abs_max(0.0f, -0.0f)), 0u);
  EXPECT_TRUE(is_nan(abs_max(abs_max(0.0f, kNan), kInf)));
  EXPECT_TRUE(is_nan(abs_max(abs_max(0.0f, kInf), -kNan)));
  EXPECT_TRUE(is_nan(abs_max(abs_max(0.0f, float_of(0xFF80'0001u)), 1.0f)));
}

TEST(Arith, MaxNanAndClip) {
  EXPECT_EQ(max_nan(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(max_nan(2.0f, 1.0f), 2.0f);
  EXPECT_EQ(max_nan(-kInf, -kInf), -kInf);
  EXPECT_TRUE(is_nan(max_nan(kNan, 1.0f)));
  EXPECT_TRUE(is_nan(max_nan(1.0f, kNan)));
  EXPECT_TRUE(is_nan(max_nan(kNan, kInf)));
  EXPECT_EQ(clip(5.0f, -1.0f, 1.0f), 1.0f);
  EXPECT_EQ(clip(-kInf, -1.0f, 1.0f), -1.0f);
  EXPECT_EQ(clip(0.25f, -1.0f, 1.0f), 0.25f);
  EXPECT_TRUE(is_nan(clip(kNan, -1.0f, 1.0f)));
}

TEST(Arith, RneAgreesWithNearbyint) {
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const float x = float_of((high << 16) | low);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(rne(x)));
      } else {
        ASSERT_EQ(bits_of(rne(x)), bits_of(std::nearbyint(x))) << std::hexfloat << x;
      }
    }
  }
  for (int i = -2000; i <= 2000; ++i) {  // ties
    const float tie = static_cast<float>(i) + 0.5f;
    EXPECT_EQ(static_cast<int>(rne(tie)) % 2, 0);
    EXPECT_EQ(std::abs(rne(tie) - tie), 0.5f);
  }
}

TEST(Arith, RneToIntSaturates) {
  EXPECT_EQ(rne_i32(2.5f), 2);
  EXPECT_EQ(rne_i32(-3.5f), -4);
  EXPECT_EQ(rne_i32(8388609.0f), 8388609);
  EXPECT_EQ(rne_i32(2147483520.0f), 2147483520);
  EXPECT_EQ(rne_i32(2147483648.0f), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(rne_i32(-2147483648.0f), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(rne_i32(kInf), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(rne_i32(-kInf), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(rne_i32(kNan), 0);
  EXPECT_EQ(rne_clip_i32(126.5f, 0, 126, -1), 126);
  EXPECT_EQ(rne_clip_i32(-kInf, 0, 126, -1), 0);
  EXPECT_EQ(rne_clip_i32(kInf, 0, 126, -1), 126);
  EXPECT_EQ(rne_clip_i32(kNan, 0, 126, -1), -1);
  EXPECT_EQ(rne_clip_i32(1.5f, 0, 126, -1), 2);
}

}  // namespace
}  // namespace vcattn::numerics
