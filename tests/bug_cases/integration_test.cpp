// Rows INT-04 to INT-12, as far as they are about the library under the frameworks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bug_cases/bug_case.h"
#include "bug_cases/definition.h"
#include "bug_cases/tolerance.h"
#include "support/portable_random.h"

namespace vcattn::test {
namespace {

using testing::HasSubstr;

/// INT-04: what cannot run fails when it is configured, not at its first call.
void fails_at_configuration(const Recipe& recipe) {
  const Inputs inputs({.queries = 4, .keys = 4});
  Arguments a = inputs.arguments();
  EXPECT_THROW(make_plan(a, {.recipe = recipe}), Error) << "no output";
  const GuardedTensor out(DType::kBF16, a.q.shape, dense_strides(a.q.shape));
  a.out = out.mutable_view();
  Recipe impossible = recipe;
  impossible.v = VFormat::kNvfp4;
  EXPECT_THROW(make_plan(a, {.recipe = impossible}), Error);
  a.device = {Device::Kind::kCuda, 99};
  EXPECT_THROW(make_plan(a, {.recipe = recipe}), Error);
  EXPECT_TRUE(out.untouched());
}

/// INT-05, INT-08: the recipe belongs to the call. Others before it, refused ones included, change
/// nothing.
void no_global_state(const Recipe& recipe) {
  const Inputs self({.q_heads = 2, .queries = 200, .keys = 200});
  const Inputs cross({.q_heads = 2, .queries = 200, .keys = 77});
  const Outcome self_first = run(self.arguments(), recipe);
  const Outcome cross_first = run(cross.arguments(), vcattn::recipe("exact"));
  for (const std::string& other : recipe_names()) {
    run(cross.arguments(), vcattn::recipe(other));
    Arguments bad = cross.arguments();
    bad.v.shape[2] = 78;
    refusal(bad, {.recipe = vcattn::recipe(other)});
    EXPECT_TRUE(same_bits(run(self.arguments(), recipe).out_view(), self_first.out_view()));
    EXPECT_TRUE(same_bits(run(cross.arguments(), vcattn::recipe("exact")).out_view(),
                          cross_first.out_view()));
  }
}

/// INT-06: what a global replacement meets in an image encoder: head dimension 80, 257 tokens, and
/// masks.
void image_encoder(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 4, .queries = 257, .keys = 257, .dim = 80});
  const auto rows = sample_rows(257, 50);
  expect_class(inputs.arguments(), recipe, rows);
  HostTensor mask(DType::kF32, {1, 1, 257, 257});
  mask.fill([](const Index& at) { return at.d > at.s + 128 ? -INFINITY : 0.0F; });
  Arguments a = inputs.arguments();
  a.mask = mask.view();
  EXPECT_TRUE(within(class_of(recipe), run(a, recipe), by_definition(a, rows), rows));
}

/// INT-07: which backend runs, with which kernel and why, can be asked; what cannot run says why in
/// one sentence.
void backend_in_use(const Recipe& recipe) {
  const Inputs inputs({.queries = 4, .keys = 4});
  Arguments a = inputs.arguments();
  const GuardedTensor out(DType::kBF16, a.q.shape, dense_strides(a.q.shape));
  a.out = out.mutable_view();
  const Plan plan = make_plan(a, {recipe, BackendChoice::kCpu});
  EXPECT_EQ(plan.backend(), "cpu");
  EXPECT_THAT(plan.kernel(), testing::StartsWith("cpu/"));
  EXPECT_EQ(plan.recipe(), recipe);
  EXPECT_THAT(plan.explain(), HasSubstr("The CPU backend"));
  EXPECT_THAT(plan.explain(), HasSubstr("Q and K"));
  a.device = {Device::Kind::kCuda, 99};
  EXPECT_THAT(why_not(a, {recipe, BackendChoice::kCpu}), HasSubstr("the tensors lie on cuda:99"));
}

/// INT-09: two samples of video and text, 37 and 256 of 256 text tokens, equal unpadded calls of
/// their own, whatever the padding holds. 700 video tokens.
void padded_text(const Recipe& recipe) {
  constexpr std::int32_t kVideo = 700, kText = 256;
  Inputs inputs(
      {.batch = 2, .q_heads = 2, .queries = kVideo + kText, .keys = kVideo + kText, .dim = 64});
  const std::vector<std::int32_t> lengths{kVideo + 37, kVideo + kText};
  for (HostTensor* tensor : {&inputs.k, &inputs.v}) {
    for (std::int64_t s = lengths[0]; s < kVideo + kText; ++s) {
      for (std::int64_t d = 0; d < 64; ++d) tensor->set(0, s % 2, s, d, NAN);
    }
  }
  Arguments a = inputs.arguments();
  a.key_lengths = lengths.data();
  const Outcome together = run(a, recipe);
  EXPECT_TRUE(all_finite(together.out_view()));
  for (std::int64_t b = 0; b < 2; ++b) {
    Arguments alone = inputs.arguments();
    alone.q = narrow(alone.q, 0, b, 1);
    alone.k = narrow(narrow(alone.k, 0, b, 1), 2, 0, lengths[b]);
    alone.v = narrow(narrow(alone.v, 0, b, 1), 2, 0, lengths[b]);
    const Outcome sample = run(alone, recipe);
    EXPECT_TRUE(same_bits(sample.out_view(), narrow(together.out_view(), 0, b, 1)));
    EXPECT_TRUE(same_bits(sample.lse_view(), narrow(together.lse_view(), 0, b, 1)));
  }
}

/// INT-11: float16 near the end of its range, as an INT4 product leaves it.
void nearly_overflowing_half(const Recipe& recipe) {
  const auto large = [](std::uint32_t seed) -> Values {
    return [seed](const Index& at) { return 6e4F * (2.0F * portable_uniform(seed, at.i) - 1.0F); };
  };
  const Inputs inputs({.queries = 130,
                       .keys = 300,
                       .dtype = DType::kF16,
                       .q = normal(1),
                       .k = normal(2),
                       .v = large(3)});
  EXPECT_TRUE(all_finite(expect_class(inputs.arguments(), recipe).out_view()));
  const Inputs hot({.queries = 130,
                    .keys = 300,
                    .dtype = DType::kF16,
                    .q = large(1),
                    .k = large(2),
                    .v = large(3)});
  const Outcome outcome = run(hot.arguments(), recipe);
  EXPECT_TRUE(all_finite(outcome.out_view()));
  // Scores of 10^10 nats leave the affine map of ExpCast no bits for its offset.
  if (recipe.p != PFormat::kExpCast) {
    EXPECT_TRUE(all_finite(outcome.lse_view()));
  }
}

/// INT-12: a plan reads its tensors again at every run, the clustering included: replayed on other
/// contents of the same buffers it equals a fresh call.
void replayed_plan(const Recipe& recipe) {
  need_host("CudaStreams.GraphsReplay*");
  const Setup first{.q_heads = 2, .queries = 150, .keys = 300, .dim = 64};
  Setup second = first;
  second.q = normal(11);
  second.k = normal(12);
  second.v = affine(normal(13), 3.0F, 1.0F);
  Inputs buffers(first);
  const Inputs fresh(second);
  Arguments a = buffers.arguments();
  const GuardedTensor out(DType::kBF16, a.q.shape, dense_strides(a.q.shape));
  a.out = out.mutable_view();
  const Plan plan = make_plan(a, {.recipe = recipe});
  plan.run();
  buffers.q.fill(second.q);
  buffers.k.fill(second.k);
  buffers.v.fill(second.v);
  plan.run();
  EXPECT_TRUE(same_bits(out.view(), run(fresh.arguments(), recipe).out_view()));
}

const bool kRegistered =
    register_cases("Integration", {
                                      {"INT-04", {"vc8"}, fails_at_configuration},
                                      {"INT-05", kAll, no_global_state},
                                      {"INT-06", kAll, image_encoder},
                                      {"INT-07", kAll, backend_in_use},
                                      {"INT-08", {"vc8"}, no_global_state},
                                      {"INT-09", kAll, padded_text},
                                      {"INT-11", kAll, nearly_overflowing_half},
                                      {"INT-12", kAll, replayed_plan},
                                  });

}  // namespace
}  // namespace vcattn::test
