#include "vcattn/numerics/v_smooth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "numerics/referee.h"
#include "support/portable_random.h"

namespace vcattn::numerics {
namespace {

using test::bits_of;

TEST(BlockMean, IsTheMeanRoundedToBf16) {
  for (int n = 1; n <= kValueBlockRows; ++n) {
    std::vector<float> v(static_cast<std::size_t>(n));
    double sum = 0.0;
    double magnitudes = 0.0;
    for (std::uint32_t i = 0; i < v.size(); ++i) {
      v[i] = test::portable_normal(static_cast<std::uint32_t>(n), i) + 0.25f;
      sum += v[i];
      magnitudes += std::abs(v[i]);
    }
    const double mean = sum / n;
    const double bound = 0x1.001p-8 * std::abs(mean) + 0x1p-24 * magnitudes;
    EXPECT_NEAR(bf16_to_float(block_mean(v.data(), n, 1)), mean, bound) << n;
  }
}

TEST(BlockMean, ReadsOnlyTheValidRowsOfItsColumn) {
  constexpr std::int64_t kStride = 3;
  std::vector<float> v(static_cast<std::size_t>(kStride * kValueBlockRows), std::nanf(""));
  for (std::size_t i = 0; i < 5; ++i) v[i * kStride] = static_cast<float>(i);
  EXPECT_EQ(bf16_to_float(block_mean(v.data(), 5, kStride)), 2.0f);
  EXPECT_EQ(block_mean(v.data(), 0, kStride), 0);
  EXPECT_TRUE(std::isnan(bf16_to_float(block_mean(v.data(), 6, kStride))));
}

// Identical values are a reported source of NaN (residual 0, scale 0): the mean must be the value
// itself, for every count of rows, and the residual exactly zero.
TEST(BlockMean, OfIdenticalValuesIsTheValue) {
  for (std::uint32_t high = 0x0800u; high < 0x7F80u; high += 53) {
    const float c = test::float_of(high << 16);
    const std::vector<float> v(kValueBlockRows, c);
    for (int n = 1; n <= kValueBlockRows; n += (n < 8 ? 1 : 7)) {
      const float mu = bf16_to_float(block_mean(v.data(), n, 1));
      ASSERT_EQ(bits_of(mu), bits_of(c)) << n;
      ASSERT_EQ(block_residual(c, mu), 0.0f);
    }
  }
}

TEST(BlockMean, DoesNotOverflow) {
  const std::vector<float> large(kValueBlockRows, kBf16Max);
  EXPECT_EQ(bf16_to_float(block_mean(large.data(), kValueBlockRows, 1)), kBf16Max);
  const std::vector<float> largest(kValueBlockRows, -std::numeric_limits<float>::max());
  for (const int n : {1, 3, 100, 127, 128}) {
    const float mu = bf16_to_float(block_mean(largest.data(), n, 1));
    EXPECT_EQ(mu, -kBf16Max);
    EXPECT_TRUE(std::isfinite(block_residual(largest[0], mu)));
  }
}

TEST(BlockMean, ExactForPowersOfTwo) {
  for (int n = 1; n <= kValueBlockRows; n *= 2) {
    std::vector<float> v;
    for (int i = 0; i < n; ++i) v.push_back(static_cast<float>(i * 2 + 1));  // mean n
    EXPECT_EQ(bf16_to_float(block_mean(v.data(), n, 1)), static_cast<float>(n));
  }
}

// Probabilities and values for which every product and sum is exact in float: restoring the mean
// must then give the product with the unsmoothed block bit for bit, whatever the mean was rounded
// to.
TEST(RestoreMean, IsExactInExactArithmetic) {
  for (std::uint32_t block = 0; block < 200; ++block) {
    const int n = 1 + static_cast<int>(block * 37 % kValueBlockRows);
    std::vector<float> v(static_cast<std::size_t>(n));
    std::vector<float> p(static_cast<std::size_t>(n));
    for (std::uint32_t i = 0; i < v.size(); ++i) {
      v[i] = std::nearbyint(8.0f * test::portable_normal(block, i)) + 5.0f;
      p[i] = std::ldexp(1.0f, static_cast<int>(test::portable_hash(block * 128 + i) % 4) - 1);
    }
    const float mu = bf16_to_float(block_mean(v.data(), n, 1));
    // A mean with few bits below the point keeps all sums within 24 bits.
    const float coarse = std::nearbyint(mu * 16.0f) / 16.0f;
    for (const float kept : {coarse, std::nearbyint(mu), 0.0f, 100.0f}) {
      float direct = 0.0f;
      float smoothed = 0.0f;
      float row_sum = 0.0f;
      for (std::size_t i = 0; i < v.size(); ++i) {
        direct = fma_rn(p[i], v[i], direct);
        smoothed = fma_rn(p[i], block_residual(v[i], kept), smoothed);
        row_sum = add_rn(row_sum, p[i]);
      }
      ASSERT_EQ(bits_of(restore_mean(smoothed, row_sum, kept)), bits_of(direct)) << block;
    }
  }
}

TEST(RestoreMean, IsOneFma) {
  EXPECT_EQ(restore_mean(-(1.0f + 0x1p-11f), 1.0f + 0x1p-12f, 1.0f + 0x1p-12f), 0x1p-24f);
}

TEST(EnergySplit, TotalIsResidualPlusMeanForTheExactMean) {
  std::vector<float> v;
  for (int i = 0; i < kValueBlockRows; ++i) v.push_back(static_cast<float>(i % 16));  // mean 7.5
  const float mu = bf16_to_float(block_mean(v.data(), kValueBlockRows, 1));
  ASSERT_EQ(mu, 7.5f);
  const EnergySplit split = energy_split(v.data(), kValueBlockRows, 1, mu);
  EXPECT_EQ(split.total, split.residual + split.mean);
  EXPECT_EQ(split.mean, 128.0 * 7.5 * 7.5);
  EXPECT_EQ(energy_removed(split), split.mean / split.total);
}

TEST(EnergySplit, IdentityWithARoundedMean) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<float> v(static_cast<std::size_t>(3 * kValueBlockRows));
    for (std::uint32_t i = 0; i < v.size(); ++i) v[i] = test::portable_normal(seed, i) + 1.0f;
    const float mu = bf16_to_float(block_mean(v.data(), 100, 3));
    const EnergySplit split = energy_split(v.data(), 100, 3, mu);
    double cross = 0.0;
    for (std::size_t i = 0; i < 100; ++i) cross += static_cast<double>(v[3 * i]) - mu;
    EXPECT_NEAR(split.total, split.residual + split.mean + 2.0 * mu * cross, 1e-9 * split.total);
    EXPECT_GT(energy_removed(split), 0.2);
  }
}

// The negative control: independent Gaussian values have a mean energy of one part in n.
TEST(EnergySplit, GaussianValuesHaveNothingToRemove) {
  double removed = 0.0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::vector<float> v(kValueBlockRows);
    for (std::uint32_t i = 0; i < v.size(); ++i) v[i] = test::portable_normal(seed, i);
    const float mu = bf16_to_float(block_mean(v.data(), kValueBlockRows, 1));
    removed += energy_removed(energy_split(v.data(), kValueBlockRows, 1, mu)) / 200.0;
  }
  EXPECT_NEAR(removed, 1.0 / kValueBlockRows, 0.003);
}

TEST(EnergySplit, Ends) {
  const std::vector<float> zeros(8, 0.0f);
  EXPECT_EQ(energy_removed(energy_split(zeros.data(), 8, 1, 0.0f)), 0.0);
  const std::vector<float> twos(8, 2.0f);
  EXPECT_EQ(energy_removed(energy_split(twos.data(), 8, 1, 2.0f)), 1.0);
}

}  // namespace
}  // namespace vcattn::numerics
