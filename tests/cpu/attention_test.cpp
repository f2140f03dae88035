// Whole calls on the CPU backend against float64, and against themselves where two ways of saying
// the same thing must give the same bits.
#include "vcattn/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "bug_cases/call.h"
#include "core/call_work.h"

namespace vcattn::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Recipe exact() { return recipe("exact"); }

/// Every named recipe with a bound on N(0, 1) inputs of these sizes. exact: float32 rounding over
/// 128-term sums; the others: a little above what float64 emulation of their formats gives.
const std::vector<std::pair<std::string, double>>& bounds() {
  static const std::vector<std::pair<std::string, double>> kBounds{
      {"exact", 2e-6},      {"fp8", 0.08},       {"sage2", 0.06},   {"sage3", 0.30},
      {"vc8", 0.05},        {"vc8-paper", 0.06}, {"vc8-exp", 0.05}, {"vc8-fast", 0.07},
      {"vc8-shaped", 0.07}, {"vc4", 0.25}};
  return kBounds;
}

TEST(Attention, EveryRecipeIsNamedInTheBounds) {
  ASSERT_EQ(bounds().size(), recipe_names().size());
  for (std::size_t i = 0; i < bounds().size(); ++i) {
    EXPECT_EQ(bounds()[i].first, recipe_names()[i]);
  }
}

struct ShapeCase {
  const char* name;
  Setup setup;
};

class Shapes : public testing::TestWithParam<ShapeCase> {};

TEST_P(Shapes, EveryRecipeIsWithinItsBound) {
  test::Setup setup = GetParam().setup;
  setup.dtype = DType::kF32;
  const Inputs inputs(setup);
  const Arguments arguments = inputs.arguments();
  const Reference reference = referee(arguments);
  for (const auto& [name, bound] : bounds()) {
    const Metrics metrics = compare(run(arguments, recipe(name)), reference);
    EXPECT_LE(metrics.rel_l2, bound) << name;
    EXPECT_LE(metrics.lse_max_abs, name == "exact" ? 2e-5 : 6.0 * bound) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Attention, Shapes,
    testing::Values(
        ShapeCase{"Square", {.q_heads = 2, .queries = 300, .keys = 300}},
        ShapeCase{"LastTileFull", {.q_heads = 1, .queries = 128, .keys = 256}},
        ShapeCase{"CrossAttention", {.batch = 2, .q_heads = 2, .queries = 40, .keys = 515}},
        ShapeCase{"GroupedQueries",
                  {.batch = 2, .q_heads = 6, .kv_heads = 2, .queries = 70, .keys = 200}},
        ShapeCase{"Dim64", {.q_heads = 2, .queries = 150, .keys = 400, .dim = 64}},
        ShapeCase{"Dim256", {.q_heads = 1, .queries = 64, .keys = 300, .dim = 256}},
        ShapeCase{"PaddedDim", {.q_heads = 2, .queries = 64, .keys = 300, .dim = 80}},
        ShapeCase{"DimOne", {.q_heads = 1, .queries = 40, .keys = 300, .dim = 1}},
        ShapeCase{"TokensFirst",
                  {.q_heads = 3, .queries = 90, .keys = 200, .layout = Layout::kBSHD}},
        ShapeCase{"Causal", {.q_heads = 2, .queries = 200, .keys = 333, .causal = true}},
        ShapeCase{"NegativeScale", {.q_heads = 1, .queries = 50, .keys = 200, .scale = -0.05F}}),
    [](const auto& test) { return test.param.name; });

TEST(Attention, OneKeyReturnsItsValue) {
  const Inputs inputs({.q_heads = 2, .queries = 5, .keys = 1});
  const Arguments a = inputs.arguments();
  for (const auto& [name, bound] : bounds()) {
    const Metrics metrics = compare(run(a, recipe(name)), referee(a));
    // The block mean of one row is the row: V-Smooth makes this exact. Others round it to E4M3.
    EXPECT_LE(metrics.rel_l2, recipe(name).v_smooth == VSmooth::kOff ? bound : 2e-3) << name;
  }
}

TEST(Attention, NoKeysGiveZeroAndMinusInfinity) {
  const Inputs inputs({.batch = 2, .q_heads = 2, .queries = 3, .keys = 0});
  for (const std::string& name : recipe_names()) {
    const Outcome outcome = run(inputs.arguments(), recipe(name));
    for (std::int64_t s = 0; s < 3; ++s) {
      EXPECT_EQ(outcome.out.get(1, 1, s, 100), 0.0F) << name;
      EXPECT_EQ(outcome.lse_at(1, 1, s), -kInfinity) << name;
    }
  }
}

TEST(Attention, NoQueriesHeadsOrBatchesWriteNothing) {
  for (const test::Setup& setup :
       {test::Setup{.queries = 0, .keys = 10}, test::Setup{.batch = 0, .queries = 4, .keys = 10}}) {
    const Inputs inputs(setup);
    run(inputs.arguments(), recipe("vc8"));
  }
}

TEST(Attention, TheRefereeTakesEmptyShapes) {
  for (const test::Setup& setup :
       {test::Setup{.q_heads = 0, .kv_heads = 0, .queries = 4, .keys = 10},
        test::Setup{.queries = 0, .keys = 10}, test::Setup{.batch = 0, .queries = 4, .keys = 10}}) {
    const Inputs inputs(setup);
    EXPECT_TRUE(referee(inputs.arguments()).out.empty());
    run(inputs.arguments(), recipe("vc8"));
  }
}

TEST(Attention, KeyLengthsEqualShorterTensors) {
  const Inputs inputs({.batch = 3, .q_heads = 2, .queries = 20, .keys = 300});
  Arguments all = inputs.arguments();
  const std::vector<std::int32_t> lengths{300, 129, 0};
  all.key_lengths = lengths.data();
  for (const std::string& name : recipe_names()) {
    const Outcome together = run(all, recipe(name));
    for (std::int64_t b = 0; b < 3; ++b) {
      Arguments one = inputs.arguments();
      for (TensorView* view : {&one.q, &one.k, &one.v}) *view = narrow(*view, 0, b, 1);
      for (TensorView* view : {&one.k, &one.v}) *view = narrow(*view, 2, 0, lengths[b]);
      const Outcome alone = run(one, recipe(name));
      EXPECT_TRUE(same_bits(narrow(together.out_view(), 0, b, 1), alone.out_view())) << name;
      EXPECT_TRUE(same_bits(narrow(together.lse_view(), 0, b, 1), alone.lse_view())) << name;
    }
  }
}

TEST(Attention, SegmentsEqualSeparateCalls) {
  const Inputs inputs({.q_heads = 2, .queries = 150, .keys = 400});
  const std::vector<std::int32_t> q_offsets{0, 30, 30, 149, 150}, k_offsets{0, 200, 250, 250, 400};
  Arguments packed = inputs.arguments();
  packed.q_segments = Segments{q_offsets.data(), 4};
  packed.k_segments = Segments{k_offsets.data(), 4};
  for (const bool causal : {false, true}) {
    packed.causal = causal;
    const Outcome together = run(packed, recipe("vc8"));
    const Metrics metrics = compare(together, referee(packed));
    EXPECT_LE(metrics.rel_l2, 0.05);
    for (int i = 0; i < 4; ++i) {
      Arguments one = inputs.arguments();
      one.causal = causal;
      const std::int64_t queries = q_offsets[i + 1] - q_offsets[i];
      const std::int64_t keys = k_offsets[i + 1] - k_offsets[i];
      one.q = narrow(one.q, 2, q_offsets[i], queries);
      one.k = narrow(one.k, 2, k_offsets[i], keys);
      one.v = narrow(one.v, 2, k_offsets[i], keys);
      const Outcome alone = run(one, recipe("vc8"));
      EXPECT_TRUE(
          same_bits(narrow(together.out_view(), 2, q_offsets[i], queries), alone.out_view()))
          << i;
    }
  }
}

/// Estimates of time go by the pairs inside the segments.
TEST(Attention, WorkOfSegments) {
  const Inputs inputs({.q_heads = 3, .queries = 10, .keys = 20, .dim = 64});
  Arguments a = inputs.arguments();
  EXPECT_EQ(multiply_adds(a), 2.0 * 3 * 64 * 10 * 20);
  const std::vector<std::int32_t> q_offsets{0, 3, 3, 10}, k_offsets{0, 5, 15, 20};
  a.q_segments = Segments{q_offsets.data(), 3};
  a.k_segments = Segments{k_offsets.data(), 3};
  EXPECT_EQ(multiply_adds(a), 2.0 * 3 * 64 * (3 * 5 + 0 * 10 + 7 * 5));
}

HostTensor mask_of(Shape shape, const Values& values) {
  HostTensor mask(DType::kF32, shape);
  mask.fill(values);
  return mask;
}

TEST(Attention, CausalFlagEqualsCausalMask) {
  const Inputs inputs({.q_heads = 2, .queries = 150, .keys = 222});
  Arguments flag = inputs.arguments(), masked = inputs.arguments();
  flag.causal = true;
  const HostTensor mask = mask_of({1, 1, 150, 222}, [](const Index& at) {
    return at.d > at.s + 222 - 150 ? -kInfinity : 0.0F;
  });
  masked.mask = mask.view();
  for (const std::string& name : recipe_names()) {
    const Outcome a = run(flag, recipe(name)), b = run(masked, recipe(name));
    EXPECT_TRUE(same_bits(a.out_view(), b.out_view())) << name;
    EXPECT_TRUE(same_bits(a.lse_view(), b.lse_view())) << name;
  }
}

TEST(Attention, AdditiveMaskIsAddedToScaledScores) {
  const Inputs inputs({.q_heads = 2, .queries = 60, .keys = 200, .dtype = DType::kF32});
  Arguments a = inputs.arguments();
  const HostTensor mask = mask_of({1, 2, 60, 200}, affine(normal(9), 2.0F));
  a.mask = mask.view();
  const Reference reference = referee(a);
  for (const auto& [name, bound] : bounds()) {
    EXPECT_LE(compare(run(a, recipe(name)), reference).rel_l2, 2.0 * bound) << name;
  }
  a.mask.reset();
  EXPECT_GT(compare(run(a, exact()), reference).rel_l2, 0.1);  // the mask matters
}

TEST(Attention, LowestFloat16HidesAsMinusInfinityDoes) {
  const Inputs inputs({.queries = 40, .keys = 300});
  Arguments lowest = inputs.arguments(), infinite = inputs.arguments();
  HostTensor half(DType::kF16, {1, 1, 1, 300});
  half.fill([](const Index& at) { return at.d < 250 ? 0.0F : -65504.0F; });
  const HostTensor mask =
      mask_of({1, 1, 1, 300}, [](const Index& at) { return at.d < 250 ? 0.0F : -kInfinity; });
  lowest.mask = half.view();
  infinite.mask = mask.view();
  EXPECT_TRUE(
      same_bits(run(lowest, recipe("vc8")).out_view(), run(infinite, recipe("vc8")).out_view()));
}

TEST(Attention, HiddenKeysTakeNoPartInAnything) {
  // A boolean mask that hides a key from every row: the key may hold NaN, and the bits equal those
  // of a call without it.
  const Inputs inputs({.queries = 40, .keys = 300});
  Arguments masked = inputs.arguments();
  HostTensor mask(DType::kBool, {1, 1, 1, 300});
  auto* visible = static_cast<std::uint8_t*>(mask.mutable_view().data);
  for (int j = 0; j < 300; ++j) visible[j] = j < 250 ? 1 : 0;
  masked.mask = mask.view();
  HostTensor k = contiguous(masked.k), v = contiguous(masked.v);
  for (std::int64_t j = 250; j < 300; ++j) {
    k.set(0, 0, j, 3, std::numeric_limits<float>::quiet_NaN());
    v.set(0, 0, j, 3, kInfinity);
  }
  masked.k = k.view();
  masked.v = v.view();
  Arguments without = inputs.arguments();
  without.k = narrow(without.k, 2, 0, 250);
  without.v = narrow(without.v, 2, 0, 250);
  for (const std::string& name : recipe_names()) {
    EXPECT_TRUE(
        same_bits(run(masked, recipe(name)).out_view(), run(without, recipe(name)).out_view()))
        << name;
  }
}

TEST(Attention, NonFiniteInputNeverLooksPlausible) {
  for (const std::string& name : recipe_names()) {
    for (const int which : {0, 1, 2}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
        Inputs inputs({.q_heads = 2, .queries = 150, .keys = 200});
        HostTensor& tensor = which == 0 ? inputs.q : which == 1 ? inputs.k : inputs.v;
        tensor.set(0, 1, 7, 5, bad);
        const Outcome outcome = run(inputs.arguments(), recipe(name));
        // Row 7 of head 1 depends on each of them, in channel 5 at least; head 0 on none.
        EXPECT_FALSE(std::isfinite(outcome.out.get(0, 1, 7, 5))) << name << " " << which;
        EXPECT_TRUE(std::isfinite(outcome.out.get(0, 0, 7, 5))) << name << " " << which;
        // A query spoils the rows it shares a scale with; NVFP4 has one scale per head on top.
        if (which == 0 && recipe(name).qk != QkFormat::kNvfp4) {
          EXPECT_TRUE(std::isfinite(outcome.out.get(0, 1, 149, 5))) << name;
        }
      }
    }
  }
}

TEST(Attention, RopeInsideEqualsRopeOutside) {
  const std::int64_t tokens = 100, pairs = 32;
  std::vector<float> cos, sin;
  for (std::int64_t i = 0; i < tokens * pairs; ++i) {
    const double angle =
        static_cast<double>(i / pairs) * std::pow(100.0, -static_cast<double>(i % pairs) / pairs);
    cos.push_back(static_cast<float>(std::cos(angle)));
    sin.push_back(static_cast<float>(std::sin(angle)));
  }
  for (const RopeLayout layout : {RopeLayout::kInterleaved, RopeLayout::kHalf}) {
    const Inputs inputs({.q_heads = 2, .queries = tokens, .keys = tokens, .dtype = DType::kF32});
    Arguments inside = inputs.arguments();
    inside.q_rope = inside.k_rope = Rope{cos.data(), sin.data(), tokens, pairs, layout};
    HostTensor q = contiguous(inside.q), k = contiguous(inside.k);
    for (HostTensor* tensor : {&q, &k}) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < tokens * pairs; ++i) {
          const std::int64_t s = i / pairs, p = i % pairs;
          const std::int64_t first = layout == RopeLayout::kInterleaved ? 2 * p : p;
          const std::int64_t second = layout == RopeLayout::kInterleaved ? 2 * p + 1 : p + pairs;
          const double x = tensor->get(0, h, s, first), y = tensor->get(0, h, s, second);
          tensor->set(0, h, s, first, static_cast<float>(x * cos[i] - y * sin[i]));
          tensor->set(0, h, s, second, static_cast<float>(x * sin[i] + y * cos[i]));
        }
      }
    }
    Arguments outside = inputs.arguments();
    outside.q = q.view();
    outside.k = k.view();
    const Reference reference = referee(outside);
    EXPECT_LE(compare(run(inside, exact()), reference).rel_l2, 2e-6);
    EXPECT_LE(compare(run(inside, recipe("vc8")), reference).rel_l2, 0.05);
    // The referee's own rotation, against the rotation written out above.
    const Reference referee_inside = referee(inside);
    double difference = 0.0;
    for (std::size_t i = 0; i < reference.out.size(); ++i) {
      difference = std::max(difference, std::abs(reference.out[i] - referee_inside.out[i]));
    }
    EXPECT_LE(difference, 1e-6);
  }
}

TEST(Attention, OutputAndLseLieWhereTheirStridesSay) {
  const Inputs inputs({.batch = 2, .q_heads = 2, .queries = 17, .keys = 140});
  const Arguments a = inputs.arguments();
  const Outcome dense = run(a, recipe("vc8"));
  // Rows 160 apart, tokens before heads, LSE with a gap of one.
  const Outcome strided = run(
      a, recipe("vc8"), nullptr,
      {.out_stride = Shape{17 * 2 * 160, 160, 320, 1}, .lse_stride = Shape{2 * 17 * 2, 1, 4, 1}});
  EXPECT_TRUE(
      same_bits(contiguous(dense.out_view()).view(), contiguous(strided.out_view()).view()));
  EXPECT_TRUE(
      same_bits(contiguous(dense.lse_view()).view(), contiguous(strided.lse_view()).view()));
}

TEST(Attention, ProgressRisesToOne) {
  const Inputs inputs({.batch = 2, .q_heads = 4, .kv_heads = 2, .queries = 300, .keys = 100});
  Arguments a = inputs.arguments();
  HostTensor out(DType::kF32, a.q.shape);
  a.out = out.mutable_view();
  double last = 0.0;
  make_plan(a).run(nullptr, [&](double fraction) {
    EXPECT_GT(fraction, last);
    last = fraction;
  });
  EXPECT_EQ(last, 1.0);
}

}  // namespace
}  // namespace vcattn::test
