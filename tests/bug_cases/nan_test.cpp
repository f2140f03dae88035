// Rows NAN-01 to NAN-17: black frames.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bug_cases/bug_case.h"
#include "bug_cases/tail_sweep.h"
#include "support/portable_random.h"
#include "vcattn/numerics/online_softmax.h"

namespace vcattn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Largest |f(element)| of a view.
template <class F>
float largest(const TensorView& view, const F& f) {
  float most = 0.0F;
  for (std::int64_t b = 0; b < view.batch(); ++b) {
    for (std::int64_t h = 0; h < view.heads(); ++h) {
      for (std::int64_t s = 0; s < view.tokens(); ++s) {
        for (std::int64_t d = 0; d < view.dim(); ++d) {
          most = std::max(most, std::abs(f(element(view, b, h, s, d))));
        }
      }
    }
  }
  return most;
}

float largest(const TensorView& view) {
  return largest(view, [](float x) { return x; });
}

/// NAN-01: a head of identical values, one with a single other value, one of zeros, a normal one.
void identical_values(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 4, .queries = 512, .keys = 512, .v = [](const Index& at) {
                         if (at.h == 3) return portable_normal(3, at.i);
                         if (at.h == 1 && at.s == 77 && at.d == 5) return 1.0F;
                         return at.h == 2 ? 0.0F : 0.0010F;
                       }});
  const Outcome outcome = run(inputs.arguments(), recipe);
  ASSERT_TRUE(all_finite(outcome.out_view()));
  const float value = inputs.v.get(0, 0, 0, 0);
  const TensorView same = narrow(outcome.out_view(), 1, 0, 1);
  EXPECT_LE(largest(same, [&](float x) { return x - value; }), value / 128.0F);  // a bf16 ulp
  EXPECT_EQ(largest(narrow(outcome.out_view(), 1, 2, 1)), 0.0F);
}

/// NAN-02: tail tiles over memory full of NaN.
void poisoned_tails(const Recipe& recipe) {
  for (const Setup& setup : {Setup{.batch = 9, .q_heads = 20, .queries = 12, .keys = 12},
                             Setup{.q_heads = 20, .queries = 9, .keys = 9},
                             Setup{.q_heads = 4, .queries = 1001, .keys = 503}}) {
    poison_heap();
    expect_class(setup, recipe, sample_rows(setup.queries, 32));
  }
}

/// NAN-04: rows that see nothing, in both spellings of "nothing", and nobody sees anything.
void rows_without_keys(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 2, .queries = 16, .keys = 16, .dim = 64});
  for (const float hidden : {-kInfinity, std::numeric_limits<float>::lowest()}) {
    for (const std::int64_t first_hidden : {12, 0}) {
      SCOPED_TRACE(testing::Message() << "rows from " << first_hidden << " hidden by " << hidden);
      HostTensor mask(DType::kF32, {1, 1, 16, 16});
      Arguments a = inputs.arguments();
      a.mask = mask.view();
      const Outcome all_visible = run(a, recipe);
      mask.fill([&](const Index& at) { return at.s >= first_hidden ? hidden : 0.0F; });
      const Outcome outcome = run(a, recipe);
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t s = first_hidden; s < 16; ++s) {
          EXPECT_EQ(outcome.lse_at(0, h, s), -kInfinity);
          EXPECT_EQ(largest(narrow(narrow(outcome.out_view(), 1, h, 1), 2, s, 1)), 0.0F);
        }
      }
      const auto seen = [&](const TensorView& view) { return narrow(view, 2, 0, first_hidden); };
      if (first_hidden == 0) continue;
      EXPECT_TRUE(same_bits(seen(outcome.out_view()), seen(all_visible.out_view())));
      EXPECT_TRUE(same_bits(seen(outcome.lse_view()), seen(all_visible.lse_view())));
    }
  }
}

/// NAN-05: what a hidden key holds changes nothing, however it is hidden.
void poisoned_hidden_key(const Recipe& recipe) {
  Inputs inputs({.q_heads = 2, .queries = 20, .keys = 200, .dim = 64});
  HostTensor visible(DType::kBool, {1, 1, 1, 200}), bias(DType::kF32, {1, 2, 20, 200});
  visible.fill([](const Index& at) { return at.d == 7 || at.d >= 190 ? 0.0F : 1.0F; });
  bias.fill([](const Index& at) { return at.d == 7 || at.d >= 190 ? -kInfinity : 0.0F; });
  const std::int32_t length = 190;
  std::vector<Outcome> outcomes;
  for (const float hidden : {0.0F, kNan, kInfinity, -kInfinity}) {
    for (std::int64_t key = 190; key < 200; ++key) {
      for (const std::int64_t at : {std::int64_t{7}, key}) {
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t d = 0; d < 64; ++d) {
            inputs.k.set(0, h, at, d, hidden);
            inputs.v.set(0, h, at, d, hidden);
          }
        }
      }
    }
    Arguments by_bool = inputs.arguments(), by_bias = by_bool, by_length = by_bool;
    by_bool.mask = visible.view();
    by_bias.mask = bias.view();
    // A length hides the end only; the mask still hides key 7.
    by_length.mask = visible.view();
    by_length.key_lengths = &length;
    for (const Arguments& a : {by_bool, by_bias, by_length}) outcomes.push_back(run(a, recipe));
  }
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(same_bits(outcome.out_view(), outcomes[0].out_view()));
    EXPECT_TRUE(same_bits(outcome.lse_view(), outcomes[0].lse_view()));
  }
  EXPECT_TRUE(all_finite(outcomes[0].out_view()));
}

/// NAN-06: causal with more queries than keys leaves the first rows without a key.
void causal_without_keys(const Recipe& recipe) {
  const Inputs inputs({.queries = 9, .keys = 4, .causal = true});
  const Outcome outcome = run(inputs.arguments(), recipe);
  for (std::int64_t s = 0; s < 9; ++s) {
    EXPECT_EQ(outcome.lse_at(0, 0, s) == -kInfinity, s < 5) << s;
    EXPECT_EQ(largest(narrow(outcome.out_view(), 2, s, 1)) == 0.0F, s < 5) << s;
  }
}

/// NAN-07: values so small that the reciprocal of their scale would be infinite.
void tiny_values(const Recipe& recipe) {
  const auto v0 = [](const Index& at) {
    constexpr float kChoices[] = {1.0F, -1.0F, 1.5F, -1.5F, 2.0F, -2.0F};
    return kChoices[portable_hash(at.i) % 6];
  };
  const Setup setup{.queries = 64, .keys = 300, .v = v0};
  const Outcome at_one = run(Inputs(setup).arguments(), recipe);
  for (const int n : {40, 80, 118}) {
    SCOPED_TRACE(testing::Message() << "V * 2^-" << n);
    Setup small = setup;
    small.v = affine(v0, std::ldexp(1.0F, -n));
    const Outcome outcome = run(Inputs(small).arguments(), recipe);
    EXPECT_TRUE(all_finite(outcome.out_view()));
    EXPECT_LE(largest(outcome.out_view()), std::ldexp(2.0F, -n));
    if (n != 40) continue;
    HostTensor scaled(DType::kBF16, outcome.out_view().shape);
    scaled.fill(
        [&](const Index& at) { return std::ldexp(outcome.out.get(at.b, at.h, at.s, at.d), n); });
    EXPECT_TRUE(same_bits(scaled.view(), at_one.out_view()));
  }
  Setup small_keys{.queries = 64, .keys = 300};
  small_keys.k = affine(normal(2), std::ldexp(1.0F, -60));
  expect_class(small_keys, recipe);
}

/// NAN-08: a scale group of zeros.
void zero_tensors(const Recipe& recipe) {
  const auto zero_block = [](std::uint32_t seed) -> Values {
    return [seed](const Index& at) {
      return at.s >= 64 && at.s < 128 ? 0.0F : portable_normal(seed, at.i);
    };
  };
  const Setup plain{.queries = 200, .keys = 300};
  Setup zero_q = plain, zero_k = plain, zero_v = plain, blocks = plain;
  zero_q.q = zero_k.k = zero_v.v = constant(0.0F);
  blocks.q = zero_block(1);
  blocks.k = zero_block(2);
  blocks.v = zero_block(3);
  for (const Setup& setup : {zero_q, zero_k, blocks}) expect_class(setup, recipe);
  EXPECT_EQ(largest(run(Inputs(zero_v).arguments(), recipe).out_view()), 0.0F);
}

/// NAN-10: bfloat16 far outside the range of float16.
void beyond_half_range(const Recipe& recipe) {
  expect_class({.queries = 64, .keys = 1024, .v = affine(normal(3), 3e5F)}, recipe);
  const Setup hot{
      .queries = 64, .keys = 1024, .q = affine(normal(1), 200.0F), .k = affine(normal(2), 200.0F)};
  const Outcome outcome = run(Inputs(hot).arguments(), recipe);
  EXPECT_TRUE(all_finite(outcome.out_view()));
  EXPECT_TRUE(all_finite(outcome.lse_view()));
}

/// NAN-12: heavy tails, as FP8-stored weights make them.
Inputs heavy_tails() {
  const auto cubed = [](std::uint32_t seed, float factor) -> Values {
    return [=](const Index& at) { return factor * std::pow(portable_normal(seed, at.i), 3.0F); };
  };
  return Inputs({.queries = 512,  // of 4096
                 .keys = 4096,
                 .q = cubed(1, 20.0F),
                 .k = cubed(2, 20.0F),
                 .v = cubed(3, 50.0F)});
}

void heavy_tails_stay_finite(const Recipe& recipe) {
  const Inputs inputs = heavy_tails();
  const Outcome outcome = run(inputs.arguments(), recipe);
  EXPECT_TRUE(all_finite(outcome.out_view()));
  EXPECT_TRUE(all_finite(outcome.lse_view()));
  EXPECT_LE(largest(outcome.out_view()), 1.01F * largest(inputs.v.view()));
}

/// Scores beyond binary16 are NaN in recipes that accumulate them there: 65,504 codes, 5,676 nats.
/// Rows well within are not affected.
void heavy_tails_overflow_in_half(const Recipe& recipe) {
  const Inputs inputs = heavy_tails();
  const Outcome outcome = run(inputs.arguments(), recipe);
  int overflown = 0;
  for (std::int64_t s = 0; s < 512; ++s) {
    double most = 0.0;
    for (std::int64_t j = 0; j < 4096; ++j) {
      double score = 0.0;
      for (std::int64_t d = 0; d < 128; ++d) {
        score += static_cast<double>(inputs.q.get(0, 0, s, d)) * inputs.k.get(0, 0, j, d);
      }
      most = std::max(most, std::abs(score) / std::sqrt(128.0));
    }
    const bool finite = std::isfinite(outcome.lse_at(0, 0, s));
    EXPECT_TRUE(finite || most > 5000.0) << s << " " << most;
    overflown += finite ? 0 : 1;
  }
  EXPECT_GT(overflown, 0) << "the gap is closed: move this recipe to NAN-12";
}

/// NAN-13: one massive token among 4096 + 77. Its score is of the order of 1000 nats, so the 0.5 %
/// error of INT8 operands (3 % of E4M3) can bring it back into a row that it only just left:
/// p < 1e-3 alone, as the row has it, is not enough for the row to be without it. It must lie 20
/// standard deviations of that error below. Returns rel_l2 over those rows.
double massive_token(const Recipe& recipe) {
  const double margin = recipe.qk == QkFormat::kInt8 ? 100.0 : 600.0;
  const auto massive = [](std::uint32_t seed) -> Values {
    return [seed](const Index& at) {
      return portable_normal(seed, at.i) * (at.s == 3 ? 1000.0F : 1.0F);
    };
  };
  const Inputs inputs({.queries = 512, .keys = 4096 + 77, .k = massive(2), .v = massive(3)});
  const Arguments a = inputs.arguments();
  const Outcome outcome = run(a, recipe);
  EXPECT_TRUE(all_finite(outcome.out_view()));
  std::vector<std::int64_t> unaffected;
  for (std::int64_t s = 0; s < 512; ++s) {
    double score = 0.0;
    for (std::int64_t d = 0; d < 128; ++d) {
      score += static_cast<double>(inputs.q.get(0, 0, s, d)) * inputs.k.get(0, 0, 3, d);
    }
    if (score / std::sqrt(128.0) < -margin) unaffected.push_back(s);
  }
  EXPECT_GT(unaffected.size(), 64U);
  return compare(outcome, referee(a, unaffected), unaffected).rel_l2;
}

/// NAN-16 and SIL-17 ask the same of different causes: equal scores give the mean of V and the
/// logarithm of the count.
void zero_scale(const Recipe& recipe) {
  for (const std::int64_t keys : {63, 64, 65, 257}) {
    const Inputs inputs({.queries = 5, .keys = keys, .scale = 0.0F});
    const Outcome outcome = run(inputs.arguments(), recipe);
    const Metrics metrics = compare(outcome, referee(inputs.arguments()));
    EXPECT_LE(metrics.rel_l2, 0.04) << keys;
    EXPECT_NEAR(outcome.lse_at(0, 0, 4), std::log(static_cast<double>(keys)), kEqualScoresLse)
        << keys;
  }
}

/// NAN-17: parts of the keys attended to separately and merged by their LSE, one part 10^4 nats
/// below the others.
void merged_parts(const Recipe& recipe) {
  constexpr std::int64_t kKeys = 100000, kParts = 10, kPart = kKeys / kParts;
  const Inputs inputs({.keys = kKeys, .q = constant(1.0F), .k = [](const Index& at) {
                         const float low = at.s / kPart == 4 ? -1e4F / 11.3137F : 0.0F;
                         return 0.3F * portable_normal(2, at.i) + low;
                       }});
  const Arguments whole = inputs.arguments();
  std::vector<float> merged(128, 0.0F);
  float lse = -kInfinity;
  for (std::int64_t part = 0; part < kParts; ++part) {
    Arguments a = whole;
    a.k = narrow(a.k, 2, part * kPart, kPart);
    a.v = narrow(a.v, 2, part * kPart, kPart);
    const Outcome outcome = run(a, recipe, nullptr, {.dtype = DType::kF32});
    const numerics::MergeWeights weights = numerics::merge_weights(lse, outcome.lse_at(0, 0, 0));
    for (std::int64_t d = 0; d < 128; ++d) {
      merged[d] = numerics::merge_outputs(merged[d], outcome.out.get(0, 0, 0, d), weights);
    }
    lse = weights.lse;
  }
  const Outcome unsplit = run(whole, recipe, nullptr, {.dtype = DType::kF32});
  const Reference reference = referee(whole);
  double difference = 0.0, norm = 0.0;
  for (std::int64_t d = 0; d < 128; ++d) {
    difference += std::pow(static_cast<double>(merged[d]) - reference.out[d], 2);
    norm += std::pow(reference.out[d], 2);
    ASSERT_TRUE(std::isfinite(merged[d]));
    // Where parts and whole are quantized, they differ by that: each is held against the referee.
    if (recipe.qk == QkFormat::kFloat) {
      EXPECT_NEAR(merged[d], unsplit.out.get(0, 0, 0, d), 1e-3);
    }
  }
  EXPECT_LE(std::sqrt(difference / norm), class_of(recipe).rel_l2);
  EXPECT_NEAR(lse, reference.lse[0], class_of(recipe).lse);
}

const bool kRegistered = register_cases(
    "Nan",
    {
        {"NAN-01", kAll, identical_values},
        {"NAN-02", kAll, poisoned_tails},
        {"NAN-03", kAll8,
         [](const Recipe& r) {
           expect_class_at_every_key_count({.q_heads = 16, .keys = 300, .dim = 64}, r);
         }},
        {"NAN-04", kAll, rows_without_keys},
        {"NAN-05", kAll, poisoned_hidden_key},
        {"NAN-06", kAll, causal_without_keys},
        {"NAN-07", kAll8, tiny_values},
        {"NAN-08", kAll, zero_tensors},
        {"NAN-09", kAll,
         [](const Recipe& r) {
           expect_class({.queries = 16,  // rows of uniform attention are all alike
                         .keys = 16384,
                         .dtype = DType::kF16,
                         .q = constant(0.0F),
                         .v =
                             [](const Index& at) {
                               return 300.0F * std::abs(portable_normal(3, at.i)) + 200.0F;
                             }},
                        r);
         }},
        {"NAN-10", kAll, beyond_half_range},
        {"NAN-11", kAll,
         [](const Recipe& r) {
           for (const std::int64_t keys : {257, 512}) {  // 1 head of 12, 8192 queries of 32760
             expect_class({.queries = 8192 - 8, .keys = keys}, r, sample_rows(8184, 64));
           }
         }},
        {"NAN-12",
         {"vc8", "vc8-paper", "vc8-exp", "vc4", "sage2", "sage3", "fp8", "exact"},
         heavy_tails_stay_finite},
        {"NAN-12_gap", {"vc8-fast", "vc8-shaped"}, heavy_tails_overflow_in_half},
        {"NAN-13", {"vc8-paper"}, [](const Recipe& r) { EXPECT_LE(massive_token(r), 0.15); }},
        // One scale for the keys of a head: beside the massive one all others round to INT8 zero,
        // or to E4M3 subnormals.
        {"NAN-13_gap",
         {"vc8", "vc8-exp", "vc8-fast", "vc8-shaped"},
         [](const Recipe& r) {
           const double error = massive_token(r);
           EXPECT_LE(error, 1.0);
           EXPECT_GT(error, 0.15) << "the gap is closed: move this recipe to NAN-13";
         }},
        {"NAN-15", kAll8,
         [](const Recipe& r) {
           expect_class_at_every_key_count({.q_heads = 16, .kv_heads = 1, .keys = 600}, r);
         }},
        {"NAN-16",
         {"vc8", "vc8-paper", "vc8-exp", "vc8-fast", "vc8-shaped", "vc4", "sage2", "fp8", "exact"},
         zero_scale},
        {"NAN-17", {"exact", "vc8", "vc8-fast"}, merged_parts},
    });

}  // namespace
}  // namespace vcattn::test
