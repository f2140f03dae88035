// Rows API-01 to API-11: shapes, dtypes and options that were ignored, misread or refused badly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "bug_cases/bug_case.h"
#include "bug_cases/definition.h"
#include "bug_cases/segments.h"
#include "bug_cases/tolerance.h"
#include "support/portable_random.h"

namespace vcattn::test {
namespace {

using testing::HasSubstr;

/// API-01: each dimension of the row runs and why_not says so beforehand; 512 is refused.
void head_dimensions(const Recipe& recipe) {
  for (const std::int64_t dim : {40, 72, 80, 96, 160, 256}) {
    SCOPED_TRACE(testing::Message() << "d = " << dim);
    const Inputs inputs({.q_heads = 2, .queries = 200, .keys = 257, .dim = dim});
    Arguments a = inputs.arguments();
    const GuardedTensor out(DType::kBF16, a.q.shape, dense_strides(a.q.shape));
    a.out = out.mutable_view();
    EXPECT_EQ(why_not(a, {.recipe = recipe}), "");
    EXPECT_TRUE(out.untouched());
    expect_class(inputs.arguments(), recipe);
  }
  const Inputs wide({.queries = 4, .keys = 4, .dim = 512});
  EXPECT_THAT(refusal(wide.arguments(), {.recipe = recipe}),
              HasSubstr("q: head dimension 512 (supported: 1 to 256)"));
}

/// API-02: unequal dimensions of K and V are refused by their own name.
void unequal_dimensions(const Recipe& recipe) {
  const Inputs narrow_heads({.queries = 4, .keys = 9, .dim = 32});
  const Inputs wide_heads({.queries = 4, .keys = 9, .dim = 64});
  Arguments a = narrow_heads.arguments();
  a.v = wide_heads.v.view();
  EXPECT_THAT(refusal(a, {.recipe = recipe}),
              HasSubstr("v: head dimension 64 differs from the 32 of q and k"));
}

/// API-03: masks of every kind and broadcast are applied, alone and with everything else that
/// hides keys, as the definition has it.
void masks(const Recipe& recipe) {
  const Inputs inputs(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .queries = 40, .keys = 150, .dim = 64});
  const std::vector<std::int32_t> lengths{150, 77};
  const auto rows = sample_rows(40, 40);
  for (const Shape& shape :
       {Shape{1, 1, 40, 150}, Shape{2, 4, 40, 150}, Shape{2, 1, 1, 150}, Shape{1, 4, 40, 1}}) {
    for (const DType dtype : {DType::kBool, DType::kF32, DType::kBF16}) {
      HostTensor mask(dtype, shape);
      mask.fill([&](const Index& at) {
        const bool hidden = portable_hash(at.i + 5) % 3 == 0;
        if (dtype == DType::kBool) return hidden ? 0.0F : 1.0F;
        return hidden ? -INFINITY : portable_normal(4, at.i);
      });
      for (const bool causal : {false, true}) {
        for (const bool padded : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << "mask " << shape[0] << " " << shape[1] << " " << shape[2] << " "
                       << shape[3] << " of " << to_string(dtype) << (causal ? " causal" : "")
                       << (padded ? " padded" : ""));
          Arguments a = inputs.arguments();
          a.mask = mask.view();
          a.causal = causal;
          if (padded) a.key_lengths = lengths.data();
          Tolerance tolerance = class_of(recipe);
          // Causal rows with one or two visible keys: single roundings instead of averages.
          tolerance.row_cosine = 1.0 - 4.0 * (1.0 - tolerance.row_cosine);
          tolerance.lse *= 3.0;
          EXPECT_TRUE(within(tolerance, run(a, recipe), by_definition(a, rows)));
        }
      }
    }
  }
  // Nothing visible, and a mask that cannot be one.
  HostTensor nothing(DType::kBool, {1, 1, 1, 150});
  Arguments a = inputs.arguments();
  a.mask = nothing.view();
  const Outcome outcome = run(a, recipe);
  HostTensor zeros(DType::kBF16, outcome.out_view().shape);
  EXPECT_TRUE(same_bits(outcome.out_view(), zeros.view()));
  EXPECT_EQ(outcome.lse_at(1, 3, 39), -std::numeric_limits<float>::infinity());
  const HostTensor wrong(DType::kBool, {1, 1, 40, 149});
  a.mask = wrong.view();
  EXPECT_THAT(refusal(a, {.recipe = recipe}), HasSubstr("mask: shape (1, 1, 40, 149)"));
}

/// API-04: unknown options are errors; the LSE is float32 (B, H, Sq), whatever the batch.
void unknown_options(const Recipe& recipe) {
  Recipe changed = recipe;
  EXPECT_THROW(set_field(changed, "return_lse", "on"), Error);
  EXPECT_THROW(set_field(changed, "hadamard", "maybe"), Error);
  EXPECT_THROW(vcattn::recipe("vc9"), Error);
  EXPECT_EQ(changed, recipe);
  expect_class({.batch = 2, .q_heads = 3, .queries = 70, .keys = 90}, recipe);
}

/// API-07: any mix of dtypes; the output has the dtype it was given, and what the inputs are stored
/// in does not matter as long as they hold the same values.
void mixed_dtypes(const Recipe& recipe) {
  const DType dtypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  const auto stored = [](DType dtype, std::uint32_t seed, std::int64_t tokens) {
    HostTensor tensor(dtype, {1, 2, tokens, 64});
    // Multiples of 1/32 within 4: exact in all three.
    tensor.fill([seed](const Index& at) {
      return std::round(std::clamp(portable_normal(seed, at.i), -3.9F, 3.9F) * 32.0F) / 32.0F;
    });
    return tensor;
  };
  std::optional<Outcome> first;
  for (const DType q_type : dtypes) {
    for (const DType k_type : dtypes) {
      for (const DType v_type : dtypes) {
        const HostTensor q = stored(q_type, 1, 50), k = stored(k_type, 2, 140),
                         v = stored(v_type, 3, 140);
        Arguments a;
        a.q = q.view();
        a.k = k.view();
        a.v = v.view();
        for (const DType out_type : dtypes) {
          Outcome outcome = run(a, recipe, nullptr, {.dtype = out_type});
          EXPECT_EQ(outcome.out_view().dtype, out_type);
          if (!first) {
            EXPECT_TRUE(within(class_of(recipe), outcome, referee(a)));
            first = std::move(outcome);
            continue;
          }
          EXPECT_TRUE(same_bits(outcome.lse_view(), first->lse_view()));
          if (out_type == DType::kF32) {
            EXPECT_TRUE(same_bits(outcome.out_view(), first->out_view()));
          }
        }
      }
    }
  }
  Arguments a;
  const HostTensor bools(DType::kBool, {1, 1, 4, 64});
  a.q = a.k = a.v = bools.view();
  EXPECT_THAT(refusal(a, {.recipe = recipe}), HasSubstr("q: dtype bool"));
}

/// API-08: the default scale is that of the head dimension given, not of the padded one.
void default_scale(const Recipe& recipe) {
  const Inputs inputs({.queries = 20, .keys = 90, .dim = 72});
  Arguments a = inputs.arguments();
  const Outcome implicit = run(a, recipe);
  a.scale = static_cast<float>(1.0 / std::sqrt(72.0));
  EXPECT_TRUE(same_bits(run(a, recipe).out_view(), implicit.out_view()));
  EXPECT_TRUE(within(class_of(recipe), implicit, by_definition(a, sample_rows(20, 20))));
}

/// API-09: one LSE layout, (batch, query heads, query tokens) with any strides, packed or not.
void lse_layout(const Recipe& recipe) {
  const Inputs dense(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .queries = 60, .keys = 60, .dim = 64});
  const OutputLayout tokens_first{.lse_stride = Shape{60 * 5, 1, 5, 1}};
  expect_class(dense.arguments(), recipe, {}, tokens_first);
  const Inputs packed({.q_heads = 4, .kv_heads = 2, .queries = 60, .keys = 60, .dim = 64});
  const auto offsets = offsets_of({13, 30, 17});
  Arguments a = packed.arguments();
  a.q_segments = a.k_segments = segments_of(offsets);
  const Outcome outcome = run(a, recipe, nullptr, tokens_first);
  const Metrics metrics = compare(outcome, by_definition(a, sample_rows(60, 60)));
  EXPECT_LE(metrics.lse_max_abs, 2.0 * class_of(recipe).lse);  // segments of 13 keys
}

/// API-10: questions about the build never throw and need no device.
void probes(const Recipe&) {
  EXPECT_FALSE(version().empty());
  bool cpu = false;
  for (const BackendInfo& backend : backends()) {
    EXPECT_FALSE(backend.name.empty());
    EXPECT_FALSE(backend.status.empty());
    EXPECT_FALSE(backend.kernels.empty());
    cpu = cpu || (backend.name == "cpu" && backend.available);
  }
  EXPECT_TRUE(cpu);
  for (const std::string& name : recipe_names()) {
    EXPECT_EQ(recipe(name).name, name);
    EXPECT_FALSE(recipe_summary(name).empty());
  }
  EXPECT_NE(why_not({}), "");
  Arguments elsewhere;
  elsewhere.device = {Device::Kind::kCuda, 7};
  EXPECT_NE(why_not(elsewhere), "");
}

const bool kRegistered = register_cases(
    "Api", {
               {"API-01", kAll, head_dimensions},
               {"API-02", {"vc8", "exact"}, unequal_dimensions},
               {"API-03", kAll, masks},
               {"API-04", {"vc8", "exact"}, unknown_options},
               {"API-07", kAll, mixed_dtypes},
               {"API-08", kAll8, default_scale},
               {"API-09", kAll, lse_layout},
               {"API-10", {}, probes},
               {"API-11", kAll,
                [](const Recipe& r) {
                  expect_class({.q_heads = 28, .kv_heads = 4, .queries = 130, .keys = 200}, r);
                }},
           });

}  // namespace
}  // namespace vcattn::test
