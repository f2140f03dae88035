// Rows SIL-01 to SIL-19: wrong, finite and without an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <cmath>

#include "bug_cases/bug_case.h"
#include "bug_cases/tail_sweep.h"
#include "support/portable_random.h"

namespace vcattn::test {
namespace {

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(same_bits(a.out_view(), b.out_view())) << "out";
  EXPECT_TRUE(same_bits(a.lse_view(), b.lse_view())) << "lse";
}

/// The call on copies of its tensors in other layouts must give the bits of `expected`. An empty
/// stride leaves a tensor as it is.
struct Layouts {
  std::optional<Shape> q = {}, k = {}, v = {}, out = {}, lse = {};
};
void expect_same_in(const Layouts& layouts, const Arguments& dense, const Recipe& recipe,
                    const Outcome& expected) {
  const auto copied = [](const TensorView& view, const std::optional<Shape>& stride) {
    return copy(view, stride.value_or(dense_strides(view.shape)));
  };
  const HostTensor q = copied(dense.q, layouts.q), k = copied(dense.k, layouts.k),
                   v = copied(dense.v, layouts.v);
  Arguments a = dense;
  a.q = q.view();
  a.k = k.view();
  a.v = v.view();
  expect_same(run(a, recipe, nullptr, {.out_stride = layouts.out, .lse_stride = layouts.lse}),
              expected);
}

/// SIL-01: no cliff in the number of keys, dense or as part of a fused QKV. 1 head of 4 and three
/// probed rows, as in the row; the clustered recipe, whose k-means takes the time, at the lengths
/// around the cliff.
void no_length_cliff(const Recipe& recipe) {
  constexpr std::int64_t kLongest = 200064;
  HostTensor fused(DType::kBF16, {1, 3, kLongest, 128}, Layout::kBSHD);
  fused.fill(normal(1));
  const bool clustered = recipe.v_smooth == VSmooth::kClustered;
  const std::vector<std::int64_t> all{99864, 99872, 131072, 154000, 167000, 186000, kLongest};
  for (const std::int64_t keys : clustered ? std::vector<std::int64_t>{99872, 167000} : all) {
    SCOPED_TRACE(testing::Message() << keys << " keys");
    Arguments a;
    a.q = narrow(narrow(fused.view(), 1, 0, 1), 2, 0, 3);
    a.q.stride[2] *= (keys - 1) / 2;
    a.k = narrow(narrow(fused.view(), 1, 1, 1), 2, 0, keys);
    a.v = narrow(narrow(fused.view(), 1, 2, 1), 2, 0, keys);
    const Outcome outcome = expect_class(a, recipe);
    if (keys == 99872) expect_same_in({}, a, recipe, outcome);
  }
}

/// SIL-02, SIL-03: offsets past 2^31 and 2^32 elements along each axis, of all tensors and of V
/// alone.
void far_offsets(const Recipe& recipe) {
  const Inputs inputs({.batch = 2, .q_heads = 2, .queries = 100, .keys = 100, .dim = 32});
  const Arguments a = inputs.arguments();
  const Outcome expected = expect_class(a, recipe);
  for (int axis = 0; axis < 4; ++axis) {
    SCOPED_TRACE(testing::Message() << "axis " << axis);
    const Shape far = far_strides(a.q.shape, axis);
    const Shape far_lse = axis < 3 ? far_strides({2, 2, 100, 1}, axis) : Shape{200, 100, 1, 1};
    expect_same_in({far, far, far, far, far_lse}, a, recipe, expected);
    expect_same_in({.v = far}, a, recipe, expected);
  }
}

/// SIL-04: the referee itself where others' goes wrong, against the definition written once more.
void referee_reads_far_offsets(const Recipe&) {
  need_host("the referee reads host memory");
  const Inputs inputs({.q_heads = 1, .queries = 3, .keys = 40, .dim = 16});
  const Arguments dense = inputs.arguments();
  const Shape stride = far_strides(dense.v.shape, 2);
  const HostTensor k = copy(dense.k, stride), v = copy(dense.v, stride);
  Arguments far = dense;
  far.k = k.view();
  far.v = v.view();
  const Reference reference = referee(far);
  for (std::int64_t s = 0; s < 3; ++s) {
    double sum = 0.0;
    std::vector<double> out(16, 0.0);
    for (std::int64_t j = 0; j < 40; ++j) {
      double score = 0.0;
      for (std::int64_t d = 0; d < 16; ++d) {
        score += static_cast<double>(inputs.q.get(0, 0, s, d)) * inputs.k.get(0, 0, j, d);
      }
      const double weight = std::exp(score / 4.0);
      sum += weight;
      for (std::int64_t d = 0; d < 16; ++d) out[d] += weight * inputs.v.get(0, 0, j, d);
    }
    for (std::int64_t d = 0; d < 16; ++d) {
      EXPECT_NEAR(reference.out[static_cast<std::size_t>(s * 16 + d)], out[d] / sum, 1e-12);
    }
    EXPECT_NEAR(reference.lse[static_cast<std::size_t>(s)], std::log(sum), 1e-12);
  }
}

/// SIL-05: a mask whose rows lie past 2^32 elements equals the causal flag. The row has 65,537 rows
/// of as many; 33 rows with a stride to match have the same offsets.
void far_mask(const Recipe& recipe) {
  const Inputs inputs({.queries = 33, .keys = 40, .dim = 64});
  Arguments flagged = inputs.arguments(), masked = flagged;
  flagged.causal = true;
  const Outcome expected = run(flagged, recipe);
  for (const DType dtype : {DType::kBool, DType::kBF16}) {
    const Shape shape{1, 1, 33, 40};
    HostTensor mask(dtype, shape, far_strides(shape, 2));
    mask.fill([&](const Index& at) {
      const bool visible = at.d <= at.s + 7;
      if (dtype == DType::kBool) return visible ? 1.0F : 0.0F;
      return visible ? 0.0F : -INFINITY;
    });
    masked.mask = mask.view();
    expect_same(run(masked, recipe), expected);
  }
}

/// SIL-06: calls over poisoned memory write their whole output, with a state and without.
void poisoned_memory(const Recipe& recipe) {
  const Inputs inputs({.batch = 2, .q_heads = 3, .queries = 150, .keys = 200});
  poison_heap();
  expect_class(inputs.arguments(), recipe);
  VSmoothState state({.steps = 8});
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    state.begin_step(step);
    const Outcome stepped = run(inputs.arguments(), recipe, &state);
    EXPECT_TRUE(within(class_of(recipe), stepped, referee(inputs.arguments())));
  }
}

/// SIL-06: and so does a plan, without an LSE.
void plan_over_poisoned_memory(const Recipe& recipe) {
  need_host("CudaStreams.WorkspaceComesFromTheCallersAllocator, which poisons memory");
  const Inputs inputs({.batch = 2, .q_heads = 3, .queries = 150, .keys = 200});
  const Outcome direct = run(inputs.arguments(), recipe);
  poison_heap();
  GuardedTensor out(DType::kBF16, direct.out_view().shape, direct.out_view().stride);
  Arguments a = inputs.arguments();
  a.out = out.mutable_view();
  make_plan(a, {.recipe = recipe}).run();
  EXPECT_TRUE(out.written());
  EXPECT_TRUE(same_bits(out.view(), direct.out_view()));
}

/// SIL-07: no row of zeros for values that are not zero. 2 heads of 8.
void no_zero_rows(const Recipe& recipe) {
  const Inputs inputs({.batch = 2, .q_heads = 2, .queries = 1024, .keys = 1024, .causal = true});
  const Outcome outcome = run(inputs.arguments(), recipe);
  for (std::int64_t row = 0; row < 2 * 2 * 1024; ++row) {
    float most = 0.0F;
    for (std::int64_t d = 0; d < 128; ++d) {
      most = std::max(most, std::abs(outcome.out.get(row / 2048, row / 1024 % 2, row % 1024, d)));
    }
    ASSERT_GT(most, 0.0F) << row;
  }
}

/// SIL-07: nor for rows that see a single key, wherever its score lies among those that others see.
void no_zero_masked_rows(const Recipe& recipe) {
  const Inputs inputs({.queries = 512, .keys = 512, .q = affine(normal(1), 8.0F)});
  HostTensor own(DType::kBool, {1, 1, 512, 512});
  own.fill([](const Index& at) { return at.d == at.s ? 1.0F : 0.0F; });
  Arguments a = inputs.arguments();
  a.mask = own.view();
  const Outcome outcome = run(a, recipe);
  EXPECT_TRUE(all_finite(outcome.lse_view()));
  // The output is the value of that key, whatever the error of its score.
  const Tolerance& tolerance = class_of(recipe);
  EXPECT_TRUE(within({"own value", tolerance.rel_l2, tolerance.cosine, tolerance.row_cosine, 10.0},
                     outcome, referee(a)));
}

/// SIL-08: few query tiles over many keys, in every output dtype. 1 head, 96 queries of 1024.
void output_dtypes(const Recipe& recipe) {
  const Inputs inputs({.queries = 96, .keys = 62208});
  const auto rows = sample_rows(96, 16);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    expect_class(inputs.arguments(), recipe, rows, {.dtype = dtype});
  }
}

/// SIL-09: decode with few KV heads and scores near -300 nats.
void low_decode_scores(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 28,
                       .kv_heads = 4,
                       .queries = 1,
                       .keys = 512,
                       .q = affine(normal(1), 1.0F, 3.0F),
                       .k = affine(normal(2), 0.3F, -300.0F / (3.0F * 11.3137F))});
  const Outcome outcome = expect_class(inputs.arguments(), recipe);
  const Reference reference = referee(inputs.arguments());
  for (std::int64_t h = 0; h < 28; ++h) {
    EXPECT_LT(reference.lse[static_cast<std::size_t>(h)], -200.0);
    const double* ref = reference.out.data() + h * 128;
    const auto best = std::max_element(ref, ref + 128) - ref;
    std::int64_t chosen = 0;
    for (std::int64_t d = 0; d < 128; ++d) {
      if (outcome.out.get(0, h, 0, d) > outcome.out.get(0, h, 0, chosen)) chosen = d;
    }
    // Another channel only where the two are closer than the tolerance can tell apart.
    EXPECT_GE(ref[chosen], ref[best] - 0.02) << "head " << h;
  }
}

/// SIL-10: broadcast K and V, along the batch and along the heads.
void expanded_operands(const Recipe& recipe) {
  for (const std::int64_t keys : {32, 33, 64, 65, 97}) {
    for (const int axis : {0, 1}) {
      SCOPED_TRACE(testing::Message() << keys << " keys, axis " << axis);
      const Inputs one({.queries = 40, .keys = keys, .dim = 64});
      const Inputs three({.batch = axis == 0 ? 3 : 1,
                          .q_heads = axis == 1 ? 3 : 1,
                          .queries = 40,
                          .keys = keys,
                          .dim = 64});
      Arguments a = three.arguments();
      a.k = expand(one.k.view(), axis, 3);
      a.v = expand(one.v.view(), axis, 3);
      const Outcome expanded = run(a, recipe);
      const HostTensor k = contiguous(a.k), v = contiguous(a.v);
      a.k = k.view();
      a.v = v.view();
      expect_same(run(a, recipe), expanded);
    }
  }
}

/// SIL-11, API-01: each head dimension is right or refused with the list of those that are.
void head_dimensions(const Recipe& recipe) {
  for (const std::int64_t dim :
       {1, 2, 8, 17, 32, 40, 63, 64, 65, 72, 80, 96, 104, 112, 120, 128, 160, 192, 255, 256}) {
    SCOPED_TRACE(testing::Message() << "d = " << dim);
    const Inputs inputs({.q_heads = 2, .queries = 100, .keys = 150, .dim = dim});
    Tolerance tolerance = class_of(recipe);
    // All the few channels of a row may be near 0, which leaves its cosine without a meaning.
    if (dim <= 32) tolerance = {"few channels", std::max(tolerance.rel_l2, 0.12), 0.97, -1.0, 0.6};
    EXPECT_TRUE(within(tolerance, run(inputs.arguments(), recipe), referee(inputs.arguments())));
  }
  for (const std::int64_t dim : {0, 257, 512}) {
    const Inputs inputs({.queries = 4, .keys = 4, .dim = dim});
    EXPECT_THAT(refusal(inputs.arguments(), {.recipe = recipe}), testing::HasSubstr("1 to 256"));
  }
}

/// SIL-12, SIL-13: any strides give the bits of dense tensors, for inputs and outputs.
void odd_strides(const Recipe& recipe) {
  const Inputs inputs({.batch = 2, .q_heads = 3, .queries = 70, .keys = 70, .dim = 64});
  const Arguments a = inputs.arguments();
  const Outcome expected = run(a, recipe);
  const std::vector<NamedStrides> layouts = odd_layouts(a.q.shape);
  const std::vector<NamedStrides> lse_layouts = odd_layouts({2, 3, 70, 1});
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    SCOPED_TRACE(layouts[i].name);
    const Shape& stride = layouts[i].stride;
    expect_same_in({.out = stride, .lse = lse_layouts[i].stride}, a, recipe, expected);
    expect_same_in({stride, stride, stride, stride, {}}, a, recipe, expected);
    // Each tensor in a layout of its own.
    expect_same_in({stride,
                    layouts[(i + 1) % layouts.size()].stride,
                    layouts[(i + 2) % layouts.size()].stride,
                    {},
                    {}},
                   a, recipe, expected);
  }
}

/// SIL-14: every (batch, head) gets its own values.
void sentinel_values(const Recipe& recipe) {
  for (const std::int64_t tokens : {300, 17, 129}) {
    const Inputs inputs(
        {.batch = 3, .q_heads = 4, .queries = tokens, .keys = tokens, .v = [](const Index& at) {
           return static_cast<float>(100 * at.b + at.h);
         }});
    for (const NamedStrides& layout : odd_layouts(inputs.arguments().q.shape)) {
      const Outcome outcome =
          run(inputs.arguments(), recipe, nullptr, {.out_stride = layout.stride});
      HostTensor expected(DType::kBF16, outcome.out_view().shape);
      expected.fill([](const Index& at) { return static_cast<float>(100 * at.b + at.h); });
      EXPECT_TRUE(same_bits(outcome.out_view(), expected.view())) << layout.name;
    }
  }
}

/// SIL-15, API-08: a head dimension equals the same tensor zero-padded, at the scale of the
/// original.
void padded_dimensions(const Recipe& recipe) {
  for (const std::int64_t dim : {72, 80, 96, 104, 112}) {
    SCOPED_TRACE(testing::Message() << "d = " << dim);
    const Inputs inputs({.q_heads = 2, .queries = 60, .keys = 140, .dim = dim});
    const auto padded = [dim](const HostTensor& tensor) {
      Shape shape = tensor.view().shape;
      shape[3] = 128;
      HostTensor result(DType::kBF16, shape);
      result.fill(
          [&](const Index& at) { return at.d < dim ? tensor.get(at.b, at.h, at.s, at.d) : 0.0F; });
      return result;
    };
    const HostTensor q = padded(inputs.q), k = padded(inputs.k), v = padded(inputs.v);
    Arguments a;
    a.q = q.view();
    a.k = k.view();
    a.v = v.view();
    a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
    const Outcome wide = run(a, recipe), narrow_outcome = run(inputs.arguments(), recipe);
    EXPECT_TRUE(same_bits(narrow(wide.out_view(), 3, 0, dim), narrow_outcome.out_view()));
    EXPECT_TRUE(same_bits(wide.lse_view(), narrow_outcome.lse_view()));
  }
}

/// SIL-16: query head h reads KV head floor(h * Hkv / Hq).
void grouped_heads(const Recipe& recipe) {
  for (const std::int64_t group : {1, 3, 7, 8, 24, 32}) {
    const Inputs inputs({.q_heads = 3 * group,
                         .kv_heads = 3,
                         .queries = 5,
                         .keys = 40,
                         .dim = 64,
                         .v = [](const Index& at) { return static_cast<float>(at.h + 1); }});
    const Outcome outcome = run(inputs.arguments(), recipe);
    for (std::int64_t h = 0; h < 3 * group; ++h) {
      EXPECT_EQ(outcome.out.get(0, h, 4, 63), static_cast<float>(h / group + 1)) << group;
    }
  }
}

/// SIL-17: padding takes no part in the sum: q = 0 gives the mean of V and ln of the count.
void padding_lanes(const Recipe& recipe) {
  for_every_key_count({.keys = 520, .q = constant(0.0F)}, [&](const Arguments& a) {
    const Outcome outcome = run(a, recipe);
    EXPECT_LE(compare(outcome, referee(a)).rel_l2, 0.04);
    EXPECT_NEAR(outcome.lse_at(0, 0, 0), std::log(static_cast<double>(a.k.tokens())),
                kEqualScoresLse);
  });
}

/// SIL-18: the same bits every time, on any number of threads, the permutation included. 1 x 2
/// heads and 1024 tokens for 2 x 8 and 8192: what varies is the schedule, not the size.
void repeatable(const Recipe& recipe) {
  const Inputs inputs({.q_heads = 2, .queries = 1024, .keys = 1024});
  std::optional<Outcome> first;
  std::vector<std::int32_t> first_order;
  for (int repeat = 0; repeat < 50; ++repeat) {
    const oneapi::tbb::global_control threads(oneapi::tbb::global_control::max_allowed_parallelism,
                                              1 + repeat % 4);
    VSmoothState state;
    Outcome outcome = run(inputs.arguments(), recipe, &state);
    const auto order = state.grouping() == nullptr ? std::vector<std::int32_t>{}
                                                   : state.grouping()->permutation(0, 1);
    if (first) {
      expect_same(outcome, *first);
      ASSERT_EQ(order, first_order);
    } else {
      first = std::move(outcome);
      first_order = order;
    }
  }
}

/// SIL-19: a batch equals its samples.
void batch_equals_samples(const Recipe& recipe) {
  for (const std::int64_t batch : {1, 2, 3}) {
    for (const std::int64_t tokens : {128, 200, 1001}) {
      const Inputs inputs(
          {.batch = batch, .q_heads = 2, .queries = tokens, .keys = tokens, .dim = 64});
      const Outcome together = run(inputs.arguments(), recipe);
      for (std::int64_t b = 0; b < batch; ++b) {
        Arguments a = inputs.arguments();
        for (TensorView* view : {&a.q, &a.k, &a.v}) *view = narrow(*view, 0, b, 1);
        const Outcome alone = run(a, recipe);
        EXPECT_TRUE(same_bits(alone.out_view(), narrow(together.out_view(), 0, b, 1)));
        EXPECT_TRUE(same_bits(alone.lse_view(), narrow(together.lse_view(), 0, b, 1)));
      }
    }
  }
}

const bool kRegistered = register_cases(
    "SilentNoise", {
                       {"SIL-01", {"vc8", "vc8-fast", "sage2"}, no_length_cliff},
                       {"SIL-02", kAll, far_offsets},
                       {"SIL-03", {"vc8"}, far_offsets},
                       {"SIL-04", {}, referee_reads_far_offsets},
                       {"SIL-05", kAll, far_mask},
                       {"SIL-06", kAll, poisoned_memory},
                       {"SIL-06_plan", kAll, plan_over_poisoned_memory},
                       {"SIL-07", kAll, no_zero_rows},
                       {"SIL-07_masked", kAll, no_zero_masked_rows},
                       {"SIL-08", {"vc8", "vc8-fast", "sage2"}, output_dtypes},
                       {"SIL-09",
                        {"vc8", "vc8-paper", "vc8-exp", "vc8-fast", "sage2", "exact"},
                        low_decode_scores},
                       {"SIL-10", kAll, expanded_operands},
                       {"SIL-11", kAll, head_dimensions},
                       {"SIL-12", kAll, odd_strides},
                       {"SIL-13", {"vc8"}, odd_strides},
                       {"SIL-14", kAll, sentinel_values},
                       {"SIL-15", kAll, padded_dimensions},
                       {"SIL-16", kAll, grouped_heads},
                       {"SIL-17", kAll8, padding_lanes},
                       {"SIL-18", {"vc8", "vc4", "sage2"}, repeatable},
                       {"SIL-19", kAll, batch_equals_samples},
                   });

}  // namespace
}  // namespace vcattn::test
