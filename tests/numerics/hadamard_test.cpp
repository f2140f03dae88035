#include "vcattn/numerics/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "numerics/referee.h"
#include "support/portable_random.h"

namespace vcattn::numerics {
namespace {

using test::bits_of;

// Scaled by an inexact factor: portable_normal is a multiple of 2^-16, whose sums are exact in any
// order.
std::vector<float> random_vector(std::uint32_t seed, int n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::uint32_t i = 0; i < x.size(); ++i) x[i] = 1.1f * test::portable_normal(seed, i);
  return x;
}

// The matrix in double: sign (-1)^popcount(i & j), Sylvester's construction written out.
std::vector<double> matrix_product(const std::vector<float>& x) {
  const std::size_t n = x.size();
  std::vector<double> y(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const double sign = std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0;
      y[i] += sign * static_cast<double>(x[j]);
    }
    y[i] /= std::sqrt(static_cast<double>(n));
  }
  return y;
}

class Hadamard : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Hadamard, testing::Values(1, 2, 4, 8, 16, 32, 64, 128, 256));

TEST_P(Hadamard, ScaleIsTheCorrectlyRoundedInverseRoot) {
  const int n = GetParam();
  EXPECT_EQ(hadamard_scale(n), static_cast<float>(1.0 / std::sqrt(static_cast<double>(n))));
}

TEST_P(Hadamard, AgreesWithTheSylvesterMatrix) {
  const int n = GetParam();
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<float> x = random_vector(seed, n);
    const std::vector<double> expected = matrix_product(x);
    double sum = 0.0;
    for (const float v : x) sum += std::abs(static_cast<double>(v));
    const double bound =
        (std::log2(n) + 2.0) * 0x1p-24 * sum / std::sqrt(static_cast<double>(n)) * 1.0001;
    hadamard_in_place(x.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(x[i]), expected[i], bound);
    }
  }
}

TEST_P(Hadamard, ColumnsAreExactSigns) {
  const int n = GetParam();
  for (int j = 0; j < n; ++j) {
    std::vector<float> x(static_cast<std::size_t>(n), 0.0f);
    x[static_cast<std::size_t>(j)] = 1.0f;
    hadamard_in_place(x.data(), n);
    for (int i = 0; i < n; ++i) {
      const bool negative = std::popcount(static_cast<unsigned>(i & j)) % 2 != 0;
      const float expected = negative ? -hadamard_scale(n) : hadamard_scale(n);
      ASSERT_EQ(x[static_cast<std::size_t>(i)], expected);
    }
  }
}

TEST_P(Hadamard, IsOrthonormal) {
  const int n = GetParam();
  const std::vector<float> original = random_vector(100, n);
  std::vector<float> x = original;
  hadamard_in_place(x.data(), n);
  double before = 0.0;
  double after = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    before += static_cast<double>(original[i]) * original[i];
    after += static_cast<double>(x[i]) * x[i];
  }
  EXPECT_NEAR(after / before, 1.0, 1e-6);
  hadamard_in_place(x.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], original[i], 2e-6f * 6.0f);
}

// The order of additions, pulled instead of pushed: element i after the stage h is a sum or
// difference of two elements after the stage before. Any implementation that follows the stated
// order gives these bits.
float pulled(const std::vector<float>& x, std::size_t i, std::size_t h) {
  if (h == 0) return x[i];
  const std::size_t low = i & ~h;
  const float a = pulled(x, low, h / 2);
  const float b = pulled(x, low | h, h / 2);
  return (i & h) == 0 ? a + b : a - b;
}

TEST_P(Hadamard, OrderOfAdditionsIsTheStatedOne) {
  const int n = GetParam();
  const std::vector<float> original = random_vector(200, n);
  std::vector<float> x = original;
  hadamard_in_place(x.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float expected = pulled(original, i, static_cast<std::size_t>(n) / 2) * hadamard_scale(n);
    ASSERT_EQ(bits_of(x[i]), bits_of(expected));
  }
}

TEST(HadamardTemplate, IsTheSameFunction) {
  std::vector<float> a = random_vector(300, 128);
  std::vector<float> b = a;
  hadamard_in_place<128>(a.data());
  hadamard_in_place(b.data(), 128);
  EXPECT_EQ(a, b);
}

TEST(HadamardTemplate, IntegersAreExactForEvenPowers) {
  std::vector<float> x(64);
  for (std::uint32_t i = 0; i < 64; ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
  const std::vector<double> expected = matrix_product(x);
  hadamard_in_place<64>(x.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(static_cast<double>(x[i]), expected[i]);
}

TEST(HadamardTemplate, NanReachesEveryElement) {
  std::vector<float> x(256, 1.0f);
  x[77] = std::nanf("");
  hadamard_in_place<256>(x.data());
  for (const float v : x) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace vcattn::numerics
