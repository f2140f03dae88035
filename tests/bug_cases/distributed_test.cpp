// Rows DST-01 to DST-07: log-sum-exp, merging of shards, padding for equal shards.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "bug_cases/bug_case.h"
#include "bug_cases/tolerance.h"
#include "support/portable_random.h"
#include "vcattn/numerics/online_softmax.h"

namespace vcattn::test {
namespace {

/// Two results over disjoint keys merged as ring attention does.
struct Merged {
  std::vector<double> out, lse;
};

/// The merge of flash-attn's ring users, in natural logarithms: lse = lse_a + log1p(exp(lse_b -
/// lse_a)).
void merge(Merged& total, const Outcome& part) {
  const TensorView out = part.out_view();
  if (total.lse.empty()) {
    total.out.assign(static_cast<std::size_t>(out.heads() * out.tokens() * out.dim()), 0.0);
    total.lse.assign(static_cast<std::size_t>(out.heads() * out.tokens()), -INFINITY);
  }
  std::size_t row = 0;
  for (std::int64_t h = 0; h < out.heads(); ++h) {
    for (std::int64_t s = 0; s < out.tokens(); ++s, ++row) {
      const double a = total.lse[row], b = part.lse_at(0, h, s);
      const double most = std::max(a, b);
      if (std::isinf(most)) continue;
      const double lse = most + std::log(std::exp(a - most) + std::exp(b - most));
      for (std::int64_t d = 0; d < out.dim(); ++d) {
        double& x =
            total.out[row * static_cast<std::size_t>(out.dim()) + static_cast<std::size_t>(d)];
        x = std::exp(a - lse) * x + std::exp(b - lse) * element(out, 0, h, s, d);
      }
      total.lse[row] = lse;
    }
  }
}

/// DST-01: shards of K with means of their own. The LSE of each is that of the scores it was given,
/// not of the smoothed ones, so that the merge is the whole.
void shards_with_means(const Recipe& recipe) {
  constexpr std::int64_t kShards = 4, kShard = 300;
  const Inputs inputs(
      {.q_heads = 2, .queries = 100, .keys = kShards * kShard, .k = [](const Index& at) {
         // The mean moves with the shard and differs between channels.
         const auto shard = static_cast<float>(at.s / kShard);
         return portable_normal(2, at.i) + shard * (at.d % 3 == 0 ? 1.0F : -0.5F);
       }});
  Merged merged;
  for (std::int64_t i = 0; i < kShards; ++i) {
    Arguments a = inputs.arguments();
    a.k = narrow(a.k, 2, i * kShard, kShard);
    a.v = narrow(a.v, 2, i * kShard, kShard);
    merge(merged, expect_class(a, recipe));
  }
  const Reference reference = referee(inputs.arguments());
  double difference = 0.0, norm = 0.0, lse = 0.0;
  for (std::size_t i = 0; i < merged.out.size(); ++i) {
    difference += std::pow(merged.out[i] - reference.out[i], 2);
    norm += reference.out[i] * reference.out[i];
  }
  for (std::size_t i = 0; i < merged.lse.size(); ++i) {
    lse = std::max(lse, std::abs(merged.lse[i] - reference.lse[i]));
  }
  EXPECT_LE(std::sqrt(difference / norm), class_of(recipe).rel_l2);
  EXPECT_LE(lse, class_of(recipe).lse);
}

/// DST-02: an LSE per row, each in its place: they rise by half a nat from row to row.
void lse_row_order(const Recipe& recipe) {
  const Inputs inputs({.queries = 128,
                       .keys = 256,
                       .q =
                           [](const Index& at) {
                             return 0.5F * portable_normal(1, at.i) +
                                    static_cast<float>(at.s) / 23.0F;
                           },
                       .k = affine(normal(2), 0.125F, 1.0F)});
  const Outcome outcome = run(inputs.arguments(), recipe);
  const Reference reference = referee(inputs.arguments());
  for (std::int64_t s = 0; s < 128; ++s) {
    const auto row = static_cast<std::size_t>(s);
    EXPECT_NEAR(outcome.lse_at(0, 0, s), reference.lse[row], class_of(recipe).lse) << s;
  }
  EXPECT_GT(reference.lse[127] - reference.lse[0], 50.0);
}

/// DST-03, the half without devices: calls from several threads at once do not meet.
void parallel_callers(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 2, .queries = 300, .keys = 500});
  const Outcome expected = run(inputs.arguments(), recipe);
  std::vector<std::optional<Outcome>> outcomes(4);
  std::vector<std::thread> callers;
  for (auto& outcome : outcomes) {
    callers.emplace_back([&] {
      for (int i = 0; i < 3; ++i) outcome = run(inputs.arguments(), recipe);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(same_bits(outcome->out_view(), expected.out_view()));
    EXPECT_TRUE(same_bits(outcome->lse_view(), expected.lse_view()));
  }
}

/// DST-05: the LSE is in natural logarithms: merged with the formula of others, two halves are the
/// whole to 1e-3 (where nothing is quantized; the class of the recipe where it is).
void natural_logarithm(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 2, .queries = 64, .keys = 640});
  Merged merged;
  for (const std::int64_t first : {0, 320}) {
    Arguments a = inputs.arguments();
    a.k = narrow(a.k, 2, first, 320);
    a.v = narrow(a.v, 2, first, 320);
    merge(merged, run(a, recipe, nullptr, {.dtype = DType::kF32}));
  }
  const Reference reference = referee(inputs.arguments());
  const bool exact = recipe.qk == QkFormat::kFloat;
  for (std::size_t i = 0; i < merged.lse.size(); ++i) {
    ASSERT_NEAR(merged.lse[i], reference.lse[i], exact ? 1e-5 : class_of(recipe).lse);
  }
  for (std::size_t i = 0; exact && i < merged.out.size(); ++i) {
    ASSERT_NEAR(merged.out[i], reference.out[i], 1e-5);
  }
}

/// DST-06: keys padded so that ranks get equal shares: a length takes the padding out of the
/// softmax, the means and the clusters, whatever it holds. 57,826 tokens over 8 ranks leave 6 to
/// pad, and so do 1,282.
void padded_shards(const Recipe& recipe) {
  constexpr std::int64_t kTokens = 1282, kPadded = 1288;
  for (const float padding : {0.0F, 1e3F, std::numeric_limits<float>::quiet_NaN()}) {
    const auto padded = [&](std::uint32_t seed) -> Values {
      return
          [=](const Index& at) { return at.s < kTokens ? portable_normal(seed, at.i) : padding; };
    };
    const Inputs inputs({.queries = 90, .keys = kPadded, .k = padded(2), .v = padded(3)});
    Arguments a = inputs.arguments();
    const std::int32_t length = kTokens;
    a.key_lengths = &length;
    const Outcome outcome = run(a, recipe);
    Arguments unpadded = inputs.arguments();
    unpadded.k = narrow(unpadded.k, 2, 0, kTokens);
    unpadded.v = narrow(unpadded.v, 2, 0, kTokens);
    const Outcome expected = run(unpadded, recipe);
    EXPECT_TRUE(same_bits(outcome.out_view(), expected.out_view()));
    EXPECT_TRUE(same_bits(outcome.lse_view(), expected.lse_view()));
  }
}

/// DST-07: a shard without visible keys weighs nothing, on either side of the merge.
void empty_shard(const Recipe& recipe) {
  const Inputs inputs({.queries = 20, .keys = 200});
  Arguments a = inputs.arguments();
  const Outcome normal_shard = run(a, recipe);
  const std::int32_t none = 0;
  a.key_lengths = &none;
  const Outcome empty = run(a, recipe);
  a.key_lengths = nullptr;
  a.k = narrow(a.k, 2, 0, 0);
  a.v = narrow(a.v, 2, 0, 0);
  EXPECT_TRUE(same_bits(run(a, recipe).lse_view(), empty.lse_view()));
  for (std::int64_t s = 0; s < 20; ++s) {
    const float lse = normal_shard.lse_at(0, 0, s);
    ASSERT_EQ(empty.lse_at(0, 0, s), -INFINITY);
    for (const auto& w :
         {numerics::merge_weights(lse, -INFINITY), numerics::merge_weights(-INFINITY, lse)}) {
      EXPECT_EQ(w.lse, lse);
      EXPECT_EQ(w.a + w.b, 1.0F);
    }
    const auto w = numerics::merge_weights(-INFINITY, lse);
    for (std::int64_t d = 0; d < 128; ++d) {
      ASSERT_EQ(empty.out.get(0, 0, s, d), 0.0F);
      const float x = normal_shard.out.get(0, 0, s, d);
      ASSERT_EQ(numerics::merge_outputs(empty.out.get(0, 0, s, d), x, w), x);
    }
  }
}

/// Without fp8, which does not smooth K: its scores lose what the mean adds to them.
const std::vector<std::string> kSmoothed{"vc8", "vc8-paper", "vc8-exp", "vc8-fast", "vc8-shaped",
                                         "vc4", "sage2",     "sage3",   "exact"};

const bool kRegistered = register_cases("Distributed", {
                                                           {"DST-01", kSmoothed, shards_with_means},
                                                           {"DST-02", kSmoothed, lse_row_order},
                                                           {"DST-03", kAll, parallel_callers},
                                                           {"DST-05", kAll, natural_logarithm},
                                                           {"DST-06", kAll, padded_shards},
                                                           {"DST-07", kAll, empty_shard},
                                                       });

}  // namespace
}  // namespace vcattn::test
