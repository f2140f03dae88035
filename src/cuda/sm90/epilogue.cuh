// Division by the row sums, the channel scales of V, the log-sum-exp, and the stores.
#pragma once

#include "cuda/sm90/consumer.cuh"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/f16.h"
#include "vcattn/numerics/online_softmax.h"

namespace vcattn::cuda::sm90 {

/// Four words of every lane of a quad, transposed: word k of lane t goes to word t of lane k.
VC_DEVICE ptx::Vec<std::uint32_t, 4> transpose_quad(ptx::Vec<std::uint32_t, 4> a) {
  VC_UNROLL
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (ptx::lane_index() & bit) != 0;
    VC_UNROLL
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const std::uint32_t received = ptx::shuffle_xor(upper ? a[i] : a[i | bit], bit);
      a[i] = upper ? received : a[i];
      a[i | bit] = upper ? a[i | bit] : received;
    }
  }
  return a;
}

/// Of one block: what a thread holds of rows `row` (its row g, elements 4i and 4i + 1 of the
/// output) and `row + 8` (elements 4i + 2 and 4i + 3), channels 8i + 2t and the next.
template <class C>
struct Epilogue {
  const AttentionParams& p;
  const Work& work;

  using Output = ptx::Fragment<float, C::kOutputRegisters>;
  static constexpr int kPairs = C::kDim / 8;  ///< of channels, per thread and row

  struct Row {
    float sum, reference;  ///< of weights, relative to 2^reference
  };

  VC_DEVICE void store(int row, Output& output, const Row& first, const Row& second) {
    normalise(output, numerics::softmax_inverse_sum(first.sum),
              numerics::softmax_inverse_sum(second.sum));
    if (is_packed()) {
      store_packed(row, 0, output);
      store_packed(row + 8, 2, output);
    } else {
      store_elements(row, 0, output);
      store_elements(row + 8, 2, output);
    }
    if (p.lse == nullptr || quad_lane() != 0) return;
    store_lse(row, first);
    store_lse(row + 8, second);
  }

  /// A row that sees no key.
  VC_DEVICE void store_empty_row(int row) {
    const int token = first_token() + row;
    if (token >= p.sq) return;
    const std::int64_t offset = p.out.row_offset(work.batch, work.head, token);
    for (int c = quad_lane(); c < p.out.dim; c += 4) store_element(offset, c, 0.0f);
    if (p.lse != nullptr && quad_lane() == 0) {
      ptx::store_global(lse_address(token), -numerics::infinity());
    }
  }

 private:
  VC_DEVICE static int quad_lane() { return ptx::lane_index() & 3; }
  VC_DEVICE int first_token() const { return work.query_tile * kTileQueries; }

  VC_DEVICE void normalise(Output& output, float first, float second) const {
    const float* at = p.value_scale + work.kv_head_index * C::kDim + 2 * quad_lane();
    ptx::Vec<float, 2> scale[kPairs];  // all in flight at once
    VC_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      scale[i] = ptx::load_global_constant<ptx::Vec<float, 2>>(at + 8 * i);
    }
    VC_UNROLL
    for (int i = 0; i < C::kOutputRegisters; ++i) {
      output[i] = output[i] * (i % 4 < 2 ? first : second) * scale[i / 4][i % 2];
    }
  }

  /// Whether rows are dense and every eighth element starts 16 bytes.
  VC_DEVICE bool is_packed() const {
    const OutputView& out = p.out;
    return out.dtype != DType::kF32 && out.stride[3] == 1 && out.dim == C::kDim &&
           ((out.stride[0] | out.stride[1] | out.stride[2]) & 7) == 0 &&
           (reinterpret_cast<std::uintptr_t>(out.data) & 15) == 0;
  }

  /// The whole warp takes part, for the transposition.
  VC_DEVICE void store_packed(int row, int element, const Output& output) const {
    const int token = first_token() + row;
    std::uint16_t* to = static_cast<std::uint16_t*>(p.out.data) +
                        p.out.row_offset(work.batch, work.head, token) + 8 * quad_lane();
    VC_UNROLL
    for (int i = 0; i < kPairs; i += 4) {
      ptx::Vec<std::uint32_t, 4> words;
      VC_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float lo = kept(output[4 * (i + j) + element]);
        const float hi = kept(output[4 * (i + j) + element + 1]);
        words[j] = p.out.dtype == DType::kBF16 ? ptx::bf16x2_from_floats(lo, hi)
                                               : ptx::f16x2_from_floats(lo, hi);
      }
      words = transpose_quad(words);
      if (token < p.sq) ptx::store_global(to + 8 * i, words);
    }
  }

  VC_DEVICE void store_elements(int row, int element, const Output& output) const {
    const int token = first_token() + row;
    if (token >= p.sq) return;
    const std::int64_t offset = p.out.row_offset(work.batch, work.head, token);
    VC_UNROLL
    for (int i = 0; i < 2 * kPairs; ++i) {
      const int channel = i / 2 * 8 + 2 * quad_lane() + i % 2;
      if (channel < p.out.dim) {
        store_element(offset, channel, output[i / 2 * 4 + element + i % 2]);
      }
    }
  }

  VC_DEVICE void store_element(std::int64_t offset, int channel, float value) const {
    const std::int64_t at = offset + channel * p.out.stride[3];
    if (p.out.dtype == DType::kF32) {
      ptx::store_global(static_cast<float*>(p.out.data) + at, value);
    } else {
      ptx::store_global(static_cast<std::uint16_t*>(p.out.data) + at,
                        p.out.dtype == DType::kBF16 ? ptx::bf16_from_float(kept(value))
                                                    : ptx::f16_from_float(kept(value)));
    }
  }

  /// As store_element on the host: what is finite stays finite in 16 bits.
  VC_DEVICE float kept(float value) const {
    const float largest = p.out.dtype == DType::kBF16 ? numerics::kBf16Max : numerics::kF16Max;
    return numerics::is_finite(value) ? numerics::clip(value, -largest, largest) : value;
  }

  VC_DEVICE float* lse_address(int token) const {
    return p.lse + work.batch * p.lse_stride[0] + work.head * p.lse_stride[1] +
           token * p.lse_stride[2];
  }

  VC_DEVICE void store_lse(int row, const Row& sums) {
    const int token = first_token() + row;
    if (token >= p.sq) return;
    // ExpCast's codes are anchored so that a weight is 2^(score in octaves - 7) times its ratio.
    const float log_scale = C::kExpCast ? numerics::exp_cast_log_scale({0.0f, 0.0f}) : 0.0f;
    const float lse =
        numerics::softmax_lse({sums.reference, sums.sum}, log_scale) + window_shift(row);
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
    if (!C::kExpCast || !(multiplier > 64.0f)) return half_unit;
    const float octaves = multiplier * numerics::kOctavesPerCode - 8.0f;
    return half_unit + octaves * numerics::kLn2 + numerics::kExpCastLogMeanRatio;
  }
};

}  // namespace vcattn::cuda::sm90
