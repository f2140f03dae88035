// Division by the row sums, the channel scales of V, the log-sum-exp, and the stores.
#pragma once

#include "cuda/sm90/consumer.cuh"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/f16.h"

namespace vcattn::cuda::sm90 {

/// One output row: where it starts, and its neighbours along d.
struct OutputRow {
  const OutputView& out;
  std::int64_t offset;

  /// As store_element on the host: what is finite stays finite in 16 bits.
  VC_DEVICE float kept(float value) const {
    const float largest = out.dtype == DType::kBF16 ? numerics::kBf16Max : numerics::kF16Max;
    return numerics::is_finite(value) ? numerics::clip(value, -largest, largest) : value;
  }

  VC_DEVICE void store(int channel, float value) const {
    const std::int64_t at = offset + channel * out.stride[3];
    if (out.dtype == DType::kF32) {
      ptx::store_global(static_cast<float*>(out.data) + at, value);
    } else {
      ptx::store_global(static_cast<std::uint16_t*>(out.data) + at,
                        out.dtype == DType::kBF16 ? ptx::bf16_from_float(kept(value))
                                                  : ptx::f16_from_float(kept(value)));
    }
  }

  /// Channels `channel` (even) and the next; as one access where they are neighbours.
  VC_DEVICE void store_pair(int channel, float lo, float hi, bool packed) const {
    if (packed && out.dtype != DType::kF32) {
      ptx::store_global(static_cast<std::uint16_t*>(out.data) + offset + channel,
                        out.dtype == DType::kBF16 ? ptx::bf16x2_from_floats(kept(lo), kept(hi))
                                                  : ptx::f16x2_from_floats(kept(lo), kept(hi)));
      return;
    }
    if (channel < out.dim) store(channel, lo);
    if (channel + 1 < out.dim) store(channel + 1, hi);
  }
};

template <class C>
struct Epilogue {
  const AttentionParams& p;
  const Work& work;

  /// `row` of this block; `first` = 0 for a thread's row g, 2 for row g + 8.
  template <class Output>
  VC_DEVICE void store_row(int row, int first, const Output& output, float sum, float reference) {
    const int token = work.query_tile * kTileQueries + row;
    if (token >= p.sq) return;
    const int quad_lane = ptx::lane_index() & 3;
    const OutputRow out{p.out, p.out.row_offset(work.batch, work.head, token)};
    const bool packed = p.out.stride[3] == 1 && p.out.dim == C::kDim &&
                        (reinterpret_cast<std::uintptr_t>(p.out.data) / 2 +
                         static_cast<std::uint64_t>(out.offset)) %
                                2 ==
                            0;
    const float inverse = numerics::softmax_inverse_sum(sum);
    const float* scale = p.value_scale + work.kv_head_index * C::kDim;
    VC_UNROLL
    for (int i = 0; i < C::kOutputRegisters / 4; ++i) {
      const int channel = 8 * i + 2 * quad_lane;
      const auto s = ptx::load_global_constant<ptx::Vec<float, 2>>(scale + channel);
      out.store_pair(channel, output[4 * i + first] * inverse * s[0],
                     output[4 * i + first + 1] * inverse * s[1], packed);
    }
    if (p.lse != nullptr && quad_lane == 0) store_lse(row, token, sum, reference);
  }

  /// A row that sees no key.
  VC_DEVICE void store_empty_row(int row) {
    const int token = work.query_tile * kTileQueries + row;
    if (token >= p.sq) return;
    const OutputRow out{p.out, p.out.row_offset(work.batch, work.head, token)};
    for (int c = ptx::lane_index() & 3; c < p.out.dim; c += 4) out.store(c, 0.0f);
    if (p.lse != nullptr && (ptx::lane_index() & 3) == 0) {
      ptx::store_global(lse_address(token), -numerics::infinity());
    }
  }

 private:
  VC_DEVICE float* lse_address(int token) const {
    return p.lse + work.batch * p.lse_stride[0] + work.head * p.lse_stride[1] +
           token * p.lse_stride[2];
  }

  VC_DEVICE void store_lse(int row, int token, float sum, float reference) {
    // Codes are anchored so that a weight is 2^(score in octaves - 7) times the cast's ratio.
    const float log_scale = numerics::exp_cast_log_scale({0.0f, 0.0f});
    const float lse = numerics::softmax_lse({reference, sum}, log_scale) + window_shift(row);
    const float shift = p.lse_shift == nullptr
                            ? 0.0f
                            : ptx::load_global_constant<float>(
                                  p.lse_shift + work.q_tile_index * kTileQueries + row);
    ptx::store_global(lse_address(token), lse + shift);
  }

  /// What the score window leaves out of every weight of a row, in nats: scores are rounded down,
  /// by half a unit on average; and where the slope is capped, codes are 0 and 64, of which 64
  /// decodes to a power of two.
  VC_DEVICE float window_shift(int row) const {
    if constexpr (!C::kInt8Scores) return 0.0f;
    const float multiplier = ptx::load_global_constant<float>(
        p.row_scale + (work.q_tile_index * kTileQueries + row) * 2);
    const float half_unit = 0.5f * multiplier / numerics::kCodesPerNat;
    if (!(multiplier > 64.0f)) return half_unit;
    const float octaves = multiplier * numerics::kOctavesPerCode - 8.0f;
    return half_unit + octaves * numerics::kLn2 + numerics::kExpCastLogMeanRatio;
  }
};

}  // namespace vcattn::cuda::sm90
