#include "support/portable_random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace vcattn::test {
namespace {

// Values computed by another implementation (Python integers).
TEST(PortableRandom, KnownValues) {
  EXPECT_EQ(portable_normal(0u, 0u), 0.7186431884765625f);
  EXPECT_EQ(portable_normal(0u, 1u), -0.158843994140625f);
  EXPECT_EQ(portable_normal(1u, 0u), 0.0312042236328125f);
  EXPECT_EQ(portable_normal(7u, 123456u), 0.4036712646484375f);
  EXPECT_EQ(portable_normal(4294967295u, 4294967295u), 1.5072479248046875f);
}

TEST(PortableRandom, MomentsAreThoseOfTheStandardNormal) {
  constexpr std::uint32_t kCount = 200'000;
  double sum = 0.0;
  double squares = 0.0;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const double x = portable_normal(7, i);
    ASSERT_LT(std::abs(x), 6.0);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

TEST(PortableRandom, UniformStaysInItsInterval) {
  double sum = 0.0;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    const float x = portable_uniform(3, i);
    ASSERT_GE(x, 0.0f);
    ASSERT_LT(x, 1.0f);
    sum += x;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.01);
}

}  // namespace
}  // namespace vcattn::test
