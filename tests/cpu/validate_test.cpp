// Bad arguments: each is refused before anything is touched, with a message that names it, says
// what was given and what is supported.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "bug_cases/call.h"

namespace vcattn::test {
namespace {

struct BadCall {
  const char* name;
  std::function<void(Arguments&, Recipe&)> spoil;
  const char* where;  ///< the argument the message must name
  const char* given;  ///< a part of the message: the value or shape that was given
};

const std::int32_t kLengths[] = {5, 31};
const std::int32_t kOffsets[] = {0, 20, 10, 30};
const std::int32_t kGood[] = {0, 10, 20, 30};
const float kTable[64] = {};

const BadCall kBadCalls[] = {
    {"NoData", [](auto& a, auto&) { a.q.data = nullptr; }, "q", "no data"},
    {"BoolInput", [](auto& a, auto&) { a.v.dtype = DType::kBool; }, "v", "bool"},
    {"DimZero", [](auto& a, auto&) { a.q.shape[3] = 0; }, "q", "dimension 0"},
    {"DimTooLarge",
     [](auto& a, auto&) {
       for (TensorView* view : {&a.q, &a.k, &a.v}) view->shape[3] = 257;
     },
     "q", "257"},
    {"DimOfKeys", [](auto& a, auto&) { a.k.shape[3] = 64; }, "k", "64"},
    {"DimOfValues", [](auto& a, auto&) { a.v.shape[3] = 64; }, "v", "64"},
    {"Batch", [](auto& a, auto&) { a.k.shape[0] = 1; }, "k", "batch 1"},
    {"HeadsDoNotDivide", [](auto& a, auto&) { a.k.shape[1] = a.v.shape[1] = 3; }, "k",
     "head count 3"},
    {"NoKeyHeads", [](auto& a, auto&) { a.k.shape[1] = a.v.shape[1] = 0; }, "k", "head count 0"},
    {"HeadsOfValues", [](auto& a, auto&) { a.v.shape[1] = 1; }, "v", "1 heads"},
    {"TokensOfValues", [](auto& a, auto&) { a.v.shape[2] = 29; }, "v", "29 tokens"},
    {"NegativeSize", [](auto& a, auto&) { a.k.shape[2] = -1; }, "k", "-1"},
    {"HugeSize", [](auto& a, auto&) { a.k.shape[2] = a.v.shape[2] = std::int64_t{1} << 31; }, "k",
     "2147483648"},
    {"StridesOverflow",
     [](auto& a, auto&) { a.v.stride[2] = std::numeric_limits<std::int64_t>::max() / 4; }, "v",
     "64-bit"},
    {"Misaligned", [](auto& a, auto&) { a.q.data = static_cast<const std::byte*>(a.q.data) + 1; },
     "q", "aligned"},
    {"OutShape", [](auto& a, auto&) { a.out.shape[2] = 9; }, "out", "9"},
    {"OutOverlaps", [](auto& a, auto&) { a.out.stride[1] = 0; }, "out", "stride 0"},
    {"LseOverlaps", [](auto& a, auto&) { a.lse->stride[2] = 0; }, "lse", "stride 0"},
    {"LseNoData", [](auto& a, auto&) { a.lse->data = nullptr; }, "lse", "no data"},
    {"ScaleNan", [](auto& a, auto&) { a.scale = std::nanf(""); }, "scale", "nan"},
    {"ScaleInfinite", [](auto& a, auto&) { a.scale = std::numeric_limits<float>::infinity(); },
     "scale", "inf"},
    {"MaskShape",
     [](auto& a, auto&) {
       a.mask = dense_view<const void>(kTable, DType::kF32, Layout::kBHSD, {1, 1, 1, 31});
     },
     "mask", "31"},
    {"KeyLengthTooLong", [](auto& a, auto&) { a.key_lengths = kLengths; }, "key_lengths", "31"},
    {"RopeTooShort",
     [](auto& a, auto&) {
       a.k_rope = Rope{kTable, kTable, 8, 4, RopeLayout::kHalf};
     },
     "k_rope", "8 rows"},
    {"RopeTooWide",
     [](auto& a, auto&) {
       a.q_rope = Rope{kTable, kTable, 64, 65, RopeLayout::kHalf};
     },
     "q_rope", "65 pairs"},
    {"RopeMisaligned",
     [](auto& a, auto&) {
       const auto* past = reinterpret_cast<const char*>(kTable) + 2;
       a.q_rope = Rope{kTable, reinterpret_cast<const float*>(past), 64, 4, RopeLayout::kHalf};
     },
     "q_rope", "2 bytes past"},
    {"RopeNoTable",
     [](auto& a, auto&) {
       a.q_rope = Rope{nullptr, kTable, 64, 4, RopeLayout::kHalf};
     },
     "q_rope", "missing"},
    {"SegmentsHalfGiven",
     [](auto& a, auto&) {
       a.q_segments = Segments{kGood, 3};
     },
     "k_segments", "both"},
    {"SegmentsBatch",
     [](auto& a, auto&) {
       a.q_segments = a.k_segments = Segments{kGood, 3};
     },
     "q_segments", "batch 2"},
    {"ScaleRows", [](auto&, auto& r) { r.q_scale_rows = -3; }, "q_scale_rows", "-3"},
    {"Iterations", [](auto&, auto& r) { r.kmeans_iterations = 0; }, "kmeans_iterations", "0"},
    {"TopCode", [](auto&, auto& r) { r.p_top = 127.0F; }, "p_top", "127"},
    {"MixedProduct", [](auto&, auto& r) { r.v = VFormat::kNvfp4; }, "recipe.v", "nvfp4"},
    {"ShapedNvfp4",
     [](auto&, auto& r) {
       r = recipe("vc4");
       r.qk_shaping = true;
     },
     "recipe.qk_shaping", "int8, e4m3"},
    {"WindowPerToken", [](auto&, auto& r) { r.k_scale_rows = 1; }, "recipe.scores", "1 and 0"},
    {"HalfPerBlock",
     [](auto&, auto& r) {
       r.qk = QkFormat::kE4M3;
       r.scores = ScoreFormat::kHalf;
       r.q_scale_rows = 128;
     },
     "recipe.scores", "half with q_scale_rows 128"},
};

class Refuses : public testing::TestWithParam<BadCall> {};

TEST_P(Refuses, NamesTheArgumentAndWhatWasGiven) {
  const Inputs inputs({.batch = 2, .q_heads = 2, .queries = 10, .keys = 30});
  Arguments a = inputs.arguments();
  HostTensor out(DType::kF32, a.q.shape), lse(DType::kF32, {2, 2, 10, 1});
  a.out = out.mutable_view();
  a.lse = LseView{static_cast<float*>(lse.mutable_view().data), {20, 10, 1}};
  Options options;
  GetParam().spoil(a, options.recipe);
  try {
    make_plan(a, options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.where().find(GetParam().where), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(GetParam().given), std::string::npos) << error.what();
  }
  EXPECT_FALSE(why_not(a, options).empty());
}

INSTANTIATE_TEST_SUITE_P(Validate, Refuses, testing::ValuesIn(kBadCalls),
                         [](const auto& test) { return test.param.name; });

TEST(Validate, SegmentOffsetsMustRise) {
  const Inputs inputs({.queries = 30, .keys = 30});
  Arguments a = inputs.arguments();
  HostTensor out(DType::kF32, a.q.shape);
  a.out = out.mutable_view();
  a.q_segments = Segments{kGood, 3};
  a.k_segments = Segments{kOffsets, 3};
  EXPECT_NE(why_not(a).find("below the 20 before it"), std::string::npos) << why_not(a);
  a.k_segments = Segments{kGood, 2};
  EXPECT_NE(why_not(a).find("2 segments differ from the 3"), std::string::npos) << why_not(a);
  a.q_segments = a.k_segments = Segments{kGood, 2};
  EXPECT_NE(why_not(a).find("last offset is 20, not the token count 30"), std::string::npos)
      << why_not(a);
}

TEST(Validate, GoodCallsHaveNoReasonAgainstThem) {
  const Inputs inputs({.queries = 10, .keys = 30});
  Arguments a = inputs.arguments();
  HostTensor out(DType::kF32, a.q.shape);
  a.out = out.mutable_view();
  EXPECT_EQ(why_not(a), "");
}

}  // namespace
}  // namespace vcattn::test
