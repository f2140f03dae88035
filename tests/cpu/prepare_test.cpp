// Preparation stage by stage, against float64 and closed forms.
#include "cpu/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "bug_cases/call.h"
#include "support/portable_random.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/e2m1.h"
#include "vcattn/numerics/e4m3.h"

namespace vcattn::cpu {
namespace {

Rows rows_of(std::int64_t count, std::int64_t dim,
             const std::function<float(std::int64_t, std::int64_t)>& f) {
  Rows rows(count, dim);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < dim; ++c) rows.row(i)[c] = f(i, c);
  }
  return rows;
}

Rows random_rows(std::int64_t count, std::int64_t dim, std::uint32_t seed, float shift = 0.0F) {
  return rows_of(count, dim, [&](std::int64_t i, std::int64_t c) {
    return shift + test::portable_normal(seed, static_cast<std::uint32_t>(i * dim + c));
  });
}

TEST(Prepare, LoadsAnyStridesAndPadsWithZeros) {
  // Every second token of a fused buffer, d = 72 padded to 128.
  std::vector<float> buffer(2 * 3 * 100 * 80, -7.0F);
  TensorView view{buffer.data() + 5, DType::kF32, {1, 3, 40, 72}, {0, 80, 2 * 3 * 80, 1}};
  for (std::int64_t s = 0; s < 40; ++s) {
    for (std::int64_t c = 0; c < 72; ++c) {
      buffer[5 + view.offset(0, 2, s, c)] = static_cast<float>(100 * s + c);
    }
  }
  const Rows rows = load_rows(view, 0, 2, {39, 0}, std::nullopt, 128);
  EXPECT_EQ(rows.row(0)[71], 3971.0F);
  EXPECT_EQ(rows.row(1)[3], 3.0F);
  for (std::int64_t c = 72; c < 128; ++c) EXPECT_EQ(rows.row(0)[c], 0.0F);
}

TEST(Prepare, RopeRotatesPairsInBothLayouts) {
  std::vector<float> x(2 * 8);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
  const TensorView view =
      dense_view<const void>(x.data(), DType::kF32, Layout::kBHSD, {1, 1, 2, 8});
  // Row 1 is turned by 90 degrees in pair 0 and by 180 degrees in pair 1; the rest passes through.
  const std::vector<float> cos{1, 1, 0, -1}, sin{0, 0, 1, 0};
  Rope rope{cos.data(), sin.data(), 2, 2, RopeLayout::kInterleaved};
  const Rows interleaved = load_rows(view, 0, 0, {1}, rope, 64);
  const std::vector<float> expected{-10, 9, -11, -12, 13, 14, 15, 16};
  for (int c = 0; c < 8; ++c) EXPECT_EQ(interleaved.row(0)[c], expected[c]) << c;
  rope.layout = RopeLayout::kHalf;
  const Rows half = load_rows(view, 0, 0, {1}, rope, 64);
  const std::vector<float> expected_half{-11, -10, 9, -12, 13, 14, 15, 16};
  for (int c = 0; c < 8; ++c) EXPECT_EQ(half.row(0)[c], expected_half[c]) << c;
}

TEST(Prepare, MeanRowIsTheFloat64Mean) {
  const Rows rows = random_rows(1000, 64, 3, 100.0F);
  const std::vector<float> mean = mean_row(rows);
  for (std::int64_t c = 0; c < 64; ++c) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < rows.count; ++i) sum += rows.row(i)[c];
    EXPECT_EQ(mean[c], static_cast<float>(sum / 1000.0));
  }
}

TEST(Prepare, StatisticsOfManyRowsAreThoseOfTheSample) {
  const Rows rows = random_rows(9000, 64, 3);
  const auto sample = numerics::row_sample(9000, true);
  ASSERT_EQ(sample.count, 562);
  Rows part(sample.count, 64);
  for (int i = 0; i < sample.count; ++i) {
    std::copy_n(rows.row(sample.row(i)), 64, part.row(i));
  }
  const auto all = numerics::row_sample(sample.count, false);
  EXPECT_EQ(mean_row(rows, sample), mean_row(part));
  EXPECT_NE(mean_row(rows, sample), mean_row(rows));
  EXPECT_EQ(channel_energy(rows, sample), channel_energy(part, all));
}

TEST(Prepare, BalanceLevelsChannelsByPowersOfTwo) {
  // rms(K) / rms(Q) = 2^(2n) gives factors of exactly 2^n, and a dead channel gives 1.
  const std::vector<float> factors =
      balance_factors({1.0, 1.0, 4.0, 0.0, 1.0}, {1.0, 256.0, 0.25, 1.0, 0.0});
  EXPECT_EQ(factors, (std::vector<float>{1.0F, 4.0F, 0.5F, 1.0F, 1.0F}));
}

TEST(Prepare, BalanceKeepsScoresExactly) {
  Rows q = random_rows(4, 64, 1), k = random_rows(4, 64, 2);
  const auto score = [&](std::int64_t i, std::int64_t j) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < 64; ++c) sum += static_cast<double>(q.row(i)[c]) * k.row(j)[c];
    return sum;
  };
  const double before = score(1, 2);
  for (std::int64_t c = 0; c < 8; ++c) {
    for (std::int64_t i = 0; i < 4; ++i) k.row(i)[c] *= 32.0F;
  }
  const double outliers = score(1, 2);
  const auto all = numerics::row_sample(4, true);
  const std::vector<float> factors =
      balance_factors(channel_energy(q, all), channel_energy(k, all));
  std::vector<float> inverse;
  for (const float factor : factors) inverse.push_back(1.0F / factor);
  scale_channels(q, factors);
  scale_channels(k, inverse);
  EXPECT_EQ(score(1, 2), outliers);
  EXPECT_NE(before, outliers);
  EXPECT_GE(factors[0], 4.0F);  // sqrt(32), up to the noise of four rows
}

TEST(Prepare, Int8ScalesAreSharedByGroupsOfRows) {
  const Rows rows = rows_of(10, 64, [](std::int64_t i, std::int64_t c) {
    return c == 0 ? static_cast<float>(i + 1) : 0.25F;
  });
  for (const auto& [group, expected] :
       {std::pair{1, 3.0F}, std::pair{4, 4.0F}, std::pair{0, 10.0F}}) {
    const QkOperand operand = quantize_rows(rows, QkFormat::kInt8, group, Nvfp4Scale::kSix);
    EXPECT_EQ(operand.row_scales[2], expected / 127.0F) << group;
  }
  const QkOperand operand = quantize_rows(rows, QkFormat::kInt8, 4, Nvfp4Scale::kSix);
  EXPECT_EQ(operand.row_scales[9], 10.0F / 127.0F);  // the last group has two rows
  EXPECT_EQ(operand.codes[9 * 64], 127);
  EXPECT_EQ(operand.values.row(9)[1], std::nearbyint(0.25F * 12.7F));
}

TEST(Prepare, QuantizationErrorIsHalfAStepAtMost) {
  const Rows rows = random_rows(64, 128, 5);
  const QkOperand int8 = quantize_rows(rows, QkFormat::kInt8, 1, Nvfp4Scale::kSix);
  const QkOperand e4m3 = quantize_rows(rows, QkFormat::kE4M3, 1, Nvfp4Scale::kSix);
  for (std::int64_t i = 0; i < rows.count; ++i) {
    for (std::int64_t c = 0; c < rows.dim; ++c) {
      const float x = rows.row(i)[c];
      EXPECT_LE(std::abs(int8.values.row(i)[c] * int8.row_scales[i] - x),
                0.5001F * int8.row_scales[i]);
      // E4M3 has 3 mantissa bits: half a step is 2^-4 relative, or half the smallest subnormal.
      EXPECT_LE(std::abs(e4m3.values.row(i)[c] * e4m3.row_scales[i] - x),
                std::max(0.0625F * std::abs(x) * 1.0001F, 0.001F * e4m3.row_scales[i]));
    }
  }
}

TEST(Prepare, FourSixNeverHasALargerErrorThanSix) {
  const Rows rows = random_rows(64, 128, 6);
  const QkOperand six = quantize_rows(rows, QkFormat::kNvfp4, 0, Nvfp4Scale::kSix);
  const QkOperand both = quantize_rows(rows, QkFormat::kNvfp4, 0, Nvfp4Scale::kFourSix);
  double total_six = 0.0, total_both = 0.0;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    for (std::int64_t block = 0; block < 8; ++block) {
      double error_six = 0.0, error_both = 0.0;
      for (std::int64_t c = block * 16; c < block * 16 + 16; ++c) {
        const float x = rows.row(i)[c];
        error_six += std::pow(six.values.row(i)[c] * six.row_scales[i] - x, 2);
        error_both += std::pow(both.values.row(i)[c] * both.row_scales[i] - x, 2);
      }
      EXPECT_LE(error_both, error_six * 1.00001);
      total_six += error_six;
      total_both += error_both;
    }
  }
  EXPECT_LT(total_both, 0.95 * total_six);  // and it does help
}

TEST(Prepare, HalfScoresAreProductsInCodes) {
  const Rows k = random_rows(50, 64, 4), q = random_rows(20, 64, 5);
  const QkOperand keys = quantize_keys_half(k);
  float largest = 0.0F;
  for (const float x : keys.values.data) largest = std::max(largest, std::abs(x));
  EXPECT_EQ(largest, 16.0F);
  for (const float codes_per_score : {1.5F, -1.5F}) {
    const QkOperand queries = quantize_queries_half(q, codes_per_score, keys.row_scales[0]);
    for (std::int64_t i = 0; i < q.count; ++i) {
      EXPECT_EQ(queries.row_scales[i], 1.0F);
      for (std::int64_t j = 0; j < k.count; ++j) {
        double codes = 0.0, score = 0.0, magnitude = 0.0;
        for (std::int64_t c = 0; c < 64; ++c) {
          codes += static_cast<double>(queries.values.row(i)[c]) * keys.values.row(j)[c];
          const double product = static_cast<double>(q.row(i)[c]) * k.row(j)[c];
          score += codes_per_score * product;
          magnitude += std::abs(codes_per_score * product);
        }
        // Each factor is off by at most 2^-4 of itself, in practice at random.
        EXPECT_NEAR(codes, score, 0.13 * magnitude + 0.01) << i << " " << j;
      }
    }
  }
}

TEST(Prepare, HalfScoresCarryWhatIsNotFinite) {
  Rows q = random_rows(4, 64, 6);
  q.row(1)[3] = std::numeric_limits<float>::infinity();
  q.row(2)[9] = std::numeric_limits<float>::quiet_NaN();
  const QkOperand queries = quantize_queries_half(q, 1.0F, 1.0F);
  EXPECT_EQ(queries.row_scales[0], 1.0F);
  EXPECT_TRUE(std::isnan(queries.row_scales[1]));
  EXPECT_TRUE(std::isnan(queries.row_scales[2]));
  EXPECT_TRUE(std::isnan(quantize_keys_half(q).row_scales[0]));
}

TEST(Prepare, BlockMeansSkipWhatIsNotThere) {
  const Rows rows = rows_of(130, 64, [](std::int64_t i, auto) { return i < 128 ? 1.0F : 5.0F; });
  const Rows means = block_means(rows);
  ASSERT_EQ(means.count, 2);
  EXPECT_EQ(means.row(0)[9], 1.0F);
  EXPECT_EQ(means.row(1)[9], 5.0F);  // of two rows, not of 128
}

TEST(Prepare, RefitMakesTheErrorsOfABlockSumToZero) {
  Rows residual = random_rows(300, 64, 8);
  Rows means = block_means(residual);
  subtract_block_means(residual, means);
  const Rows quantized = quantize_values(residual, VFormat::kE4M3Channel, Nvfp4Scale::kSix).values;
  const Rows before = means;
  refit_means(means, residual, quantized);
  for (std::int64_t b = 0; b < means.count; ++b) {
    const std::int64_t first = b * 128, last = std::min<std::int64_t>(first + 128, 300);
    for (std::int64_t c = 0; c < 64; ++c) {
      // Sum over the block of what is restored minus what was there.
      double error = 0.0, unfitted = 0.0;
      for (std::int64_t i = first; i < last; ++i) {
        const double rounding = static_cast<double>(quantized.row(i)[c]) - residual.row(i)[c];
        error += rounding + means.row(b)[c] - before.row(b)[c];
        unfitted += rounding;
      }
      EXPECT_NEAR(error, 0.0, 1e-4) << b << " " << c << " " << unfitted;
    }
  }
}

TEST(Prepare, ChannelScalesDoNotCoupleChannels) {
  const Rows rows = rows_of(256, 64, [](std::int64_t i, std::int64_t c) {
    return (i % 2 == 0 ? 1.0F : -1.0F) * std::ldexp(1.0F, static_cast<int>(c) - 32);
  });
  const ValueOperand v = quantize_values(rows, VFormat::kE4M3Channel, Nvfp4Scale::kSix);
  for (std::int64_t c = 0; c < 64; ++c) {
    EXPECT_EQ(v.codes[c], numerics::e4m3_encode(448.0F)) << c;
    EXPECT_FLOAT_EQ(v.values.row(0)[c], rows.row(0)[c]) << c;
  }
}

TEST(Prepare, Nvfp4ValuesUseScalesAlongTheKeys) {
  // 20 keys: a block of 16 and one of 4; each channel has its own scale.
  const Rows rows = rows_of(20, 64, [](std::int64_t i, std::int64_t c) {
    return i < 16 ? (c == 3 ? 6.0F : 0.5F) : 3.0F;
  });
  const ValueOperand v = quantize_values(rows, VFormat::kNvfp4, Nvfp4Scale::kSix);
  ASSERT_EQ(v.block_scales.size(), 2U * 64U);
  EXPECT_NEAR(v.values.row(0)[0], 0.5F, 0.02F);
  EXPECT_NEAR(v.values.row(0)[3], 6.0F, 0.02F);
  EXPECT_NEAR(v.values.row(19)[0], 3.0F, 0.02F);
}

TEST(Prepare, TilesAreTransposedAndZeroFilled) {
  const Rows rows = rows_of(
      130, 64, [](std::int64_t i, std::int64_t c) { return static_cast<float>(1000 * c + i); });
  const std::vector<float> k = transposed_tiles(rows), v = padded_tiles(rows);
  ASSERT_EQ(k.size(), 2U * 64U * 128U);
  ASSERT_EQ(v.size(), k.size());
  EXPECT_EQ(k[5 * 128 + 7], 5007.0F);
  EXPECT_EQ(k[64 * 128 + 5 * 128 + 1], 5129.0F);
  EXPECT_EQ(k[64 * 128 + 5 * 128 + 2], 0.0F);
  EXPECT_EQ(v[129 * 64 + 5], 5129.0F);
  EXPECT_EQ(v[130 * 64 + 5], 0.0F);
}

TEST(Prepare, NonFiniteInputPoisonsItsScaleAndNothingElse) {
  Rows rows = random_rows(4, 64, 9);
  rows.row(2)[5] = std::numeric_limits<float>::infinity();
  const QkOperand operand = quantize_rows(rows, QkFormat::kInt8, 1, Nvfp4Scale::kSix);
  EXPECT_TRUE(std::isnan(operand.row_scales[2]));
  EXPECT_TRUE(std::isfinite(operand.row_scales[1]));
  const ValueOperand v = quantize_values(rows, VFormat::kE4M3Channel, Nvfp4Scale::kSix);
  EXPECT_TRUE(std::isnan(v.values.row(0)[5]));
  EXPECT_TRUE(std::isfinite(v.values.row(0)[6]));
}

}  // namespace
}  // namespace vcattn::cpu
