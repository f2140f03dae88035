// Preparation of one call: from the caller's tensors to the operands of the attention kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/sm90/params.h"
#include "vcattn/arguments.h"
#include "vcattn/options.h"

namespace vcattn::cuda::prepare {

/// Sizes of a call, in tiles, and the native dimension it runs at.
struct Shape {
  int batch = 0, q_heads = 0, kv_heads = 0, sq = 0, skv = 0, dim = 0;
  int q_tiles = 0, k_tiles = 0, mean_groups = 0;
  int group() const { return q_heads / kv_heads; }
};

Shape shape_of(const Arguments& arguments);

/// Every buffer of a call, as offsets into one allocation.
struct Workspace {
  std::size_t q = 0, k = 0, v = 0, row_scale = 0, lse_shift = 0, means = 0, value_scale = 0,
              ones = 0, block_mean = 0, k_sums = 0, q_sums = 0, mean = 0, balance = 0,
              inverse_balance = 0, shift = 0, grams = 0, feedback = 0, key_maximum = 0,
              value_maximum = 0, bytes = 0;
};

/// For a call with or without an LSE, with or without noise-shaped rounding of Q and K.
Workspace plan_workspace(const Shape& shape, bool lse, bool shaping);

struct Options {
  bool int8_scores = true;
  bool balance = true;
  bool shaping = false;  ///< noise-shaped rounding of Q and K
  bool demean = true, refit = true;
  float score_scale = 1.0f;
  const std::int32_t* order = nullptr;  ///< (batch, kv heads, skv): position -> key, or nullptr
};

/// What a recipe asks of the preparation of a call, its keys in their own order.
Options options_of(const Arguments& arguments, const Recipe& recipe);

/// Enqueues preparation on `stream` and returns what the attention kernel needs, `out` and `lse`
/// included. `base` holds plan_workspace(...).bytes.
sm90::AttentionParams prepare(const Arguments& arguments, const Shape& shape,
                              const Workspace& workspace, const Options& options, std::byte* base,
                              cudaStream_t stream);

}  // namespace vcattn::cuda::prepare
