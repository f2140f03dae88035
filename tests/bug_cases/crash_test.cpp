// Rows CRA-01 to CRA-13: aborts, illegal accesses and refusals in the middle of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bug_cases/bug_case.h"
#include "bug_cases/definition.h"
#include "bug_cases/segments.h"
#include "bug_cases/tail_sweep.h"
#include "support/portable_random.h"

namespace vcattn::test {
namespace {

using testing::HasSubstr;

/// Uniform integers, a new one at each call.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : seed_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    const double u = portable_uniform(seed_, next_++);
    return low + static_cast<std::int64_t>(u * static_cast<double>(high - low + 1));
  }
  /// Spread evenly over the orders of magnitude.
  std::int64_t size(std::int64_t high) {
    const double u = portable_uniform(seed_, next_++);
    return static_cast<std::int64_t>(std::exp(u * std::log(static_cast<double>(high) + 0.99)));
  }

 private:
  std::uint32_t seed_, next_ = 0;
};

/// CRA-01: every tail, with and without a state.
void every_tail(const Recipe& recipe) {
  for_every_key_count({.queries = 3, .keys = 400}, [&](const Arguments& a) {
    const Outcome outcome = expect_class(a, recipe);
    VSmoothState state;
    EXPECT_TRUE(same_bits(run(a, recipe, &state).out_view(), outcome.out_view()));
  });
}

/// CRA-03: strides of axes with one element mean nothing; reaches that 64 bits cannot hold are
/// refused.
void absurd_strides(const Recipe& recipe) {
  constexpr std::int64_t kAbsurd = std::numeric_limits<std::int64_t>::max();
  const Inputs inputs({.queries = 1, .keys = 40, .dim = 64});
  const Outcome expected = run(inputs.arguments(), recipe);
  Arguments a = inputs.arguments();
  for (TensorView* view : {&a.q, &a.k, &a.v}) {
    view->stride[0] = kAbsurd;
    view->stride[1] = -kAbsurd;
  }
  a.q.stride[2] = kAbsurd;
  EXPECT_TRUE(same_bits(run(a, recipe).out_view(), expected.out_view()));
  for (const std::int64_t stride : {kAbsurd, -kAbsurd, kAbsurd / 39}) {
    Arguments far = inputs.arguments();
    far.k.stride[2] = stride;
    EXPECT_THAT(refusal(far, {.recipe = recipe}), HasSubstr("k: strides"));
  }
  Arguments huge = inputs.arguments();
  huge.v.shape[2] = huge.k.shape[2] = std::int64_t{1} << 40;
  EXPECT_THAT(refusal(huge, {.recipe = recipe}), HasSubstr("k: shape"));
}

/// CRA-04: tensors of a device that no backend here serves are refused, by name, before anything
/// reads them.
void wrong_device(const Recipe& recipe) {
  const Inputs inputs({.queries = 4, .keys = 4});
  Arguments a = inputs.arguments();
  EXPECT_THAT(refusal(a, {recipe, BackendChoice::kCuda}, ErrorCode::kUnsupported),
              HasSubstr("cuda"));
  a.device = {Device::Kind::kCuda, 99};
  a.k.data = a.v.data = a.q.data = reinterpret_cast<const void*>(0x1000);  // not of this process
  EXPECT_THAT(refusal(a, {.recipe = recipe}, ErrorCode::kUnsupported), HasSubstr("cuda:99"));
}

/// CRA-05: packed totals around 16384. 2 heads over 1 for 32 over 4; segments of up to 1000 tokens.
void packed_totals(const Recipe& recipe) {
  for (const std::int32_t total : {16383, 16384, 65536}) {
    SCOPED_TRACE(testing::Message() << total << " tokens");
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(total / 1000), 1000);
    lengths.push_back(total % 1000);
    const std::vector<std::int32_t> offsets = offsets_of(lengths);
    const Inputs inputs({.q_heads = 2, .kv_heads = 1, .queries = total, .keys = total, .dim = 64});
    Arguments a = inputs.arguments();
    a.q_segments = a.k_segments = segments_of(offsets);
    expect_class(a, recipe, sample_rows(total, 97));
  }
}

/// CRA-07: every seventh length of a fused QKV whose offsets cross 2^31 and 2^32. 600 to 1100
/// tokens with strides 200 times those of the row (56 heads of 128).
void fused_far_lengths(const Recipe& recipe) {
  constexpr std::int64_t kStride = 21504 * 200, kLongest = 1100;
  HostTensor fused(DType::kBF16, {1, 3, kLongest, 128}, {0, 56 * 128, kStride, 1});
  fused.fill(normal(1));
  for (std::int64_t tokens = 600; tokens <= kLongest; tokens += 79) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens");
    Arguments a;
    a.q = narrow(narrow(fused.view(), 1, 0, 1), 2, tokens - 65, 65);
    a.k = narrow(narrow(fused.view(), 1, 1, 1), 2, 0, tokens);
    a.v = narrow(narrow(fused.view(), 1, 2, 1), 2, 0, tokens);
    const Outcome outcome = run(a, recipe);
    const HostTensor q = contiguous(a.q), k = contiguous(a.k), v = contiguous(a.v);
    Arguments dense;
    dense.q = q.view();
    dense.k = k.view();
    dense.v = v.view();
    EXPECT_TRUE(same_bits(run(dense, recipe).out_view(), outcome.out_view()));
  }
}

/// CRA-08: 1 to 9 segments of any length, empty ones among them, equal calls of their own.
void random_segments(const Recipe& recipe) {
  Draw draw(8);
  for (std::int64_t count = 1; count <= 9; ++count) {
    SCOPED_TRACE(testing::Message() << count << " segments");
    std::vector<std::int32_t> q_lengths, k_lengths;
    for (std::int64_t i = 0; i < count; ++i) {
      q_lengths.push_back(static_cast<std::int32_t>(draw(i == 3 ? 0 : 1, i == 3 ? 0 : 300)));
      k_lengths.push_back(static_cast<std::int32_t>(draw(i == 5 ? 0 : 1, i == 5 ? 0 : 700)));
    }
    const auto q_offsets = offsets_of(q_lengths), k_offsets = offsets_of(k_lengths);
    const Inputs inputs({.q_heads = 2,
                         .kv_heads = 1,
                         .queries = q_offsets.back(),
                         .keys = k_offsets.back(),
                         .dim = 64,
                         .causal = count % 2 == 0});
    Arguments a = inputs.arguments();
    a.q_segments = segments_of(q_offsets);
    a.k_segments = segments_of(k_offsets);
    expect_segments_alone(a, recipe);
  }
}

/// CRA-09: random shapes, dtypes, layouts, masks and recipes. Sizes are spread over the orders of
/// magnitude up to the 5000 of the row and bounded in their product, so that 120 of them take
/// seconds.
void random_shapes(const Recipe&) {
  Draw draw(9);
  std::vector<Recipe> recipes;
  for (const std::string& name : recipe_names()) {
    if (target().refuses(recipe(name)).empty()) recipes.push_back(recipe(name));
  }
  for (int i = 0; i < 120 && !testing::Test::HasFailure(); ++i) {
    const DType dtypes[] = {DType::kBF16, DType::kF16, DType::kF32};
    Setup setup{.batch = draw(1, 4), .kv_heads = draw(1, 4)};
    setup.q_heads = setup.kv_heads * draw(1, 8);
    setup.queries = draw.size(5000);
    setup.keys = std::max<std::int64_t>(
        1, std::min(draw.size(5000), 8'000'000 / (setup.batch * setup.q_heads * setup.queries)));
    setup.dim = draw(0, 1) == 0 ? 64 * draw(1, 2) : draw(32, 160);
    setup.dtype = dtypes[draw(0, 2)];
    setup.layout = draw(0, 1) == 0 ? Layout::kBHSD : Layout::kBSHD;
    setup.causal = draw(0, 3) == 0;
    const Recipe& recipe = recipes[static_cast<std::size_t>(draw(0, std::ssize(recipes) - 1))];
    const Inputs inputs(setup);
    Arguments a = inputs.arguments();
    std::vector<std::int32_t> lengths;
    for (std::int64_t b = 0; b < setup.batch; ++b) {
      lengths.push_back(static_cast<std::int32_t>(draw(0, setup.keys)));
    }
    const bool padded = draw(0, 3) == 0;
    if (padded) a.key_lengths = lengths.data();
    HostTensor mask(DType::kBool, {1, 1, draw(0, 1) == 0 ? 1 : setup.queries, setup.keys});
    mask.fill([](const Index& at) { return portable_hash(at.i) % 4 == 0 ? 0.0F : 1.0F; });
    const bool masked = draw(0, 4) == 0;
    if (masked) a.mask = mask.view();
    const NamedStrides layout = odd_layouts(a.q.shape)[static_cast<std::size_t>(draw(0, 6))];
    SCOPED_TRACE(testing::Message() << "draw " << i << ": " << recipe.name << " B" << setup.batch
                                    << " H" << setup.q_heads << "/" << setup.kv_heads << " S"
                                    << setup.queries << "/" << setup.keys << " D" << setup.dim
                                    << (setup.causal ? " causal" : "") << (padded ? " padded" : "")
                                    << (masked ? " masked" : "") << ", out " << layout.name);
    const auto rows = sample_rows(setup.queries, 9);
    const Outcome outcome = run(a, recipe, nullptr, {.out_stride = layout.stride});
    // Rows of very few keys say more about one rounding than about a head: wider for them.
    Tolerance tolerance = class_of(recipe);
    tolerance.rel_l2 *= 1.5;
    tolerance.cosine = 1.0 - 2.0 * (1.0 - tolerance.cosine);
    tolerance.row_cosine = 1.0 - 3.0 * (1.0 - tolerance.row_cosine);
    tolerance.lse *= 2.0;
    const Reference reference = referee(a, rows);
    EXPECT_TRUE(within(tolerance, outcome, reference, rows));
    // The library's own referee, which every other row trusts, against the definition: where that
    // does not take long.
    const std::int64_t products = setup.batch * setup.q_heads * std::ssize(rows) * setup.keys;
    if (products > 40'000) continue;
    const Reference definition = by_definition(a, rows);
    for (std::size_t j = 0; j < definition.out.size(); ++j) {
      ASSERT_NEAR(reference.out[j], definition.out[j], 1e-6);
    }
    EXPECT_LE(compare(outcome, definition, rows).lse_max_abs, tolerance.lse);
  }
}

/// CRA-10: tensors that do not fit together are refused with the reason, before they are read.
void mismatched_tensors(const Recipe& recipe) {
  const auto tensor = [](Shape shape) {
    HostTensor result(DType::kBF16, shape);
    result.fill(normal(1));
    return result;
  };
  const HostTensor good = tensor({2, 4, 5, 64});
  struct Mismatch {
    Shape q, k, v;
    const char* reason;
  };
  const Shape fit{2, 4, 5, 64};
  for (const Mismatch& m : {Mismatch{fit, fit, {2, 4, 6, 64}, "v: 6 tokens differ from the 5 of k"},
                            Mismatch{fit, fit, {2, 4, 5, 128}, "v: head dimension 128"},
                            Mismatch{fit, {2, 4, 5, 32}, fit, "k: head dimension 32"},
                            Mismatch{fit, {1, 4, 5, 64}, fit, "k: batch 1"},
                            Mismatch{fit, fit, {3, 4, 5, 64}, "v: batch 3"},
                            Mismatch{fit, fit, {2, 2, 5, 64}, "v: 2 heads"},
                            Mismatch{fit, {2, 3, 5, 64}, {2, 3, 5, 64}, "k: head count 3"},
                            Mismatch{fit, {2, 0, 5, 64}, {2, 0, 5, 64}, "k: head count 0"},
                            Mismatch{{2, 4, 5, 64}, fit, {2, 4, -1, 64}, "v: shape"}}) {
    const auto view = [&](Shape shape) {
      return TensorView{good.view().data, DType::kBF16, shape, dense_strides(shape)};
    };
    Arguments a;
    a.q = view(m.q);
    a.k = view(m.k);
    a.v = view(m.v);
    EXPECT_THAT(refusal(a, {.recipe = recipe}), HasSubstr(m.reason));
  }
  Arguments a;
  a.q = a.k = a.v = good.view();
  a.v.data = nullptr;
  EXPECT_THAT(refusal(a, {.recipe = recipe}), HasSubstr("v: no data"));
  GuardedTensor small(DType::kBF16, {2, 4, 4, 64}, dense_strides({2, 4, 4, 64}));
  a.v = good.view();
  a.out = small.mutable_view();
  EXPECT_THAT(refusal(a, {.recipe = recipe}), HasSubstr("out: shape"));
  EXPECT_TRUE(small.untouched());
}

/// CRA-11: offsets cannot leave gaps, and offsets that lie are refused; gaps are key lengths.
void gaps_between_segments(const Recipe& recipe) {
  const Inputs inputs({.queries = 40, .keys = 40, .dim = 64});
  struct Lie {
    std::vector<std::int32_t> q, k;
    const char* reason;
  };
  for (const Lie& lie : {Lie{{0, 10, 30}, {0, 20, 40}, "q_segments: the last offset is 30"},
                         Lie{{0, 20, 40}, {0, 20, 50}, "k_segments: the last offset is 50"},
                         Lie{{5, 20, 40}, {0, 20, 40}, "q_segments: the first offset is 5"},
                         Lie{{0, 50, 40}, {0, 20, 40}, "q_segments: offset 2 is 40, below"},
                         Lie{{0, 20, 40}, {0, -20, 40}, "k_segments: offset 1 is -20, below"},
                         Lie{{0, 20, 40}, {0, 40}, "k_segments: 1 segments"}}) {
    Arguments a = inputs.arguments();
    a.q_segments = segments_of(lie.q);
    a.k_segments = segments_of(lie.k);
    EXPECT_THAT(refusal(a, {.recipe = recipe}), HasSubstr(lie.reason));
  }
  for (const std::int32_t length : {-1, 41}) {
    Arguments a = inputs.arguments();
    a.key_lengths = &length;
    EXPECT_THAT(refusal(a, {.recipe = recipe}), HasSubstr("key_lengths"));
  }
}

/// CRA-12: packed tokens whose offsets pass 2^31 and 2^32: 3000 tokens with 200 times the stride of
/// 64 heads.
void far_segments(const Recipe& recipe) {
  constexpr std::int64_t kTokens = 3000;
  const Shape shape{1, 1, kTokens, 64}, stride{0, 64, 8192 * 200, 1};
  HostTensor q(DType::kBF16, shape, stride), k(DType::kBF16, shape, stride),
      v(DType::kBF16, shape, stride);
  q.fill(normal(1));
  k.fill(normal(2));
  v.fill(normal(3));
  const auto offsets = offsets_of({1000, 7, 993, 500, 500});
  Arguments a;
  a.q = q.view();
  a.k = k.view();
  a.v = v.view();
  a.q_segments = a.k_segments = segments_of(offsets);
  expect_class(a, recipe, sample_rows(kTokens, 97), {.out_stride = stride});
}

/// CRA-13: views and base pointers that are aligned to an element and to nothing else.
void unaligned_views(const Recipe& recipe) {
  for (const std::int64_t dim : {126, 128, 33}) {
    SCOPED_TRACE(testing::Message() << "d = " << dim);
    const Inputs inputs({.q_heads = 2, .queries = 33, .keys = 70, .dim = dim});
    const Arguments dense = inputs.arguments();
    const Outcome expected = expect_class(dense, recipe);
    // (S, H, D) transposed, with an odd row pitch, one element behind an aligned address.
    const auto odd = [&](const TensorView& view) {
      return copy(view, {0, dim + 1, 2 * (dim + 1) + 1, 1}, 1);
    };
    const HostTensor q = odd(dense.q), k = odd(dense.k), v = odd(dense.v);
    Arguments a;
    a.q = q.view();
    a.k = k.view();
    a.v = v.view();
    EXPECT_TRUE(same_bits(run(a, recipe).out_view(), expected.out_view()));
    a.k.data = static_cast<const std::byte*>(a.k.data) + 1;
    EXPECT_THAT(refusal(a, {.recipe = recipe}), HasSubstr("k: the data pointer is not aligned"));
  }
}

const bool kRegistered =
    register_cases("Crash", {
                                {"CRA-01", kAll8, every_tail},
                                {"CRA-03", {"vc8", "sage2"}, absurd_strides},
                                {"CRA-04", {"vc8"}, wrong_device},
                                {"CRA-05", {"vc8", "vc8-fast", "sage2"}, packed_totals},
                                {"CRA-06",
                                 {"vc8", "sage2"},
                                 [](const Recipe& r) {
                                   // 118800 tokens of video and 256 of text; 1 head of 24, 16
                                   // queries.
                                   expect_class({.queries = 16, .keys = 118800 + 256}, r);
                                 }},
                                {"CRA-07", {"vc8", "sage2"}, fused_far_lengths},
                                {"CRA-08", kAll, random_segments},
                                {"CRA-09", {}, random_shapes},
                                {"CRA-10", {"vc8", "exact"}, mismatched_tensors},
                                {"CRA-11", {"vc8"}, gaps_between_segments},
                                {"CRA-12", {"vc8", "vc4", "sage2"}, far_segments},
                                {"CRA-13", kAll, unaligned_views},
                            });

}  // namespace
}  // namespace vcattn::test
