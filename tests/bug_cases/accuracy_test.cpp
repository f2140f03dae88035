// Rows ACC-01 to ACC-15: results that were finite and not accurate enough in one call. What becomes
// of that in a model is accuracy_model_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bug_cases/bug_case.h"
#include "bug_cases/emulation.h"
#include "bug_cases/tail_sweep.h"
#include "support/portable_random.h"
#include "vcattn/numerics/exp_cast.h"

namespace vcattn::test {
namespace {

/// Scores of q = 1, k = x (all channels): x * 128 / sqrt(128).
constexpr float kScorePerUnit = 11.3137085F;

/// ||out - ref|| / ||ref|| of every row the reference holds.
std::vector<double> row_errors(const Outcome& outcome, const Reference& reference,
                               const std::vector<std::int64_t>& rows) {
  const TensorView out = outcome.out_view();
  std::vector<double> errors;
  const double* ref = reference.out.data();
  for (std::int64_t b = 0; b < out.batch(); ++b) {
    for (std::int64_t h = 0; h < out.heads(); ++h) {
      for (const std::int64_t row : rows) {
        double difference = 0.0, norm = 0.0;
        for (std::int64_t d = 0; d < out.dim(); ++d, ++ref) {
          const double e = element(out, b, h, row, d) - *ref;
          difference += e * e;
          norm += *ref * *ref;
        }
        errors.push_back(std::sqrt(difference / norm));
      }
    }
  }
  return errors;
}

double rms(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double x : values) sum += x * x;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

/// ACC-01: the score of key j is 2.7 * floor(j / 64) nats, so that the running maximum rises by
/// less than a lazy rescale would notice.
double staircase_lse_error(const Recipe& recipe) {
  const Inputs inputs(
      {.q_heads = 1, .queries = 4, .keys = 1024, .q = constant(1.0F), .k = [](const Index& at) {
         return 2.7F * static_cast<float>(at.s / 64) / kScorePerUnit;
       }});
  const Outcome outcome = run(inputs.arguments(), recipe);
  const Reference reference = referee(inputs.arguments());
  EXPECT_TRUE(within({"staircase", 0.11, 0.99, 0.99, 1.0}, outcome, reference));
  return compare(outcome, reference).lse_max_abs;
}

/// ACC-02: the excess over what the formats cost would be a bug of the kernel. Queries do not
/// interact: 48 of them stand for S, 2 query heads over 1 for the 32 over 2 of the report.
void no_worse_than_emulation(const Recipe& recipe) {
  for (const std::int64_t keys : {512, 1024, 2048, 8192}) {
    SCOPED_TRACE(testing::Message() << keys << " keys");
    const Inputs inputs({.q_heads = 2, .kv_heads = 1, .queries = 48, .keys = keys});
    VSmoothState state;
    const Outcome outcome = run(inputs.arguments(), recipe, &state);
    const Reference reference = referee(inputs.arguments());
    Reference emulation{emulate(inputs.arguments(), recipe, {state.grouping()->permutation(0, 0)}),
                        reference.lse};
    double difference = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < emulation.out.size(); ++i) {
      difference += std::pow(emulation.out[i] - reference.out[i], 2);
      norm += reference.out[i] * reference.out[i];
    }
    EXPECT_LE(compare(outcome, reference).rel_l2, 1.15 * std::sqrt(difference / norm));
    // Stronger than the row: the same codes, but for the few that float32 rounds the other way.
    if (recipe.k_scale_rows == 1) {
      EXPECT_LE(compare(outcome, emulation).rel_l2, 0.01);
    }
  }
}

/// ACC-03: weights sum to 1 whatever the format, so that a constant V comes back.
void constant_values(const Recipe& recipe) {
  for (const float c : {1e-3F, 1.0F, -300.0F}) {
    SCOPED_TRACE(testing::Message() << "V = " << c);
    const Inputs inputs({.q_heads = 2,
                         .queries = 512,  // of 4096: rows do not interact
                         .keys = 4096,
                         .q = affine(normal(1), 4.0F),
                         .v = constant(c)});
    const Outcome outcome = run(inputs.arguments(), recipe);
    const float stored = inputs.v.get(0, 0, 0, 0);
    float worst = 0.0F;
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t s = 0; s < 512; ++s) {
        for (std::int64_t d = 0; d < 128; ++d) {
          worst = std::max(worst, std::abs(outcome.out.get(0, h, s, d) - stored));
        }
      }
    }
    EXPECT_LE(worst, std::abs(stored) / 256.0F);
  }
}

/// ACC-05: V = N(1, 1) and 131,072 keys: an accumulator of 22 bits loses the sum.
void long_context(const Recipe& recipe) {
  const Inputs inputs({.queries = 8, .keys = 131072, .v = affine(normal(3), 1.0F, 1.0F)});
  const Outcome outcome = run(inputs.arguments(), recipe);
  EXPECT_TRUE(
      within({"long context", 0.005, 0.9999, 0.9999, 0.05}, outcome, referee(inputs.arguments())));
}

/// ACC-05: a head gives the same bits alone and among the 40 of an unsplit model. The length does
/// not matter to that and shrinks to 300.
void tensor_parallel_invariance(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 40, .queries = 64, .keys = 300});
  const Arguments all = inputs.arguments();
  const Outcome together = run(all, recipe);
  for (const std::int64_t first : {0, 10, 39}) {
    const std::int64_t count = first == 10 ? 20 : 1;  // two ranks of a split, and single heads
    Arguments part = all;
    for (TensorView* view : {&part.q, &part.k, &part.v}) *view = narrow(*view, 1, first, count);
    const Outcome alone = run(part, recipe);
    EXPECT_TRUE(same_bits(alone.out_view(), narrow(together.out_view(), 1, first, count)));
    EXPECT_TRUE(same_bits(alone.lse_view(), narrow(together.lse_view(), 1, first, count)));
  }
}

/// ACC-06: one live key, 4095 keys 200 nats below it. The output is its value; returns the largest
/// error of the LSE.
double one_live_key(const Recipe& recipe) {
  constexpr std::int64_t kLive = 1234;
  const float unit = 100.0F / kScorePerUnit;
  const Inputs inputs({.queries = 4, .keys = 4096, .q = constant(1.0F), .k = [=](const Index& at) {
                         return at.s == kLive ? unit : -unit;
                       }});
  const Outcome outcome = run(inputs.arguments(), recipe);
  const Reference reference = referee(inputs.arguments());
  Tolerance tolerance = class_of(recipe);
  tolerance.lse = 10.0;  // the caller's business
  EXPECT_TRUE(within(tolerance, outcome, reference));
  return compare(outcome, reference).lse_max_abs;
}

void thirty_nats_below(const Recipe&) {
  for (const auto& form : {numerics::kExpCastPaper, numerics::kExpCastTileLocal}) {
    const float below = -30.0F * numerics::kCodesPerNat;
    EXPECT_EQ(numerics::exp_cast_code(below, numerics::exp_cast_bias(form, 0.0F)), 0);
  }
}

/// ACC-07: a high cosine hides single bad elements. 4 heads for 32, 512 queries for 4096: neither
/// interact.
void no_bad_elements(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 4, .queries = 512, .keys = 4096});
  const auto rows = sample_rows(512, 128);
  const Outcome outcome = expect_class(inputs.arguments(), recipe, rows);
  const Reference reference = referee(inputs.arguments(), rows);
  const Metrics metrics = compare(outcome, reference, rows);
  const double error_rms = metrics.rel_l2 * rms(reference.out);
  EXPECT_LE(metrics.max_abs, 8.0 * error_rms);
}

/// ACC-08: short causal prompts, row by row.
void short_prompts(const Recipe& recipe) {
  for (const std::int64_t length : {37, 64, 100, 333}) {
    SCOPED_TRACE(testing::Message() << length << " tokens");
    // 8 x 32 heads of the report up to 100 tokens; 2 x 8 at 333, heads being independent.
    const std::int64_t batch = length > 100 ? 2 : 8, heads = length > 100 ? 8 : 32;
    const Inputs inputs(
        {.batch = batch, .q_heads = heads, .queries = length, .keys = length, .causal = true});
    const Outcome outcome = run(inputs.arguments(), recipe);
    const Reference reference = referee(inputs.arguments());
    for (const HeadError& head : compare(outcome, reference).heads) {
      ASSERT_GE(head.worst_row_cosine, 0.99) << head.batch << " " << head.head;
    }
    std::vector<double> errors = row_errors(outcome, reference, sample_rows(length, length));
    std::sort(errors.begin(), errors.end());
    EXPECT_LE(errors.back(), 5.0 * errors[errors.size() / 2]);
  }
}

/// ACC-10: causal with fewer queries than keys is bottom-right aligned. The referee gets the
/// triangle as a tensor, so that the flag is not its own judge. 1 x 2 heads for 4 x 12.
void bottom_right_causal(const Recipe& recipe) {
  constexpr std::int64_t kQueries = 1560, kKeys = 4680;
  const Inputs inputs({.q_heads = 2, .queries = kQueries, .keys = kKeys, .causal = true});
  HostTensor triangle(DType::kBool, {1, 1, kQueries, kKeys});
  triangle.fill([](const Index& at) { return at.d <= at.s + kKeys - kQueries ? 1.0F : 0.0F; });
  Arguments masked = inputs.arguments();
  masked.causal = false;
  masked.mask = triangle.view();
  const auto rows = sample_rows(kQueries, 24);
  const Outcome outcome = run(inputs.arguments(), recipe);
  EXPECT_TRUE(within(class_of(recipe), outcome, referee(masked, rows), rows));
}

/// ACC-12: 16 channels of K 30 times larger, alternating in sign from key to key so that the mean
/// key cannot help; Q smaller by as much.
Setup channel_outliers() {
  return {
      .queries = 256,  // of 2048
      .keys = 2048,
      .q = [](const Index& at) { return portable_normal(1, at.i) / (at.d < 16 ? 30.0F : 1.0F); },
      .k =
          [](const Index& at) {
            const float sign = at.s % 2 == 0 ? 1.0F : -1.0F;
            return portable_normal(2, at.i) * (at.d < 16 ? 30.0F * sign : 1.0F);
          }};
}

/// ACC-13: a large mean key, and every fourth query against it: scores of -200 to -490.
Setup low_scores() {
  const float along = 1.0F / std::sqrt(128.0F);
  return {.queries = 2048,
          .keys = 2048,
          .q =
              [=](const Index& at) {
                return portable_normal(1, at.i) - (at.s % 4 == 0 ? 100.0F * along : 0.0F);
              },
          .k = [=](const Index& at) { return portable_normal(2, at.i) + 40.0F * along; }};
}

double rel_l2_of(const Setup& setup, const Recipe& recipe) {
  const Inputs inputs(setup);
  const auto rows = sample_rows(setup.queries, 128);
  return compare(run(inputs.arguments(), recipe), referee(inputs.arguments(), rows), rows).rel_l2;
}

/// ACC-14: the first causal rows average over few keys. Row 0 is one value as E4M3 has it: off by
/// up to 1/28 of the largest of its channel, which is 0.5 of the rms of these rows. The row's 0.35
/// would ask for more bits than the format has.
void early_causal_rows(const Recipe& recipe) {
  const Inputs inputs({.queries = 2048, .keys = 2048, .causal = true});
  const auto rows = sample_rows(128, 128);
  const Outcome outcome = run(inputs.arguments(), recipe);
  const Reference reference = referee(inputs.arguments(), rows);
  const Metrics metrics = compare(outcome, reference, rows);
  EXPECT_LE(metrics.rel_l2, 0.09);
  EXPECT_LE(metrics.max_abs / rms(reference.out), 0.5);
}

const bool kRegistered = register_cases(
    "Accuracy",
    {
        {"ACC-01", kAll8,
         [](const Recipe& r) {
           expect_class_at_every_key_count({.q_heads = 6, .kv_heads = 1, .keys = 1023}, r);
         }},
        {"ACC-01_staircase",
         {"vc8", "vc8-paper", "vc8-exp", "sage2", "fp8"},
         [](const Recipe& r) { EXPECT_LE(staircase_lse_error(r), 0.1); }},
        // The rotation leaves these vectors one channel: the score is one product of two E4M3
        // values, known to 3 %.
        {"ACC-01_gap",
         {"vc8-fast", "vc8-shaped"},
         [](const Recipe& r) {
           const double error = staircase_lse_error(r);
           EXPECT_GT(error, 0.1) << "the gap is closed: move this recipe to ACC-01_staircase";
         }},
        {"ACC-02", kVc8, no_worse_than_emulation},
        {"ACC-03", kAll, constant_values},
        // Restored means would hide weights that do not sum to 1.
        {"ACC-03_unsmoothed",
         {"vc8", "vc8-paper", "vc8-exp", "vc8-fast", "vc8-shaped", "vc4"},
         [](Recipe r) {
           r.v_smooth = VSmooth::kOff;
           constant_values(r);
         }},
        {"ACC-04", kAll,
         [](const Recipe& r) {
           expect_class({.queries = 256, .keys = 256, .q = affine(normal(1), 0.25F)}, r);
         }},
        {"ACC-05", {"vc8", "vc8-fast", "sage2"}, long_context},
        {"ACC-05_heads", kAll, tensor_parallel_invariance},
        {"ACC-06", {"sage2", "exact"}, [](const Recipe& r) { EXPECT_LE(one_live_key(r), 2e-3); }},
        // The paper's form places the maximum 0.35 codes above a code, which its LSE cannot know:
        // the mean over an octave is taken out, up to 0.012 remains for a single key.
        {"ACC-06", {"vc8-paper"}, [](const Recipe& r) { EXPECT_LE(one_live_key(r), 0.012); }},
        // Fixed-point scores: the rotation leaves these vectors one channel, whose product of 14
        // bits the window cuts to 6. That is 2 nats a unit here, and the LSE is off by half of one.
        {"ACC-06_gap",
         {"vc8", "vc8-exp"},
         [](const Recipe& r) {
           const double error = one_live_key(r);
           EXPECT_LE(error, 1.1);
           EXPECT_GT(error, kT8.lse) << "the gap is closed: move this recipe to ACC-06";
         }},
        {"ACC-06_code", {}, thirty_nats_below},
        {"ACC-07",
         {"vc8", "vc8-paper", "vc8-exp", "vc8-fast", "vc8-shaped", "vc4"},
         no_bad_elements},
        {"ACC-08", kAll8, short_prompts},
        {"ACC-09", kAll,
         [](const Recipe& r) {
           expect_class({.q_heads = 2,  // of 16
                         .queries = 2048,
                         .keys = 8192,
                         .dim = 96,
                         .dtype = DType::kF16},
                        r, sample_rows(2048, 24));
         }},
        {"ACC-10", kAll, bottom_right_causal},
        {"ACC-12",
         {"vc8", "vc8-exp", "vc8-fast", "vc8-shaped", "fp8"},
         [](const Recipe& r) { EXPECT_LE(rel_l2_of(channel_outliers(), r), kT8.rel_l2); }},
        // INT8 without a balance between the channels of Q and K: the fault that the row is about.
        {"ACC-12_control",
         {"vc8-paper", "sage2"},
         [](const Recipe& r) { EXPECT_GT(rel_l2_of(channel_outliers(), r), kT8.rel_l2); }},
        {"ACC-13",
         {"vc8", "vc8-paper", "vc8-exp", "sage2"},
         [](const Recipe& r) { EXPECT_LE(rel_l2_of(low_scores(), r), 0.25); }},
        // E4M3 keys with one scale per head: those that win these rows lie between two codes 7 %
        // apart, where a scale per token has its largest channel exact (0.12).
        {"ACC-13_gap",
         {"vc8-fast", "vc8-shaped"},
         [](const Recipe& r) {
           const double error = rel_l2_of(low_scores(), r);
           EXPECT_LE(error, 0.65);
           EXPECT_GT(error, 0.25) << "the gap is closed: move this recipe to ACC-13";
         }},
        {"ACC-13_control",
         {"fp8"},  // does not smooth K
         [](const Recipe& r) { EXPECT_GT(rel_l2_of(low_scores(), r), 0.25); }},
        {"ACC-14", kAll8, early_causal_rows},
        {"ACC-15", kAll,
         [](const Recipe& r) { expect_class({.q_heads = 1, .queries = 64, .keys = 32760}, r); }},
    });

}  // namespace
}  // namespace vcattn::test
