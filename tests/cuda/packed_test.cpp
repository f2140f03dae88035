// Packed sequences on the GPU: a call on each segment alone says what every segment must be, the
// float64 referee that both are right. Also run under the emulator.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "bug_cases/segments.h"
#include "bug_cases/tolerance.h"
#include "cuda/device_call.h"
#include "cuda/rope_tables.h"
#include "vcattn/staging.h"

namespace vcattn::test {
namespace {

using Lengths = std::vector<std::int32_t>;

/// Segments of q and k over tensors of theirs.
struct Packed {
  Packed(const Lengths& q_lengths, const Lengths& k_lengths, Setup setup)
      : q_offsets(offsets_of(q_lengths)), k_offsets(offsets_of(k_lengths)), inputs([&] {
          setup.queries = q_offsets.back();
          setup.keys = k_offsets.back();
          return setup;
        }()) {}
  Arguments arguments() const {
    Arguments a = inputs.arguments();
    a.q_segments = segments_of(q_offsets);
    a.k_segments = segments_of(k_offsets);
    return a;
  }
  std::vector<std::int32_t> q_offsets, k_offsets;
  Inputs inputs;
};

/// One query; no query; no key; tails and whole tiles; more queries than keys and fewer.
const Lengths kQueries{1, 40, 0, 3, 130, 128}, kKeys{200, 1, 50, 0, 257, 128};

void expect_alone(const Arguments& a, const Outcome& together, const Recipe& r,
                  std::vector<VSmoothState>* states = nullptr) {
  for (std::int64_t i = 0; i < a.q_segments->count; ++i) {
    SCOPED_TRACE(testing::Message() << "segment " << i);
    const std::int32_t* q = a.q_segments->offsets + i;
    VSmoothState* state = states == nullptr ? nullptr : &(*states)[static_cast<std::size_t>(i)];
    const Outcome alone = run_on_device(segment_alone(a, i), r, {}, state);
    const auto segment = [&](const TensorView& view) { return narrow(view, 2, q[0], q[1] - q[0]); };
    EXPECT_TRUE(same_bits(alone.out_view(), segment(together.out_view())));
    EXPECT_TRUE(same_bits(alone.lse_view(), segment(together.lse_view())));
  }
}

TEST(CudaPacked, EqualsACallPerSegment) {
  VCATTN_NEEDS_HOPPER();
  for (const char* name : {"vc8", "vc8-fast", "vc8-shaped"}) {
    SCOPED_TRACE(name);
    const Recipe r = recipe(name);
    const Packed packed(kQueries, kKeys, {.q_heads = 4, .kv_heads = 2, .dim = 64});
    const Arguments a = packed.arguments();
    const Outcome together = run_on_device(a, r);
    expect_alone(a, together, r);
    EXPECT_TRUE(within(class_of(r), together, referee(a)));
    for (std::int64_t row = a.q_segments->offsets[3]; row < a.q_segments->offsets[4]; ++row) {
      EXPECT_EQ(together.out.get(0, 3, row, 63), 0.0F) << "no keys";
      EXPECT_EQ(together.lse_at(0, 3, row), -INFINITY) << "no keys";
    }
  }
}

/// float32 with tokens before heads, an output in another layout, d between the native ones.
TEST(CudaPacked, AnyLayout) {
  VCATTN_NEEDS_HOPPER();
  const Recipe r = device_recipe("vc8");
  const Packed packed(
      kQueries, kKeys,
      {.q_heads = 2, .kv_heads = 1, .dim = 72, .dtype = DType::kF32, .layout = Layout::kBSHD});
  const Arguments a = packed.arguments();
  for (const NamedStrides& layout : odd_layouts(a.q.shape)) {
    SCOPED_TRACE(layout.name);
    DeviceOptions options;
    options.layout.out_stride = layout.stride;
    options.layout.lse_stride = Shape{a.q.tokens() * 5, 1, 5, 1};
    expect_alone(a, run_on_device(a, r, options), r);
  }
}

/// Rotary tables go by the packed token: each segment sees the rows of its own tokens.
TEST(CudaPacked, RotaryTablesGoByThePackedToken) {
  VCATTN_NEEDS_HOPPER();
  const Recipe r = device_recipe("vc8");
  for (const std::int64_t pairs : {32, 5}) {
    SCOPED_TRACE(pairs);
    const Packed packed({60, 70}, {150, 90}, {.q_heads = 2, .dim = 64});
    const RopeTables q_tables(130, pairs, 3), k_tables(240, pairs, 4);
    Arguments a = packed.arguments();
    a.q_rope = q_tables.rope(RopeLayout::kHalf);
    a.k_rope = k_tables.rope(RopeLayout::kHalf);
    const Outcome together = run_on_device(a, r);
    EXPECT_TRUE(within(class_of(r), together, referee(a)));
    expect_alone(a, together, r);
  }
}

Recipe finely_clustered() {
  Recipe r = recipe("vc8");
  r.keys_per_cluster = 16;
  return r;
}

/// Steps that group, warm-start, keep the grouping and drop the means, as a state per segment does.
TEST(CudaPacked, AStateHoldsAGroupingPerSegmentAndHead) {
  VCATTN_NEEDS_HOPPER();
  const Recipe r = finely_clustered();
  const VSmoothSchedule schedule{
      .steps = 8, .window = 0.5, .refresh = 2, .means_after_window = false};
  const Packed packed({30, 0, 50, 20}, {100, 60, 0, 257}, {.q_heads = 2, .dim = 64});
  const Arguments a = packed.arguments();
  VSmoothState state(schedule);
  std::vector<VSmoothState> alone(4, VSmoothState(schedule));
  for (const int step : {0, 1, 2, 6}) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    state.begin_step(step);
    for (VSmoothState& each : alone) each.begin_step(step);
    const Outcome together = run_on_device(a, r, {}, &state);
    expect_alone(a, together, r, &alone);
    EXPECT_TRUE(within(class_of(r), together, referee(a)));
    for (const std::int64_t segment : {0, 3}) {
      for (const std::int64_t head : {0, 1}) {
        const auto& own = alone[static_cast<std::size_t>(segment)].grouping();
        EXPECT_EQ(state.grouping()->permutation(segment, head), own->permutation(0, head));
        EXPECT_EQ(state.grouping()->centroids(segment, head), own->centroids(0, head));
      }
    }
  }
  EXPECT_TRUE(state.grouping()->permutation(2, 1).empty()) << "no keys";
  auto unseen = state.grouping()->permutation(1, 0);  // of keys without a query, for later ones
  std::sort(unseen.begin(), unseen.end());
  Lengths all(60);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(unseen, all);
  EXPECT_THROW(state.grouping()->permutation(4, 0), Error);
}

/// A grouping is of its segments: as many tokens, cut elsewhere, are others.
TEST(CudaPacked, OtherSegmentsAreGroupedAnew) {
  VCATTN_NEEDS_HOPPER();
  const Recipe r = finely_clustered();
  const VSmoothSchedule schedule{.steps = 8, .window = 1.0, .refresh = 8};
  const Packed first({40, 40}, {100, 150}, {.q_heads = 2, .dim = 64});
  const Packed second({40, 40}, {150, 100}, {.q_heads = 2, .dim = 64});
  VSmoothState state(schedule), fresh(schedule);
  run_on_device(first.arguments(), r, {}, &state);
  state.begin_step(1);
  fresh.begin_step(1);
  const Outcome found = run_on_device(second.arguments(), r, {}, &state);
  const Outcome expected = run_on_device(second.arguments(), r, {}, &fresh);
  EXPECT_TRUE(same_bits(found.out_view(), expected.out_view()));
  EXPECT_EQ(state.grouping()->permutation(0, 1).size(), 150U);
}

/// One allocation, of the bytes that the largest segment takes alone.
TEST(CudaPacked, SegmentsShareTheWorkspaceOfTheLargest) {
  VCATTN_NEEDS_HOPPER();
  std::vector<std::size_t> asked;
  DeviceOptions options;
  options.allocator.context = &asked;
  options.allocator.allocate = [](void* context, std::size_t bytes, void*) -> void* {
    static_cast<std::vector<std::size_t>*>(context)->push_back(bytes);
    void* pointer = nullptr;
    return cudaMalloc(&pointer, bytes) == cudaSuccess ? pointer : nullptr;
  };
  options.allocator.deallocate = [](void*, void* pointer, void*) { cudaFree(pointer); };
  const Packed packed({40, 150, 130}, {60, 300, 250}, {.q_heads = 2, .dim = 64});
  run_on_device(packed.arguments(), recipe("vc8"), options);
  run_on_device(segment_alone(packed.arguments(), 1), recipe("vc8"), options);
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[0], asked[1]);
}

/// Offsets are host memory, so those that lie are found before a kernel runs on them; causal
/// segments are the CPU backend's.
TEST(CudaPacked, WrongOffsetsAndCausalSegmentsAreRefused) {
  VCATTN_NEEDS_HOPPER();
  const Packed packed({30, 20}, {40, 60}, {.q_heads = 2, .dim = 64});
  const auto reason = [](Arguments a) {
    const GuardedTensor out(DType::kBF16, a.q.shape, dense_strides(a.q.shape));
    a.out = out.mutable_view();
    a.device = {Device::Kind::kCuda, 0};
    return why_not(a, {.backend = BackendChoice::kCuda});
  };
  EXPECT_EQ(reason(packed.arguments()), "");
  Arguments a = packed.arguments();
  const auto beyond = offsets_of({40, 61});
  a.k_segments = segments_of(beyond);
  EXPECT_THAT(reason(a), testing::HasSubstr("k_segments: the last offset is 101, not the token "
                                            "count 100"));
  a = packed.arguments();
  a.causal = true;
  EXPECT_THAT(reason(a), testing::HasSubstr("causal"));
}

/// A call from host memory, copied there and back: the offsets stay where they are.
TEST(CudaPacked, HostTensorsAreStaged) {
  VCATTN_NEEDS_HOPPER();
  const Packed packed({30, 0, 20}, {40, 60, 150}, {.q_heads = 2, .dim = 64});
  const Outcome expected = run_on_device(packed.arguments(), recipe("vc8"));
  Arguments host = packed.arguments();
  const GuardedTensor out(DType::kBF16, host.q.shape, dense_strides(host.q.shape));
  host.out = out.mutable_view();
  const StagedCall staged = stage(host, {.recipe = recipe("vc8"), .backend = BackendChoice::kCuda});
  staged.run();
  staged.call->fetch();
  EXPECT_TRUE(out.written());
  EXPECT_TRUE(same_bits(out.view(), expected.out_view()));
}

TEST(CudaPacked, ThePlanSaysHowSegmentsRun) {
  VCATTN_NEEDS_HOPPER();
  const Packed packed({30, 20}, {40, 60}, {.q_heads = 2, .dim = 64});
  const Arguments host = packed.arguments();
  Arguments a = host;
  const GuardedTensor out(DType::kBF16, a.q.shape, dense_strides(a.q.shape));
  a.out = out.mutable_view();
  a.device = {Device::Kind::kCuda, 0};
  EXPECT_THAT(make_plan(a).explain(), testing::HasSubstr("The 2 segments run one after the other"));
}

}  // namespace
}  // namespace vcattn::test
