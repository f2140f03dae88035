#include "vcattn/numerics/online_softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "numerics/referee.h"
#include "support/portable_random.h"

namespace vcattn::numerics {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");
const double kLn2Exact = std::log(2.0);

struct Tile {
  float m = -kInf;
  float l = 0.0f;
};

// A tile of scores in octaves, summed relative to its own maximum.
Tile make_tile(const std::vector<float>& scores) {
  Tile tile;
  for (const float s : scores) tile.m = std::max(tile.m, s);
  double sum = 0.0;
  if (tile.m > -kInf) {
    for (const float s : scores) sum += std::exp2(static_cast<double>(s) - tile.m);
  }
  tile.l = static_cast<float>(sum);
  return tile;
}

double exact_lse(const std::vector<float>& octaves) {
  double m = -HUGE_VAL;
  for (const float s : octaves) m = std::max(m, static_cast<double>(s));
  double sum = 0.0;
  for (const float s : octaves) sum += std::exp2(s - m);
  return m * kLn2Exact + std::log(sum);
}

TEST(RescaleFactor, Values) {
  EXPECT_EQ(rescale_factor(3.25f, 3.25f), 1.0f);
  EXPECT_EQ(rescale_factor(-7.0f, 3.0f), 0x1p-10f);
  EXPECT_EQ(rescale_factor(-kInf, 3.0f), 0.0f);
  EXPECT_EQ(rescale_factor(-kInf, -kInf), 0.0f);
  EXPECT_EQ(rescale_factor(-1e30f, 1e30f), 0.0f);
  EXPECT_TRUE(std::isnan(rescale_factor(kNan, 1.0f)));
  EXPECT_TRUE(std::isnan(rescale_factor(1.0f, kNan)));
  EXPECT_TRUE(std::isnan(rescale_factor(kInf, kInf)));
}

TEST(SoftmaxStep, OneFactorIsExactlyOne) {
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    const float a = 10.0f * test::portable_normal(1, i);
    const float b = 10.0f * test::portable_normal(2, i);
    const SoftmaxStep step = softmax_step(a, b);
    ASSERT_EQ(step.m, std::max(a, b));
    ASSERT_EQ(std::max(step.keep, step.add), 1.0f);
    const double exact = std::exp2(static_cast<double>(std::min(a, b) - std::max(a, b)));
    ASSERT_LE(test::ulp_error(std::min(step.keep, step.add), exact), 1.0);
  }
  const SoftmaxStep first = softmax_step(-kInf, 5.0f);
  EXPECT_EQ(first.keep, 0.0f);
  EXPECT_EQ(first.add, 1.0f);
  const SoftmaxStep skipped = softmax_step(5.0f, -kInf);
  EXPECT_EQ(skipped.keep, 1.0f);
  EXPECT_EQ(skipped.add, 0.0f);
  const SoftmaxStep none = softmax_step(-kInf, -kInf);
  EXPECT_EQ(none.m, -kInf);
  EXPECT_EQ(none.keep, 0.0f);
  EXPECT_EQ(none.add, 0.0f);
  EXPECT_TRUE(std::isnan(softmax_step(1.0f, kNan).m));
  EXPECT_TRUE(std::isnan(softmax_step(kNan, 1.0f).m));
}

TEST(SoftmaxState, LseOfManyTilesAgreesWithFloat64) {
  for (std::uint32_t row = 0; row < 100; ++row) {
    SoftmaxState state;
    std::vector<float> all;
    const float spread = static_cast<float>(1 + row % 20);
    for (std::uint32_t t = 0; t < 40; ++t) {
      std::vector<float> scores;
      for (std::uint32_t i = 0; i < 16; ++i) {
        scores.push_back(spread * test::portable_normal(row, 16 * t + i) - 100.0f);
      }
      const Tile tile = make_tile(scores);
      softmax_update(state, tile.m, tile.l);
      all.insert(all.end(), scores.begin(), scores.end());
    }
    EXPECT_NEAR(softmax_lse(state, 0.0f), exact_lse(all), 3e-5);
    EXPECT_NEAR(softmax_lse(state, 2.5f), exact_lse(all) - 2.5, 3e-5);
  }
}

TEST(SoftmaxState, UpdateReturnsTheFactorsOfTheAccumulator) {
  SoftmaxState state{2.0f, 3.0f};
  const SoftmaxStep step = softmax_update(state, 4.0f, 5.0f);
  EXPECT_EQ(step.keep, 0.25f);
  EXPECT_EQ(step.add, 1.0f);
  EXPECT_EQ(state.m, 4.0f);
  EXPECT_EQ(state.l, 5.75f);
}

TEST(SoftmaxState, EmptyPartsChangeNothing) {
  const SoftmaxState some{3.5f, 1.75f};
  for (const SoftmaxState merged :
       {softmax_merge(some, SoftmaxState{}), softmax_merge(SoftmaxState{}, some)}) {
    EXPECT_EQ(merged.m, some.m);
    EXPECT_EQ(merged.l, some.l);
  }
  const SoftmaxState empty = softmax_merge(SoftmaxState{}, SoftmaxState{});
  EXPECT_EQ(empty.m, -kInf);
  EXPECT_EQ(empty.l, 0.0f);
  EXPECT_EQ(softmax_lse(empty, 0.0f), -kInf);
  EXPECT_EQ(softmax_lse(empty, 8.0f), -kInf);
  EXPECT_EQ(softmax_inverse_sum(empty.l), 0.0f);
}

TEST(SoftmaxState, MergeAgreesWithFloat64) {
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    const SoftmaxState a{20.0f * test::portable_normal(1, i), 1.0f + test::portable_uniform(2, i)};
    const SoftmaxState b{20.0f * test::portable_normal(3, i), 1.0f + test::portable_uniform(4, i)};
    const SoftmaxState merged = softmax_merge(a, b);
    const double exact = a.l * std::exp2(static_cast<double>(a.m) - merged.m) +
                         b.l * std::exp2(static_cast<double>(b.m) - merged.m);
    ASSERT_NEAR(merged.l / exact, 1.0, 1e-6);
  }
}

TEST(SoftmaxState, NanStaysVisible) {
  SoftmaxState state{1.0f, 1.0f};
  softmax_update(state, kNan, 1.0f);
  EXPECT_TRUE(std::isnan(softmax_lse(state, 0.0f)));
  EXPECT_TRUE(std::isnan(softmax_inverse_sum(state.l)));
  softmax_update(state, 2.0f, 1.0f);
  EXPECT_TRUE(std::isnan(state.l));
}

TEST(InverseSum, IsCorrectlyRounded) {
  EXPECT_EQ(softmax_inverse_sum(3.0f), 1.0f / 3.0f);
  EXPECT_EQ(softmax_inverse_sum(kInf), 0.0f);
}

TEST(MergeWeights, AgreeWithFloat64) {
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const float scale = i % 2 == 0 ? 1.0f : 20.0f;
    const float offset = i % 3 == 0 ? -300.0f : 5.0f;
    const float a = scale * test::portable_normal(11, i) + offset;
    const float b = scale * test::portable_normal(12, i) + offset;
    const MergeWeights w = merge_weights(a, b);
    const float m = std::max(a, b);
    const double ea = std::exp(static_cast<double>(a - m));
    const double eb = std::exp(static_cast<double>(b - m));
    ASSERT_LE(test::ulp_error(w.a, ea / (ea + eb)), 3.0);
    ASSERT_LE(test::ulp_error(w.b, eb / (ea + eb)), 3.0);
    const double lse = m + std::log(ea + eb);
    ASSERT_NEAR(w.lse, lse, 0x1p-23 * (std::abs(lse) + 2.0));
  }
}

TEST(MergeWeights, EmptyPartsHaveWeightZero) {
  const MergeWeights left = merge_weights(-kInf, 2.0f);
  EXPECT_EQ(left.a, 0.0f);
  EXPECT_EQ(left.b, 1.0f);
  EXPECT_EQ(left.lse, 2.0f);
  EXPECT_EQ(merge_outputs(kNan, 0.3f, left), 0.3f);  // an empty shard's output is not read
  const MergeWeights right = merge_weights(2.0f, -kInf);
  EXPECT_EQ(right.a, 1.0f);
  EXPECT_EQ(right.b, 0.0f);
  EXPECT_EQ(merge_outputs(0.3f, kInf, right), 0.3f);
  const MergeWeights none = merge_weights(-kInf, -kInf);
  EXPECT_EQ(none.lse, -kInf);
  EXPECT_EQ(merge_outputs(kNan, kNan, none), 0.0f);
}

TEST(MergeWeights, NanAndOverflowAreNotEmpty) {
  for (const float bad : {kNan, kInf}) {
    EXPECT_TRUE(std::isnan(merge_weights(bad, 1.0f).lse));
    EXPECT_TRUE(std::isnan(merge_weights(1.0f, bad).lse));
    EXPECT_TRUE(std::isnan(merge_outputs(1.0f, 1.0f, merge_weights(1.0f, bad))));
    EXPECT_TRUE(std::isnan(merge_outputs(1.0f, 1.0f, merge_weights(bad, 1.0f))));
  }
}

// Three shards of a row, one of them empty, merged in both orders against attention over all keys.
TEST(MergeOutputs, RingOfShardsAgreesWithTheWholeRow) {
  for (std::uint32_t row = 0; row < 200; ++row) {
    double out[3] = {};
    double lse[3] = {-HUGE_VAL, -HUGE_VAL, -HUGE_VAL};
    double total = 0.0;
    double weighted = 0.0;
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      double sum = 0.0;
      for (std::uint32_t i = 0; i < 32; ++i) {
        const double w = std::exp(3.0 * test::portable_normal(row, 64 * shard + i) + 4.0 * shard);
        const double v = test::portable_normal(row + 1000, 64 * shard + i);
        sum += w;
        out[shard] += w * v;
      }
      total += sum;
      weighted += out[shard];
      out[shard] /= sum;
      lse[shard] = std::log(sum);
    }
    const auto f = [](double x) { return static_cast<float>(x); };
    const MergeWeights w01 = merge_weights(f(lse[0]), f(lse[1]));
    const float out01 = merge_outputs(f(out[0]), f(out[1]), w01);
    const MergeWeights forward = merge_weights(w01.lse, f(lse[2]));
    EXPECT_NEAR(merge_outputs(out01, kNan, forward), weighted / total, 3e-6);
    EXPECT_NEAR(forward.lse, std::log(total), 3e-6);
    const MergeWeights w20 = merge_weights(f(lse[2]), f(lse[0]));
    const float out20 = merge_outputs(kNan, f(out[0]), w20);
    const MergeWeights backward = merge_weights(w20.lse, f(lse[1]));
    EXPECT_NEAR(merge_outputs(out20, f(out[1]), backward), weighted / total, 3e-6);
  }
}

}  // namespace
}  // namespace vcattn::numerics
