// Everything one attention call reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "vcattn/tensor.h"

namespace vcattn {

/// How rotary pairs lie in a row: (x0, x1), (x2, x3), ... or (x0, x_half), (x1, x_half+1), ...
enum class RopeLayout : std::uint8_t { kInterleaved, kHalf };

/// Rotary tables applied to a tensor inside the call, before anything else:
/// (a, b) -> (a cos - b sin, a sin + b cos). Dense float32, (tokens, pairs); 2 * pairs <= d, and
/// the channels beyond 2 * pairs pass through.
struct Rope {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t tokens = 0;
  std::int64_t pairs = 0;
  RopeLayout layout = RopeLayout::kInterleaved;
};

/// Packed variable-length sequences: batch is 1 and segment i holds tokens
/// [offsets[i], offsets[i + 1]). `count` segments, `count + 1` offsets, non-decreasing, starting at
/// 0 and ending at the tensor's token count. In host memory whatever `Arguments::device` is: they
/// are read when a call is planned and when it runs. Rotary tables go by the packed token.
struct Segments {
  const std::int32_t* offsets = nullptr;
  std::int64_t count = 0;
};

/// Memory for a call's workspace on CUDA; the default uses cudaMallocAsync on `stream`.
struct Allocator {
  void* (*allocate)(void* context, std::size_t bytes, void* stream) = nullptr;
  void (*deallocate)(void* context, void* pointer, void* stream) = nullptr;
  void* context = nullptr;
};

/// q is (B, Hq, Sq, d); k and v are (B, Hkv, Skv, d) with Hkv dividing Hq (query head h reads KV
/// head h * Hkv / Hq); out has q's shape. d is 1 to 256. q, k, v and out are each float32, float16
/// or bfloat16 in any mix; arithmetic never passes through a narrower type than the input's.
///
/// Empty dimensions: no query rows -> nothing is written; no (visible) keys -> out is 0 and the LSE
/// -infinity. Non-finite values: a NaN or infinity in a visible query row, key or value makes the
/// results that depend on it non-finite, never plausible numbers; hidden keys are never read.
struct Arguments {
  TensorView q, k, v;
  MutableTensorView out;
  /// Natural-log log-sum-exp of the scaled scores per (b, h, query), float32; optional.
  std::optional<LseView> lse;
  /// Multiplies the scores. Default: d^-0.5 of the unpadded head dimension.
  std::optional<float> scale;
  /// Query i sees keys j <= i + Skv - Sq (bottom-right aligned), Skv being the batch entry's
  /// visible length or the segment's.
  bool causal = false;
  /// (B or 1, Hq or 1, Sq or 1, Skv or 1); kBool: true = visible; otherwise added to the scaled
  /// scores (-infinity, or anything at or below -1e30, or float16's -65504, hides).
  std::optional<TensorView> mask;
  /// Visible keys per batch entry (the rest is padding): int32[B], each in [0, Skv]; nullptr: all.
  const std::int32_t* key_lengths = nullptr;
  std::optional<Segments> q_segments, k_segments;
  std::optional<Rope> q_rope, k_rope;

  Device device;
  void* stream = nullptr;  ///< cudaStream_t on CUDA; ignored on the CPU
  Allocator allocator;
};

}  // namespace vcattn
