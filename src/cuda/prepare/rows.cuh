// Rows of Q, K and V as the preparation kernels read them: eight channels to a thread, kDim / 8
// neighbouring lanes to a row.
#pragma once

#include "cuda/device_view.h"
#include "cuda/ptx/ptx.cuh"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/hadamard.h"

namespace vcattn::cuda::prepare {

inline constexpr int kThreads = 256;
inline constexpr int kTileRows = 128;
inline constexpr int kLaneChannels = 8;

template <int kDim>
inline constexpr int kRowLanes = kDim / kLaneChannels;
/// Rows that a block reads at once.
template <int kDim>
inline constexpr int kBlockRows = kThreads / kRowLanes<kDim>;

struct Channels {
  float v[kLaneChannels];
  VC_DEVICE float& operator[](int i) { return v[i]; }
  VC_DEVICE float operator[](int i) const { return v[i]; }
};

VC_DEVICE Channels zero_channels() { return {}; }

VC_DEVICE float load_element(const InputView& view, std::int64_t at) {
  if (view.dtype == DType::kF32) {
    return ptx::load_global_constant<float>(static_cast<const float*>(view.data) + at);
  }
  const auto bits =
      ptx::load_global_constant<std::uint16_t>(static_cast<const std::uint16_t*>(view.data) + at);
  return view.dtype == DType::kBF16 ? ptx::float_from_bf16(bits) : ptx::float_from_f16(bits);
}

/// Channels first .. first + 7 of a row; those beyond the tensor's own are zero.
VC_DEVICE Channels load_channels(const InputView& view, std::int64_t row, int first) {
  Channels x = zero_channels();
  const std::int64_t at = row + first * view.stride[3];
  const int bytes = view.dtype == DType::kF32 ? 4 : 2;
  const auto address = reinterpret_cast<std::uintptr_t>(view.data) + at * bytes;
  if (view.stride[3] == 1 && first + kLaneChannels <= view.dim && address % 16 == 0) {
    if (view.dtype == DType::kF32) {
      VC_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto four = ptx::load_global_constant<ptx::Vec<float, 4>>(
            static_cast<const float*>(view.data) + at + 4 * half);
        VC_UNROLL
        for (int i = 0; i < 4; ++i) x[4 * half + i] = four[i];
      }
      return x;
    }
    const auto eight = ptx::load_global_constant<ptx::Vec<std::uint16_t, 8>>(
        static_cast<const std::uint16_t*>(view.data) + at);
    VC_UNROLL
    for (int i = 0; i < kLaneChannels; ++i) {
      x[i] = view.dtype == DType::kBF16 ? ptx::float_from_bf16(eight[i])
                                        : ptx::float_from_f16(eight[i]);
    }
    return x;
  }
  VC_UNROLL
  for (int i = 0; i < kLaneChannels; ++i) {
    if (first + i < view.dim) x[i] = load_element(view, at + i * view.stride[3]);
  }
  return x;
}

/// Whether rows of this view can be read eight 16-bit channels at a time, all of them.
template <int kDim>
VC_DEVICE bool is_packed(const InputView& view) {
  const std::int64_t strides = view.stride[0] | view.stride[1] | view.stride[2];
  return view.dtype != DType::kF32 && view.dim == kDim && view.stride[3] == 1 &&
         strides % kLaneChannels == 0 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
}

/// Reads the rows of a tile that belong to this thread and calls use(row, channels) for each.
/// row_at(row) is the offset of a row of the tile, or -1 for one that is all zeros. All rows of a
/// packed view are in flight before the first is used.
template <int kDim, class RowAt, class Use>
VC_DEVICE void for_each_row(const InputView& view, const RowAt& row_at, const Use& use) {
  constexpr int kRows = kTileRows / kBlockRows<kDim>;
  const int channel = ptx::thread_index() % kRowLanes<kDim> * kLaneChannels;
  const int first = ptx::thread_index() / kRowLanes<kDim>;
  if (!is_packed<kDim>(view)) {
    for (int i = 0; i < kRows; ++i) {
      const int row = i * kBlockRows<kDim> + first;
      const std::int64_t at = row_at(row);
      use(row, at < 0 ? zero_channels() : load_channels(view, at, channel));
    }
    return;
  }
  ptx::Vec<std::uint32_t, 4> raw[kRows];
  VC_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t at = row_at(i * kBlockRows<kDim> + first);
    raw[i] = {};
    if (at >= 0) {
      raw[i] = ptx::load_global_constant<ptx::Vec<std::uint32_t, 4>>(
          static_cast<const std::uint16_t*>(view.data) + at + channel);
    }
  }
  const bool bf16 = view.dtype == DType::kBF16;
  VC_UNROLL
  for (int i = 0; i < kRows; ++i) {
    Channels x;
    VC_UNROLL
    for (int c = 0; c < kLaneChannels; ++c) {
      const auto bits = static_cast<std::uint16_t>(raw[i][c / 2] >> (16 * (c % 2)));
      x[c] = bf16 ? ptx::float_from_bf16(bits) : ptx::float_from_f16(bits);
    }
    use(i * kBlockRows<kDim> + first, x);
  }
}

VC_DEVICE Channels load_floats(const float* row, int first) {
  Channels x;
  VC_UNROLL
  for (int half = 0; half < 2; ++half) {
    const auto four = ptx::load_global_constant<ptx::Vec<float, 4>>(row + first + 4 * half);
    VC_UNROLL
    for (int i = 0; i < 4; ++i) x[4 * half + i] = four[i];
  }
  return x;
}

/// numerics::hadamard_in_place, spread over the lanes of a row: the same operations in the same
/// order.
template <int kDim>
VC_DEVICE void hadamard(Channels& x) {
  VC_UNROLL
  for (int h = 1; h < kLaneChannels; h *= 2) {
    VC_UNROLL
    for (int i = 0; i < kLaneChannels; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i], b = x[i + h];
      x[i] = numerics::add_rn(a, b);
      x[i + h] = numerics::sub_rn(a, b);
    }
  }
  VC_UNROLL
  for (int lane_bit = 1; lane_bit < kRowLanes<kDim>; lane_bit *= 2) {
    const bool upper = (ptx::lane_index() & lane_bit) != 0;
    VC_UNROLL
    for (int i = 0; i < kLaneChannels; ++i) {
      const float other = ptx::shuffle_xor(x[i], lane_bit);
      x[i] = upper ? numerics::sub_rn(other, x[i]) : numerics::add_rn(x[i], other);
    }
  }
  VC_UNROLL
  for (int i = 0; i < kLaneChannels; ++i) {
    x[i] = numerics::mul_rn(x[i], numerics::hadamard_scale(kDim));
  }
}

/// Largest magnitude of a row, in all its lanes; NaN wins.
template <int kDim>
VC_DEVICE float row_abs_max(const Channels& x) {
  float most = 0.0f;
  VC_UNROLL
  for (int i = 0; i < kLaneChannels; ++i) most = numerics::abs_max(most, x[i]);
  VC_UNROLL
  for (int bit = 1; bit < kRowLanes<kDim>; bit *= 2) {
    most = numerics::abs_max(most, ptx::shuffle_xor(most, bit));
  }
  return most;
}

/// Sum over the lanes of a row.
template <int kDim>
VC_DEVICE float row_sum(float x) {
  VC_UNROLL
  for (int bit = 1; bit < kRowLanes<kDim>; bit *= 2) x += ptx::shuffle_xor(x, bit);
  return x;
}

/// Visible keys of a batch entry.
VC_DEVICE int key_count(const std::int32_t* lengths, int batch, int all) {
  return lengths == nullptr ? all : ptx::load_global_constant<std::int32_t>(lengths + batch);
}

}  // namespace vcattn::cuda::prepare
