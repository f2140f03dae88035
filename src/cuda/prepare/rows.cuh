// Rows of Q, K and V as the preparation kernels read them.
#pragma once

#include "cuda/device_view.h"
#include "cuda/ptx/ptx.cuh"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/hadamard.h"

namespace vcattn::cuda::prepare {

inline constexpr int kThreads = 256;
inline constexpr int kTileRows = 128;
inline constexpr int kPacket = 8;  ///< 16-bit channels in one access

/// kCount neighbouring channels of a row, one thread's share.
template <int kCount>
struct Channels {
  float v[kCount];
  VC_DEVICE float& operator[](int i) { return v[i]; }
  VC_DEVICE float operator[](int i) const { return v[i]; }
};

/// How a block's threads share the rows of a tile: kCount channels to a thread, kDim / kCount
/// neighbouring lanes to a row; kBatch rows of a thread are in flight at once.
template <int kDim_, int kCount_, int kBatch_>
struct RowSplit {
  static constexpr int kDim = kDim_, kCount = kCount_, kBatch = kBatch_;
  static constexpr int kLanes = kDim / kCount;
  static constexpr int kBlockRows = kThreads / kLanes;
  static constexpr int kRows = kTileRows / kBlockRows;  ///< of a tile, per thread
  using Share = Channels<kCount>;

  VC_DEVICE static int lane() { return ptx::thread_index() % kLanes; }
  VC_DEVICE static int first_channel() { return lane() * kCount; }
  VC_DEVICE static int first_row() { return ptx::thread_index() / kLanes; }
};

/// For sums and copies: whole warps read whole rows. Few blocks fit on an SM, so each reads much.
template <int kDim>
using WideSplit = RowSplit<kDim, kPacket, kDim == 128 ? 8 : 4>;
/// For the Hadamard transform: most of its stages stay inside a thread.
template <int kDim>
using DeepSplit = RowSplit<kDim, 16, 2>;

VC_DEVICE float load_element(const InputView& view, std::int64_t at) {
  if (view.dtype == DType::kF32) {
    return ptx::load_global_constant<float>(static_cast<const float*>(view.data) + at);
  }
  const auto bits =
      ptx::load_global_constant<std::uint16_t>(static_cast<const std::uint16_t*>(view.data) + at);
  return view.dtype == DType::kBF16 ? ptx::float_from_bf16(bits) : ptx::float_from_f16(bits);
}

/// Channels first .. first + kCount - 1 of a row; those beyond the tensor's own are zero.
template <int kCount>
VC_DEVICE Channels<kCount> load_channels(const InputView& view, std::int64_t row, int first) {
  Channels<kCount> x = {};
  VC_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (first + i < view.dim) x[i] = load_element(view, row + (first + i) * view.stride[3]);
  }
  return x;
}

/// Whether rows of this view can be read eight 16-bit channels at a time, all of them.
template <int kDim>
VC_DEVICE bool is_packed(const InputView& view) {
  const std::int64_t strides = view.stride[0] | view.stride[1] | view.stride[2];
  return view.dtype != DType::kF32 && view.dim == kDim && view.stride[3] == 1 &&
         strides % kPacket == 0 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
}

/// The rows a thread has in flight, as they come from memory.
template <class Split>
struct RowBatch {
  static constexpr int kPackets = Split::kCount / kPacket;
  ptx::Vec<std::uint32_t, 4> raw[Split::kBatch][kPackets];

  /// Reads row `i` of the batch at offset `at`; -1: zeros.
  VC_DEVICE void load(int i, const InputView& view, std::int64_t at) {
    const auto* row = static_cast<const std::uint16_t*>(view.data) + at + Split::first_channel();
    VC_UNROLL
    for (int j = 0; j < kPackets; ++j) {
      raw[i][j] = {};
      if (at >= 0) {
        raw[i][j] = ptx::load_global_constant<ptx::Vec<std::uint32_t, 4>>(row + j * kPacket);
      }
    }
  }

  /// Converts a row. The format is a template argument, so that an element costs one instruction.
  template <bool kBf16>
  VC_DEVICE typename Split::Share row(int i) const {
    typename Split::Share x;
    VC_UNROLL
    for (int c = 0; c < Split::kCount; ++c) {
      const std::uint32_t word = raw[i][c / kPacket][c % kPacket / 2];
      if constexpr (kBf16) {
        x[c] = numerics::bits_float(c % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
      } else {
        x[c] = ptx::float_from_f16(static_cast<std::uint16_t>(word >> (16 * (c % 2))));
      }
    }
    return x;
  }
};

template <class Split, bool kBf16, class RowAt, class Use>
VC_DEVICE void for_each_packed_row(const InputView& view, const RowAt& row_at, const Use& use) {
  VC_NO_UNROLL
  for (int first = 0; first < Split::kRows; first += Split::kBatch) {
    const int row = first * Split::kBlockRows + Split::first_row();
    // All offsets before all rows: a permutation's indices come from memory themselves.
    std::int64_t at[Split::kBatch];
    VC_UNROLL
    for (int i = 0; i < Split::kBatch; ++i) at[i] = row_at(row + i * Split::kBlockRows);
    RowBatch<Split> batch;
    VC_UNROLL
    for (int i = 0; i < Split::kBatch; ++i) batch.load(i, view, at[i]);
    VC_UNROLL
    for (int i = 0; i < Split::kBatch; ++i) {
      use(row + i * Split::kBlockRows, batch.template row<kBf16>(i));
    }
  }
}

/// Reads the rows of a tile that belong to this thread and calls use(row, channels) for each.
/// row_at(row) is the offset of a row of the tile, or -1 for one that is all zeros.
template <class Split, class RowAt, class Use>
VC_DEVICE void for_each_row(const InputView& view, const RowAt& row_at, const Use& use) {
  if (!is_packed<Split::kDim>(view)) {
    VC_NO_UNROLL
    for (int i = 0; i < Split::kRows; ++i) {
      const int row = i * Split::kBlockRows + Split::first_row();
      const std::int64_t at = row_at(row);
      use(row, at < 0 ? typename Split::Share{}
                      : load_channels<Split::kCount>(view, at, Split::first_channel()));
    }
  } else if (view.dtype == DType::kBF16) {
    for_each_packed_row<Split, true>(view, row_at, use);
  } else {
    for_each_packed_row<Split, false>(view, row_at, use);
  }
}

/// numerics::hadamard_in_place, spread over the lanes of a row: the same operations in the same
/// order. (-x + y is y - x, rounded once as well.)
template <class Split>
VC_DEVICE void hadamard(typename Split::Share& x) {
  VC_UNROLL
  for (int h = 1; h < Split::kCount; h *= 2) {
    VC_UNROLL
    for (int i = 0; i < Split::kCount; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i], b = x[i + h];
      x[i] = numerics::add_rn(a, b);
      x[i + h] = numerics::sub_rn(a, b);
    }
  }
  VC_UNROLL
  for (int lane_bit = 1; lane_bit < Split::kLanes; lane_bit *= 2) {
    const float sign = (ptx::lane_index() & lane_bit) != 0 ? -1.0f : 1.0f;
    VC_UNROLL
    for (int i = 0; i < Split::kCount; ++i) {
      x[i] = numerics::fma_rn(sign, x[i], ptx::shuffle_xor(x[i], lane_bit));
    }
  }
  VC_UNROLL
  for (int i = 0; i < Split::kCount; ++i) {
    x[i] = numerics::mul_rn(x[i], numerics::hadamard_scale(Split::kDim));
  }
}

/// Largest magnitude of a row, in all its lanes; NaN wins.
template <class Split>
VC_DEVICE float row_abs_max(const typename Split::Share& x) {
  float most = 0.0f;
  VC_UNROLL
  for (int i = 0; i < Split::kCount; ++i) most = numerics::abs_max(most, x[i]);
  VC_UNROLL
  for (int bit = 1; bit < Split::kLanes; bit *= 2) {
    most = numerics::abs_max(most, ptx::shuffle_xor(most, bit));
  }
  return most;
}

/// Sum over the lanes of a row.
template <class Split>
VC_DEVICE float row_sum(float x) {
  VC_UNROLL
  for (int bit = 1; bit < Split::kLanes; bit *= 2) x += ptx::shuffle_xor(x, bit);
  return x;
}

/// One float per channel, read by every thread for its own channels.
template <int kDim>
struct ChannelVector {
  alignas(16) float v[kDim];

  /// By the whole block; a block_sync must follow.
  VC_DEVICE void load(const float* from) {
    if (ptx::thread_index() < kDim) {
      ptx::store_shared(&v[ptx::thread_index()],
                        ptx::load_global_constant<float>(from + ptx::thread_index()));
    }
  }
  /// Channels first .. first + 3.
  VC_DEVICE ptx::Vec<float, 4> four(int first) const {
    return ptx::load_shared<ptx::Vec<float, 4>>(&v[first]);
  }
};

/// Visible keys of a batch entry.
VC_DEVICE int key_count(const std::int32_t* lengths, int batch, int all) {
  return lengths == nullptr ? all : ptx::load_global_constant<std::int32_t>(lengths + batch);
}

}  // namespace vcattn::cuda::prepare
