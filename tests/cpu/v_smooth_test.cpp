// V-Smooth: what it must not change, what it must gain, and the state that carries it over steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bug_cases/call.h"

namespace vcattn::test {
namespace {

/// V with three well separated populations in an interleaved order; Q and K are N(0, 1).
Setup populations(std::int64_t tokens) {
  test::Setup setup{.q_heads = 2, .queries = tokens, .keys = tokens, .dtype = DType::kF32};
  setup.v = [](const Index& at) {
    const float centre = at.d % 3 == at.s % 3 ? 4.0F : -1.0F;
    return centre + 0.2F * normal(3)(at);
  };
  return setup;
}

double error_of(const Arguments& a, const Recipe& r, VSmoothState* state = nullptr) {
  return compare(run(a, r, state), referee(a)).rel_l2;
}

Recipe vc8(VSmooth mode) {
  Recipe r = recipe("vc8");
  r.v_smooth = mode;
  return r;
}

/// Only V is quantized, so that the error is V's alone.
Recipe only_v(VSmooth mode) {
  Recipe r = vc8(mode);
  r.qk = QkFormat::kFloat;
  r.p = PFormat::kFloat;
  r.keys_per_cluster = 64;  // more clusters than populations, so that k-means cannot miss one
  return r;
}

TEST(VSmooth, GainsOnClusteredValuesAndNothingOnGaussianOnes) {
  const Inputs clustered(populations(768));
  const double sequence = error_of(clustered.arguments(), only_v(VSmooth::kSequence));
  const double grouped = error_of(clustered.arguments(), only_v(VSmooth::kClustered));
  // The residual shrinks from the distance of populations (about 2.4 rms) to their spread (0.2).
  EXPECT_LT(grouped, 0.2 * sequence);
  EXPECT_LT(sequence, error_of(clustered.arguments(), only_v(VSmooth::kOff)));

  // The negative control: i.i.d. values have nothing to remove, so order does not matter.
  const Inputs gaussian({.q_heads = 2, .queries = 768, .keys = 768, .dtype = DType::kF32});
  const double control = error_of(gaussian.arguments(), only_v(VSmooth::kSequence));
  EXPECT_NEAR(error_of(gaussian.arguments(), only_v(VSmooth::kClustered)), control, 0.05 * control);
}

TEST(VSmooth, DoesNotChangeExactAttention) {
  // With nothing quantized, permutation and means are an identity: float32 rounding is all there
  // is.
  const Inputs inputs(populations(500));
  for (const VSmooth mode : {VSmooth::kSequence, VSmooth::kClustered}) {
    Recipe r = recipe("exact");
    r.v_smooth = mode;
    EXPECT_LE(error_of(inputs.arguments(), r), 2e-6);
  }
}

TEST(VSmooth, MeanRestorationIsExactInExactArithmetic) {
  // Values are small integers whose block means are integers too, scores are equal: every term is
  // exact in every format, so the output must be the exact mean.
  test::Setup setup{.queries = 4, .keys = 256, .dtype = DType::kF32};
  setup.q = constant(0.0F);
  setup.v = [](const Index& at) {
    return static_cast<float>((at.s < 128 ? 40 : -24) + (at.s % 2 == 0 ? 3 : -3));
  };
  const Inputs inputs(setup);
  const Outcome outcome = run(inputs.arguments(), vc8(VSmooth::kSequence));
  for (std::int64_t c = 0; c < 128; ++c) EXPECT_EQ(outcome.out.get(0, 0, 2, c), 8.0F);
}

TEST(VSmooth, OutputIsEquivariantInTheOrderOfTheKeys) {
  // Rolling keys and values by 100 is another order of the same set: the answer is the same up to
  // the grouping, and for a permutation-free recipe in exact arithmetic identical.
  const test::Setup setup = populations(640);
  const Inputs inputs(setup);
  test::Setup rolled = setup;
  rolled.k = [&](const Index& at) { return inputs.k.get(at.b, at.h, (at.s + 100) % 640, at.d); };
  rolled.v = [&](const Index& at) { return inputs.v.get(at.b, at.h, (at.s + 100) % 640, at.d); };
  const Inputs other(rolled);
  const Reference reference = referee(inputs.arguments());
  const double a = compare(run(inputs.arguments(), recipe("vc8")), reference).rel_l2;
  const double b = compare(run(other.arguments(), recipe("vc8")), reference).rel_l2;
  EXPECT_NEAR(a, b, 0.15 * a);
}

TEST(VSmoothState, FollowsTheSchedule) {
  // 20 steps, a quarter of them in the window, refreshed every 4: groups at 0 and 4.
  for (const bool after : {true, false}) {
    VSmoothState state({.steps = 20, .window = 0.25, .refresh = 4, .means_after_window = after});
    for (int step = 0; step < 20; ++step) {
      state.begin_step(step);
      const VSmoothAction action = state.next_action(step > 0);
      EXPECT_EQ(action.regroup, step == 0 || step == 4) << step;
      EXPECT_EQ(action.in_window, step < 5) << step;
      EXPECT_EQ(action.demean, step < 5 || after) << step;
    }
  }
}

TEST(VSmoothState, WindowIsRoundedUp) {
  // ceil(0.25 * 30) = 8 steps.
  VSmoothState state({.steps = 30, .window = 0.25, .refresh = 4});
  state.begin_step(7);
  EXPECT_TRUE(state.next_action(true).in_window);
  state.begin_step(8);
  EXPECT_FALSE(state.next_action(true).in_window);
}

TEST(VSmoothState, GroupsWhereverItFindsNoGroupingInsideTheWindowOnly) {
  VSmoothState state({.steps = 20, .window = 0.25, .refresh = 4});
  state.begin_step(2);
  EXPECT_TRUE(state.next_action(false).regroup);
  EXPECT_FALSE(state.next_action(true).regroup);
  state.begin_step(10);
  EXPECT_FALSE(state.next_action(false).regroup);
}

TEST(VSmoothState, RefusesNonsense) {
  EXPECT_THROW(VSmoothState({.steps = 0}), Error);
  EXPECT_THROW(VSmoothState({.steps = 4, .window = 1.5}), Error);
  EXPECT_THROW(VSmoothState({.steps = 4, .window = 0.5, .refresh = 0}), Error);
  VSmoothState state({.steps = 4});
  EXPECT_THROW(state.begin_step(4), Error);
  EXPECT_THROW(state.begin_step(-1), Error);
}

TEST(VSmoothState, CarriesThePermutationPastTheWindow) {
  const Inputs inputs(populations(512));
  const Arguments a = inputs.arguments();
  VSmoothState state({.steps = 8, .window = 0.25, .refresh = 4});
  state.begin_step(0);
  run(a, recipe("vc8"), &state);
  ASSERT_NE(state.grouping(), nullptr);
  const std::vector<std::int32_t> permutation = state.grouping()->permutation(0, 1);
  std::vector<std::int32_t> sorted = permutation, identity(512);
  std::sort(sorted.begin(), sorted.end());
  std::iota(identity.begin(), identity.end(), 0);
  EXPECT_EQ(sorted, identity);
  EXPECT_NE(permutation, identity);
  EXPECT_EQ(state.grouping()->centroids(0, 1).size(), 2U * 128U);  // one per 256 keys

  state.begin_step(6);  // past the window
  const Outcome late = run(a, recipe("vc8"), &state);
  EXPECT_EQ(state.grouping()->permutation(0, 1), permutation);
  const Outcome unsmoothed = run(a, vc8(VSmooth::kOff));
  EXPECT_FALSE(same_bits(late.out_view(), unsmoothed.out_view()));
}

TEST(VSmoothState, TakesMeansOutPastTheWindowUnlessAskedNotTo) {
  const Inputs inputs(populations(768));
  const Recipe r = only_v(VSmooth::kClustered);
  const auto errors = [&](bool means_after_window) {
    VSmoothState state({.steps = 8, .means_after_window = means_after_window});
    const double first = error_of(inputs.arguments(), r, &state);
    state.begin_step(6);
    return std::pair(first, error_of(inputs.arguments(), r, &state));
  };
  const auto [first, with] = errors(true);
  const auto [again, without] = errors(false);
  EXPECT_EQ(first, again);
  EXPECT_EQ(with, first);  // the same permutation of the same values
  EXPECT_GT(without, 3.0 * first);
}

TEST(VSmoothState, FirstCallEqualsACallWithoutState) {
  const Inputs inputs(populations(400));
  VSmoothState scheduled({.steps = 8}), plain;
  const Outcome alone = run(inputs.arguments(), recipe("vc8"));
  EXPECT_TRUE(
      same_bits(run(inputs.arguments(), recipe("vc8"), &scheduled).out_view(), alone.out_view()));
  EXPECT_TRUE(
      same_bits(run(inputs.arguments(), recipe("vc8"), &plain).out_view(), alone.out_view()));
}

TEST(VSmoothState, OtherShapesRegroupInsteadOfMisusingAPermutation) {
  VSmoothState state({.steps = 8, .window = 1.0, .refresh = 8});
  state.begin_step(0);
  const Inputs small(populations(300));
  run(small.arguments(), recipe("vc8"), &state);
  state.begin_step(1);
  const Inputs large(populations(450));
  const Outcome reused = run(large.arguments(), recipe("vc8"), &state);
  EXPECT_LE(compare(reused, referee(large.arguments())).rel_l2, 0.05);
  // A grouping of other keys says nothing about these: as long as it does not fit, it is not used.
  EXPECT_EQ(state.grouping()->permutation(0, 0).size(), 450U);
}

TEST(VSmoothState, ResetForgets) {
  const Inputs inputs(populations(300));
  VSmoothState state({.steps = 8});
  run(inputs.arguments(), recipe("vc8"), &state);
  EXPECT_NE(state.grouping(), nullptr);
  state.reset();
  EXPECT_EQ(state.grouping(), nullptr);
  EXPECT_TRUE(state.next_action(false).regroup);
}

}  // namespace
}  // namespace vcattn::test
