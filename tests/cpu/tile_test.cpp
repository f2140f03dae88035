// The vectorised inner loops against the scalar contracts of vcattn/numerics and float64.
#include "cpu/tile.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "support/portable_random.h"
#include "vcattn/numerics/block_scale.h"
#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/score_half.h"
#include "vcattn/numerics/v_smooth.h"

namespace vcattn::cpu {
namespace {

using test::portable_normal;
using Row = std::array<float, kTileKeys>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Row row_of(const std::function<float(std::int64_t)>& f) {
  Row row;
  for (std::int64_t j = 0; j < kTileKeys; ++j) row[j] = f(j);
  return row;
}

/// Scores from the reference down to below where every format underflows, and hidden ones.
Row falling_scores(std::uint32_t seed, float reference) {
  return row_of([&](std::int64_t j) {
    if (j % 17 == 16) return -kInfinity;
    return reference - 1.3F * static_cast<float>(j) * test::portable_uniform(seed, 7);
  });
}

TEST(Tile, MatmulIsExactOnIntegers) {
  // INT8 products over 256 channels stay below 2^24, so float32 must give the integer itself.
  for (const std::int64_t m : {1, 3, 4, 7, 128}) {
    for (const std::int64_t k : {1, 64, 256}) {
      const std::int64_t n = 128;
      std::vector<float> a(m * k), b(k * n), c(m * n, -1.0F);
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = std::round(40.0F * portable_normal(1, static_cast<std::uint32_t>(i)));
      }
      for (std::size_t i = 0; i < b.size(); ++i) {
        b[i] = std::round(40.0F * portable_normal(2, static_cast<std::uint32_t>(i)));
      }
      matmul(a.data(), b.data(), c.data(), m, k, n);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          std::int64_t exact = 0;
          for (std::int64_t x = 0; x < k; ++x) {
            exact +=
                static_cast<std::int64_t>(a[i * k + x]) * static_cast<std::int64_t>(b[x * n + j]);
          }
          ASSERT_EQ(c[i * n + j], static_cast<float>(exact))
              << m << " " << k << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(Tile, MatmulHalfRoundsAfterEveryStep) {
  const std::int64_t n = 128;
  for (const std::int64_t k : {32, 64, 128}) {
    // Large, so that the sums round visibly; and tiny, so that they are subnormal as binary16.
    for (const float size : {30.0F, 2e-4F}) {
      std::vector<float> a(5 * k), b(k * n), c(5 * n);
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = numerics::e4m3_round(size * portable_normal(6, static_cast<std::uint32_t>(i)));
      }
      for (std::size_t i = 0; i < b.size(); ++i) {
        b[i] = numerics::e4m3_round(0.01F * portable_normal(7, static_cast<std::uint32_t>(i)));
      }
      matmul_half(a.data(), b.data(), c.data(), 5, k, n);
      for (std::int64_t i = 0; i < 5; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          // Sums of 32 products of E4M3 values are exact in float64, and here in float32.
          float sum = 0.0F;
          for (std::int64_t step = 0; step < k; step += 32) {
            double exact = sum;
            for (std::int64_t x = step; x < step + 32; ++x) {
              exact += static_cast<double>(a[i * k + x]) * static_cast<double>(b[x * n + j]);
            }
            sum = numerics::f16_round(static_cast<float>(exact));
          }
          ASSERT_EQ(c[i * n + j], sum) << k << " " << size << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(Tile, MatmulHalfOverflowsToInfinityAndCarriesNaN) {
  std::vector<float> a(32, 448.0F), b(32 * 128, 16.0F), c(128);
  b[127] = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t x = 0; x < 32; ++x) b[x * 128 + 1] = -16.0F;
  for (std::int64_t x = 8; x < 32; ++x) b[x * 128 + 2] = 0.0F;
  matmul_half(a.data(), b.data(), c.data(), 1, 32, 128);
  EXPECT_EQ(c[0], kInfinity);
  EXPECT_EQ(c[1], -kInfinity);
  EXPECT_EQ(c[2], 57344.0F);
  EXPECT_TRUE(std::isnan(c[127]));
}

TEST(Tile, ScaleScoresFindsTheMaximumWhereverItIs) {
  const Row ones = row_of([](auto) { return 1.0F; });
  for (std::int64_t at = 0; at < kTileKeys; ++at) {
    Row scores = row_of([&](std::int64_t j) { return j == at ? -1.0F : -2.0F; });
    const RowMax max = scale_scores(scores.data(), 3.0F, ones.data(), nullptr);
    EXPECT_EQ(max.value, -3.0F) << at;
    EXPECT_FALSE(max.non_finite) << at;
  }
}

TEST(Tile, ScaleScoresAppliesScalesAndBias) {
  Row scores = row_of([](std::int64_t j) { return static_cast<float>(j); });
  const Row scales = row_of([](std::int64_t j) { return j % 2 == 0 ? 0.5F : 2.0F; });
  const Row bias = row_of([](std::int64_t j) { return j == 127 ? -kInfinity : 1.0F; });
  const RowMax max = scale_scores(scores.data(), 4.0F, scales.data(), bias.data());
  EXPECT_EQ(scores[10], 4.0F * 0.5F * 10.0F + 1.0F);
  EXPECT_EQ(scores[11], 4.0F * 2.0F * 11.0F + 1.0F);
  EXPECT_EQ(scores[127], -kInfinity);
  EXPECT_EQ(max.value, 8.0F * 125.0F + 1.0F);
}

TEST(Tile, ScaleScoresReportsNonFiniteScoresWhereverTheyAre) {
  const Row ones = row_of([](auto) { return 1.0F; });
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    for (std::int64_t at = 0; at < kTileKeys; ++at) {
      Row scores = row_of([&](std::int64_t j) { return j == at ? bad : 0.0F; });
      EXPECT_TRUE(scale_scores(scores.data(), 1.0F, ones.data(), nullptr).non_finite) << at;
    }
  }
  // Hidden by the bias is no fault; an infinite product is, whatever its sign.
  const Row minus_infinity = row_of([](auto) { return -kInfinity; });
  Row product = minus_infinity;
  EXPECT_TRUE(scale_scores(product.data(), 1.0F, ones.data(), nullptr).non_finite);
  Row hidden = row_of([](auto) { return 1.0F; });
  const RowMax max = scale_scores(hidden.data(), 1.0F, ones.data(), minus_infinity.data());
  EXPECT_EQ(max.value, -kInfinity);
  EXPECT_FALSE(max.non_finite);
}

TEST(Tile, ExponentiateHasTheBitsOfTheScalarContract) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const float reference = 40.0F * portable_normal(3, seed);
    const Row scores = falling_scores(seed, reference);
    Row p = scores;
    const float sum = exponentiate(p.data(), reference);
    double exact = 0.0;
    for (std::int64_t j = 0; j < kTileKeys; ++j) {
      const float expected = numerics::exp2_f32((scores[j] - reference) * 0.125F);
      ASSERT_EQ(p[j], expected) << seed << " " << j;
      exact += expected;
    }
    EXPECT_NEAR(sum, exact, 1e-5 * exact);
  }
}

TEST(Tile, ExponentiateUnderflowsThroughTheSubnormals) {
  Row p = row_of([](std::int64_t j) { return -8.0F * (120.0F + 0.25F * static_cast<float>(j)); });
  const Row scores = p;
  exponentiate(p.data(), 0.0F);
  for (std::int64_t j = 0; j < kTileKeys; ++j) {
    EXPECT_EQ(p[j], numerics::exp2_f32(scores[j] * 0.125F)) << j;
  }
  EXPECT_EQ(p[127], 0.0F);  // 2^-151.75
  EXPECT_GT(p[100], 0.0F);  // 2^-145 is subnormal, not zero
}

TEST(Tile, ExponentiateE4M3HasTheBitsOfTheScalarContract) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const float reference = 40.0F * portable_normal(4, seed);
    const Row scores = falling_scores(seed, reference);
    Row p = scores;
    const float sum = exponentiate_e4m3(p.data(), reference);
    double exact = 0.0;
    for (std::int64_t j = 0; j < kTileKeys; ++j) {
      const float octaves = (scores[j] - reference) * 0.125F;
      const float expected = numerics::e4m3_round(numerics::exp2_f32(octaves) * 256.0F);
      ASSERT_EQ(p[j], expected) << seed << " " << j;
      exact += expected;
    }
    EXPECT_NEAR(sum, exact, 1e-5 * exact);
  }
}

TEST(Tile, ExpCastHasTheBitsOfTheScalarContract) {
  for (const numerics::ExpCast cast : {numerics::kExpCastPaper, numerics::kExpCastTileLocal}) {
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
      const float reference = 40.0F * portable_normal(5, seed);
      const Row scores = falling_scores(seed, reference);
      const float at_reference = cast.top + cast.beta;
      Row p = scores;
      const float sum = exp_cast(p.data(), reference, at_reference);
      double exact = 0.0;
      for (std::int64_t j = 0; j < kTileKeys; ++j) {
        const float expected = numerics::e4m3_decode(
            numerics::exp_cast_code_below(scores[j], reference, at_reference));
        ASSERT_EQ(p[j], expected) << seed << " " << j;
        exact += expected;
      }
      EXPECT_NEAR(sum, exact, 1e-5 * exact);
    }
  }
}

TEST(Tile, ExpCastHalfHasTheBitsOfTheScalarContract) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const float m = numerics::f16_round(400.0F * portable_normal(8, seed));
    Row p = falling_scores(seed, m);
    for (float& s : p) s = numerics::f16_round(s);
    const Row scores = p;
    const float offset = numerics::score_half_offset(m);
    const float sum = exp_cast_half(p.data(), offset);
    double exact = 0.0;
    for (std::int64_t j = 0; j < kTileKeys; ++j) {
      const float expected = numerics::e4m3_decode(numerics::score_half_code(scores[j], offset));
      ASSERT_EQ(p[j], expected) << seed << " " << j;
      exact += expected;
    }
    EXPECT_NEAR(sum, exact, 1e-5 * exact);
  }
}

TEST(Tile, ExpCastKeepsTheReferenceHoweverLargeItIs) {
  for (const float reference : {1e9F, -1e9F, 3e15F, -3e30F}) {
    Row p = row_of([&](std::int64_t j) { return j == 5 ? reference : -kInfinity; });
    EXPECT_EQ(exp_cast(p.data(), reference, 126.0F), 448.0F) << reference;
    EXPECT_EQ(p[5], 448.0F);
  }
}

TEST(Tile, WindowScoresIsFloorDivision) {
  Row scores = row_of([](std::int64_t j) { return static_cast<float>(127 * (j - 64)); });
  const Row before = scores;
  window_scores(scores.data());
  for (std::int64_t j = 0; j < kTileKeys; ++j) {
    EXPECT_EQ(scores[j], std::floor(before[j] / 256.0F)) << j;
  }
}

TEST(Tile, Nvfp4PutsTheLargestProbabilityOnTheGrid) {
  // The row's largest probability is 448 * 6 quanta of its own scale, so it comes back as it was,
  // also when the reference is far above the tile.
  for (const float tile_max : {0.0F, -8.0F, -80.0F}) {
    Row p = row_of([&](std::int64_t j) { return tile_max - 4.0F * static_cast<float>(j); });
    const float sum = exponentiate_nvfp4(p.data(), 0.0F, tile_max);
    EXPECT_NEAR(p[0], std::exp2(tile_max / 8.0F), 1e-6F * p[0]);
    EXPECT_GT(sum, p[0]);
    for (const float x : p) EXPECT_GE(x, 0.0F);
  }
}

TEST(Tile, Nvfp4IsTheScalarQuantizer) {
  for (const float reference : {0.0F, 8.0F, 800.0F}) {
    const auto score = [](std::int64_t j) { return -static_cast<float>(37 * j % 128) * 0.9F; };
    Row p = row_of(score), unquantized = row_of(score);
    exponentiate(unquantized.data(), reference);
    const float sum = exponentiate_nvfp4(p.data(), reference, 0.0F);
    const float row_scale = numerics::nvfp4_tensor_scale(numerics::exp2_f32(-reference / 8.0F));
    double expected_sum = 0.0;
    for (std::int64_t j = 0; j < kTileKeys; j += numerics::kNvfp4BlockSize) {
      const auto block = numerics::quantize_nvfp4_block(unquantized.data() + j, row_scale);
      for (int i = 0; i < numerics::kNvfp4BlockSize; ++i) {
        EXPECT_EQ(p[j + i], numerics::nvfp4_decode(block, i, row_scale)) << reference << " " << j;
        expected_sum += p[j + i];
      }
    }
    EXPECT_NEAR(sum, expected_sum, 1e-6 * expected_sum);
  }
}

TEST(Tile, AccumulateIsExactOnSmallIntegers) {
  const std::int64_t n = 128;
  std::vector<float> acc(n), pv(n), mean(n);
  for (std::int64_t c = 0; c < n; ++c) {
    acc[c] = static_cast<float>(c);
    pv[c] = static_cast<float>(3 * c - 50);
    mean[c] = static_cast<float>(c % 5);
  }
  std::vector<float> with = acc, without = acc;
  accumulate(with.data(), pv.data(), mean.data(), 7.0F, 0.5F, 4.0F, n);
  accumulate(without.data(), pv.data(), nullptr, 7.0F, 0.5F, 4.0F, n);
  for (std::int64_t c = 0; c < n; ++c) {
    EXPECT_EQ(with[c], 0.5F * acc[c] + 4.0F * (pv[c] + 7.0F * mean[c]));
    EXPECT_EQ(without[c], 0.5F * acc[c] + 4.0F * pv[c]);
  }
}

}  // namespace
}  // namespace vcattn::cpu
