#include "bug_cases/call.h"

#include <algorithm>

namespace vcattn::test {
namespace {

HostTensor filled(const Setup& s, std::int64_t heads, std::int64_t tokens, const Values& values) {
  HostTensor tensor(s.dtype, {s.batch, heads, tokens, s.dim}, s.layout);
  tensor.fill(values);
  return tensor;
}

}  // namespace

Inputs::Inputs(const Setup& s)
    : q(filled(s, s.q_heads, s.queries, s.q)),
      k(filled(s, s.kv_heads == 0 ? s.q_heads : s.kv_heads, s.keys, s.k)),
      v(filled(s, s.kv_heads == 0 ? s.q_heads : s.kv_heads, s.keys, s.v)),
      causal(s.causal),
      scale(s.scale) {}

Arguments Inputs::arguments() const {
  Arguments a;
  a.q = q.view();
  a.k = k.view();
  a.v = v.view();
  a.causal = causal;
  a.scale = scale;
  return a;
}

namespace {

Outcome run_on_host_backend(const Arguments& arguments, const Recipe& recipe, VSmoothState* state,
                            const OutputLayout& layout) {
  const Shape shape = arguments.q.shape;
  const Shape lse_shape{shape[0], shape[1], shape[2], 1};
  Outcome outcome{{layout.dtype.value_or(arguments.q.dtype), shape,
                   layout.out_stride.value_or(dense_strides(shape))},
                  {DType::kF32, lse_shape, layout.lse_stride.value_or(dense_strides(lse_shape))}};
  Arguments a = arguments;
  a.out = outcome.out.mutable_view();
  const MutableTensorView lse = outcome.lse.mutable_view();
  a.lse = LseView{static_cast<float*>(lse.data), {lse.stride[0], lse.stride[1], lse.stride[2]}};
  attention(a, {.recipe = recipe}, state);
  EXPECT_TRUE(outcome.out.written()) << "out";
  EXPECT_TRUE(outcome.lse.written()) << "lse";
  return outcome;
}

}  // namespace

Outcome run(const Arguments& arguments, const Recipe& recipe, VSmoothState* state,
            const OutputLayout& layout) {
  return target().run(arguments, recipe, state, layout);
}

Target& target() {
  static Target current{{}, run_on_host_backend, [](const Recipe&) { return std::string(); }};
  return current;
}

Reference referee(const Arguments& arguments, const std::vector<std::int64_t>& rows) {
  // The referee writes no output but wants one of the right shape.
  const GuardedTensor unused(DType::kBF16, arguments.q.shape, dense_strides(arguments.q.shape));
  Arguments a = arguments;
  a.out = unused.mutable_view();
  return reference_attention(a, rows);
}

std::string refusal(const Arguments& arguments, const Options& options, ErrorCode code) {
  Arguments a = arguments;
  const Shape shape = a.q.shape;
  const GuardedTensor out(DType::kBF16, shape, dense_strides(shape));
  if (a.out.data == nullptr) a.out = out.mutable_view();
  if (code == ErrorCode::kInvalidArgument && a.key_lengths == nullptr) a.device = target().device;
  const std::string reason = why_not(a, options);
  try {
    attention(a, options);
    ADD_FAILURE() << "the call was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(reason, error.what()) << "why_not and attention disagree";
    EXPECT_TRUE(out.untouched());
    return error.what();
  }
  return {};
}

std::vector<std::int64_t> sample_rows(std::int64_t total, std::int64_t count) {
  std::vector<std::int64_t> rows;
  const std::int64_t chosen = std::min(total, count);
  for (std::int64_t i = 0; i < chosen; ++i) {
    rows.push_back(chosen == 1 ? 0 : i * (total - 1) / (chosen - 1));
  }
  return rows;
}

Metrics compare(const Outcome& outcome, const Reference& reference,
                const std::vector<std::int64_t>& rows) {
  const TensorView lse = outcome.lse_view();
  const LseView view{static_cast<float*>(outcome.lse.mutable_view().data),
                     {lse.stride[0], lse.stride[1], lse.stride[2]}};
  return measure(outcome.out_view(), &view, reference, rows);
}

}  // namespace vcattn::test
