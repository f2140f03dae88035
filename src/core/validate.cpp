#include "core/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <utility>

#include "vcattn/error.h"

namespace vcattn {
namespace {

template <class... Parts>
[[noreturn]] void fail(std::string where, fmt::format_string<Parts...> text, Parts&&... parts) {
  throw Error(ErrorCode::kInvalidArgument, std::move(where),
              fmt::format(text, std::forward<Parts>(parts)...));
}

std::string text(const std::array<std::int64_t, 4>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

/// Sizes and offsets of a view fit their types, and its memory is there and aligned.
void check_view(const std::string& name, const TensorView& view) {
  constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t size : view.shape) {
    if (size < 0) fail(name, "shape {} has a negative size", text(view.shape));
    if (size > kMaxTokens) {
      fail(name, "shape {} has a size above {}", text(view.shape), kMaxTokens);
    }
  }
  if (view.empty()) return;
  if (view.data == nullptr) fail(name, "no data was given for shape {}", text(view.shape));
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_bytes(view.dtype) != 0) {
    fail(name, "the data pointer is not aligned to its {} elements", to_string(view.dtype));
  }
  const double limit = static_cast<double>(std::numeric_limits<std::int64_t>::max()) / 8.0;
  double reach = 0.0;
  for (int axis = 0; axis < 4; ++axis) {
    reach += std::abs(static_cast<double>(view.stride[axis])) *
             static_cast<double>(view.shape[axis] - 1);
  }
  if (reach >= limit) {
    fail(name, "strides {} reach past 64-bit offsets for shape {}", text(view.stride),
         text(view.shape));
  }
}

void check_float(const std::string& name, const TensorView& view) {
  if (view.dtype == DType::kBool) {
    fail(name, "dtype bool was given (supported: float32, float16, bfloat16)");
  }
}

void check_shapes(const Arguments& a) {
  const auto d = a.q.dim();
  if (d < 1 || d > kMaxDim) fail("q", "head dimension {} (supported: 1 to {})", d, kMaxDim);
  if (a.k.dim() != d) fail("k", "head dimension {} differs from the {} of q", a.k.dim(), d);
  if (a.v.dim() != d) {
    fail("v", "head dimension {} differs from the {} of q and k (supported: equal)", a.v.dim(), d);
  }
  for (const auto& [name, view] : {std::pair{"k", &a.k}, std::pair{"v", &a.v}}) {
    if (view->batch() != a.q.batch()) {
      fail(name, "batch {} differs from the {} of q", view->batch(), a.q.batch());
    }
  }
  if (a.k.heads() != a.v.heads()) {
    fail("v", "{} heads differ from the {} of k", a.v.heads(), a.k.heads());
  }
  if (a.k.tokens() != a.v.tokens()) {
    fail("v", "{} tokens differ from the {} of k", a.v.tokens(), a.k.tokens());
  }
  const bool divides = a.k.heads() > 0 && a.q.heads() % a.k.heads() == 0;
  if (!divides && a.q.heads() > 0) {
    fail("k", "head count {} does not divide the {} query heads (supported: a divisor of {})",
         a.k.heads(), a.q.heads(), a.q.heads());
  }
  if (a.out.shape != a.q.shape) {
    fail("out", "shape {} differs from the {} of q", text(a.out.shape), text(a.q.shape));
  }
}

/// Two elements of an output in one place would lose one of them.
void check_output_strides(const std::string& name, const std::int64_t* shape,
                          const std::int64_t* stride, int rank) {
  for (int axis = 0; axis < rank; ++axis) {
    if (shape[axis] > 1 && stride[axis] == 0) {
      fail(name, "axis {} of size {} has stride 0, so its elements overlap", axis, shape[axis]);
    }
  }
}

void check_mask(const Arguments& a) {
  const TensorView& mask = *a.mask;
  check_view("mask", mask);
  const std::array<std::int64_t, 4> full{a.q.batch(), a.q.heads(), a.q.tokens(), a.k.tokens()};
  for (int axis = 0; axis < 4; ++axis) {
    if (mask.shape[axis] != full[axis] && mask.shape[axis] != 1) {
      fail("mask", "shape {} does not broadcast to (batch, query heads, queries, keys) = {}",
           text(mask.shape), text(full));
    }
  }
}

void check_rope(const std::string& name, const Rope& rope, const TensorView& tensor) {
  if (rope.cos == nullptr || rope.sin == nullptr) fail(name, "a table is missing");
  for (const float* table : {rope.cos, rope.sin}) {
    const auto past = reinterpret_cast<std::uintptr_t>(table) % alignof(float);
    if (past != 0) {
      fail(name, "a table starts {} bytes past a multiple of 4 (supported: aligned float32)", past);
    }
  }
  if (rope.tokens < tensor.tokens()) {
    fail(name, "{} rows for {} tokens", rope.tokens, tensor.tokens());
  }
  if (rope.pairs < 1 || 2 * rope.pairs > tensor.dim()) {
    fail(name, "{} pairs (supported: 1 to {} for head dimension {})", rope.pairs, tensor.dim() / 2,
         tensor.dim());
  }
}

void check_key_lengths(const Arguments& a) {
  if (a.device.kind != Device::Kind::kCpu) return;
  for (std::int64_t b = 0; b < a.q.batch(); ++b) {
    if (a.key_lengths[b] < 0 || a.key_lengths[b] > a.k.tokens()) {
      fail("key_lengths", "entry {} is {} (supported: 0 to {})", b, a.key_lengths[b], a.k.tokens());
    }
  }
}

void check_segment_offsets(const std::string& name, const Segments& segments, std::int64_t tokens) {
  if (segments.offsets[0] != 0) {
    fail(name, "the first offset is {} (supported: 0)", segments.offsets[0]);
  }
  for (std::int64_t i = 0; i < segments.count; ++i) {
    if (segments.offsets[i + 1] < segments.offsets[i]) {
      fail(name, "offset {} is {}, below the {} before it", i + 1, segments.offsets[i + 1],
           segments.offsets[i]);
    }
  }
  if (segments.offsets[segments.count] != tokens) {
    fail(name, "the last offset is {}, not the token count {}", segments.offsets[segments.count],
         tokens);
  }
}

void check_segments(const Arguments& a) {
  if (!a.q_segments || !a.k_segments) {
    fail(a.q_segments ? "k_segments" : "q_segments", "both or neither must be given");
  }
  if (a.q_segments->count != a.k_segments->count) {
    fail("k_segments", "{} segments differ from the {} of q_segments", a.k_segments->count,
         a.q_segments->count);
  }
  if (a.q.batch() != 1) fail("q_segments", "batch {} (supported: 1, packed)", a.q.batch());
  if (a.key_lengths != nullptr) fail("key_lengths", "cannot be combined with segments");
  if (a.mask) fail("mask", "cannot be combined with segments");
  for (const auto& [name, segments, tokens] :
       {std::tuple{"q_segments", *a.q_segments, a.q.tokens()},
        std::tuple{"k_segments", *a.k_segments, a.k.tokens()}}) {
    if (segments.count < 0) fail(name, "{} segments", segments.count);
    if (segments.offsets == nullptr) fail(name, "no offsets were given");
    check_segment_offsets(name, segments, tokens);
  }
}

void check_recipe(const Recipe& r) {
  const bool fp8_p = r.p == PFormat::kE4M3Exp || r.p == PFormat::kExpCast;
  if (r.q_scale_rows < 0) fail("recipe.q_scale_rows", "{} (supported: 0 or more)", r.q_scale_rows);
  if (r.k_scale_rows < 0) fail("recipe.k_scale_rows", "{} (supported: 0 or more)", r.k_scale_rows);
  if (r.keys_per_cluster < 1)
    fail("recipe.keys_per_cluster", "{} (supported: 1 or more)", r.keys_per_cluster);
  if (r.kmeans_iterations < 1)
    fail("recipe.kmeans_iterations", "{} (supported: 1 or more)", r.kmeans_iterations);
  if (!(r.p_top >= 1.0F && r.p_top <= 126.0F))
    fail("recipe.p_top", "{} (supported: 1 to 126)", r.p_top);
  if (!(std::abs(r.p_beta) <= 4.0F)) fail("recipe.p_beta", "{} (supported: -4 to 4)", r.p_beta);
  const ScoreFormat scores = effective_scores(r);
  if (scores != ScoreFormat::kFloat && (r.q_scale_rows != 1 || r.k_scale_rows != 0)) {
    fail("recipe.scores",
         "{} with q_scale_rows {} and k_scale_rows {} (supported: 1 and 0, one scale per query and "
         "one per head of keys; or scores float with any)",
         scores == ScoreFormat::kWindow ? "window" : "half", r.q_scale_rows, r.k_scale_rows);
  }
  if (r.qk_shaping && r.qk != QkFormat::kInt8 && r.qk != QkFormat::kE4M3) {
    fail("recipe.qk_shaping", "on with qk {} (supported: int8, e4m3)",
         r.qk == QkFormat::kFloat ? "float" : "nvfp4");
  }
  if (fp8_p && r.v == VFormat::kNvfp4) {
    fail("recipe.v", "nvfp4 values need nvfp4 or float probabilities, one MMA takes one format");
  }
  if (r.p == PFormat::kNvfp4 && (r.v == VFormat::kE4M3Channel || r.v == VFormat::kE4M3Head)) {
    fail("recipe.p", "nvfp4 probabilities need nvfp4 or float values, one MMA takes one format");
  }
}

}  // namespace

float effective_scale(const Arguments& arguments) {
  if (arguments.scale) return *arguments.scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(arguments.q.dim())));
}

ScoreFormat effective_scores(const Recipe& recipe) {
  const bool fits = (recipe.scores == ScoreFormat::kWindow && recipe.qk == QkFormat::kInt8) ||
                    (recipe.scores == ScoreFormat::kHalf && recipe.qk == QkFormat::kE4M3);
  return fits ? recipe.scores : ScoreFormat::kFloat;
}

void validate(const Arguments& a, const Recipe& recipe) {
  const std::pair<std::string, TensorView> tensors[] = {
      {"q", a.q}, {"k", a.k}, {"v", a.v}, {"out", as_const(a.out)}};
  for (const auto& [name, view] : tensors) {
    check_float(name, view);
    check_view(name, view);
  }
  check_shapes(a);
  if (!a.out.empty()) check_output_strides("out", a.out.shape.data(), a.out.stride.data(), 4);
  if (a.lse && !a.q.empty()) {
    if (a.lse->data == nullptr) fail("lse", "no data was given");
    check_output_strides("lse", a.q.shape.data(), a.lse->stride.data(), 3);
  }
  if (!std::isfinite(effective_scale(a))) fail("scale", "{} is not finite", effective_scale(a));
  if (a.mask) check_mask(a);
  if (a.q_rope) check_rope("q_rope", *a.q_rope, a.q);
  if (a.k_rope) check_rope("k_rope", *a.k_rope, a.k);
  if (a.key_lengths != nullptr) check_key_lengths(a);
  if (a.q_segments || a.k_segments) check_segments(a);
  check_recipe(recipe);
}

}  // namespace vcattn
