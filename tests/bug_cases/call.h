// One attention call of a test: inputs from a short description, guarded outputs, the referee.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bug_cases/host_tensor.h"
#include "core/metrics.h"
#include "vcattn/attention.h"
#include "vcattn/error.h"
#include "vcattn/reference.h"

namespace vcattn::test {

/// What the inputs of a call look like. The defaults are those of the public bug table: bfloat16,
/// dense, not causal, scale d^-0.5, as many KV heads as query heads, N(0, 1) values.
struct Setup {
  std::int64_t batch = 1;
  std::int64_t q_heads = 1;
  std::int64_t kv_heads = 0;  ///< 0: as many as query heads
  std::int64_t queries = 1;
  std::int64_t keys = 1;
  std::int64_t dim = 128;
  DType dtype = DType::kBF16;
  Layout layout = Layout::kBHSD;
  Values q = normal(1), k = normal(2), v = normal(3);
  bool causal = false;
  std::optional<float> scale = std::nullopt;
};

/// Tensors in memory of their own and the arguments that name them. Outputs are up to `run`.
struct Inputs {
  explicit Inputs(const Setup& setup);

  /// Views of the tensors below; valid while they live.
  Arguments arguments() const;

  HostTensor q, k, v;
  bool causal;
  std::optional<float> scale;
};

/// Outputs with guard bands, in a layout of their own.
struct Outcome {
  GuardedTensor out;
  GuardedTensor lse;  ///< (B, Hq, Sq, 1)

  TensorView out_view() const { return out.view(); }
  TensorView lse_view() const { return lse.view(); }
  float lse_at(std::int64_t b, std::int64_t h, std::int64_t s) const { return lse.get(b, h, s, 0); }
};

/// How the outputs lie in memory; empty: dense, and out has the dtype of q.
struct OutputLayout {
  std::optional<DType> dtype = std::nullopt;
  std::optional<Shape> out_stride = std::nullopt;
  std::optional<Shape> lse_stride = std::nullopt;
};

/// Runs the call on poisoned outputs and fails the test unless exactly they were written.
Outcome run(const Arguments& arguments, const Recipe& recipe, VSmoothState* state = nullptr,
            const OutputLayout& layout = {});

/// Where the calls of a test program go: to the host's backend, unless the program replaces it.
struct Target {
  Device device;
  std::function<Outcome(const Arguments&, const Recipe&, VSmoothState*, const OutputLayout&)> run;
  /// Why no call of a recipe can go there; empty: they can.
  std::function<std::string(const Recipe&)> refuses;
};
Target& target();

/// The float64 answer for some query rows (ascending; empty: all).
Reference referee(const Arguments& arguments, const std::vector<std::int64_t>& rows = {});

/// The library's message for a call it must refuse before it touches anything; fails the test and
/// returns "" if it does not throw Error of this code. What no device could accept is tried on the
/// target's (key lengths there are the kernels' to check).
std::string refusal(const Arguments& arguments, const Options& options = {},
                    ErrorCode code = ErrorCode::kInvalidArgument);

/// `count` rows spread over [0, total), the first and the last among them.
std::vector<std::int64_t> sample_rows(std::int64_t total, std::int64_t count);

Metrics compare(const Outcome& outcome, const Reference& reference,
                const std::vector<std::int64_t>& rows = {});

}  // namespace vcattn::test
