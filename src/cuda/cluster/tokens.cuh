// What the grouping kernels know of V: which tokens a head has, and their channels.
#pragma once

#include "cuda/device_view.h"
#include "cuda/ptx/ptx.cuh"
#include "vcattn/numerics/token_order.h"

namespace vcattn::cuda::cluster {

inline constexpr int kTileTokens = 128;
inline constexpr int kPacket = 8;  ///< channels that one lane reads of a row

/// Eight bfloat16 channels.
using Packed = ptx::Vec<std::uint32_t, 4>;

/// Of one launch: the values, and when it has anything to do.
struct Tokens {
  InputView v;
  const std::int32_t* lengths = nullptr;  ///< visible keys of each batch entry; nullptr: all
  const std::int32_t* only_if = nullptr;  ///< nullptr, or nothing is done unless this is not zero
  int clusters = 0;                       ///< of a head whose keys are all visible
  int keys_per_cluster = 1;
  bool fit = false;  ///< a Lloyd step: of many tokens only a sample takes part
  int slots = 0;     ///< positions of a head in the arrays of this pass

  VC_DEVICE bool idle() const {
    return only_if != nullptr && ptx::load_global<std::int32_t>(only_if) == 0;
  }
};

/// One (batch entry, KV head): block indices y and z.
struct Head {
  const Tokens& tokens;
  int batch, head, count, clusters;
  int stride, positions;  ///< position i of `positions` is token i * stride
  std::int64_t task;

  VC_DEVICE explicit Head(const Tokens& t) : tokens(t) {
    const ptx::Index3 block = ptx::block_index();
    head = block.y;
    batch = block.z;
    task = static_cast<std::int64_t>(batch) * t.v.heads + head;
    count = t.lengths == nullptr ? t.v.tokens
                                 : ptx::load_global_constant<std::int32_t>(t.lengths + batch);
    stride = t.fit ? numerics::fit_stride(count) : 1;
    positions = (count + stride - 1) / stride;
    clusters = (count + t.keys_per_cluster - 1) / t.keys_per_cluster;
  }

  VC_DEVICE std::int64_t row(int token) const { return tokens.v.row_offset(batch, head, token); }
  VC_DEVICE std::int64_t first_position() const { return task * tokens.slots; }
  VC_DEVICE std::int64_t first_cluster() const { return task * tokens.clusters; }
  /// The sort key of a token of this cluster (or rank); hidden ones belong to `tokens.clusters`,
  /// behind all others of their head.
  VC_DEVICE std::uint32_t key(int cluster) const {
    return static_cast<std::uint32_t>(task * (tokens.clusters + 1) + cluster);
  }
};

/// Whether rows can be read eight 16-bit channels at a time, all of them.
template <int kDim>
VC_DEVICE bool is_packed(const InputView& view) {
  const std::int64_t strides = view.stride[0] | view.stride[1] | view.stride[2];
  return view.dtype != DType::kF32 && view.dim == kDim && view.stride[3] == 1 &&
         strides % kPacket == 0 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
}

VC_DEVICE float load_channel(const InputView& view, std::int64_t at) {
  if (view.dtype == DType::kF32) {
    return ptx::load_global_constant<float>(static_cast<const float*>(view.data) + at);
  }
  const auto bits =
      ptx::load_global_constant<std::uint16_t>(static_cast<const std::uint16_t*>(view.data) + at);
  return view.dtype == DType::kBF16 ? ptx::float_from_bf16(bits) : ptx::float_from_f16(bits);
}

/// Channels first .. first + 7 of a row; those beyond the tensor's own are zero.
template <int kDim>
VC_DEVICE void load_channels(const InputView& view, std::int64_t row, int first,
                             float (&x)[kPacket]) {
  if (is_packed<kDim>(view)) {
    const auto raw = ptx::load_global_constant<Packed>(
        static_cast<const std::uint16_t*>(view.data) + row + first);
    const bool bf16 = view.dtype == DType::kBF16;
    VC_UNROLL
    for (int i = 0; i < kPacket; ++i) {
      const auto bits = static_cast<std::uint16_t>(raw[i / 2] >> (16 * (i % 2)));
      x[i] = bf16 ? ptx::float_from_bf16(bits) : ptx::float_from_f16(bits);
    }
    return;
  }
  VC_UNROLL
  for (int i = 0; i < kPacket; ++i) {
    x[i] = first + i < view.dim ? load_channel(view, row + (first + i) * view.stride[3]) : 0.0f;
  }
}

/// The same, rounded to bfloat16.
template <int kDim>
VC_DEVICE Packed load_packed(const InputView& view, std::int64_t row, int first) {
  if (view.dtype == DType::kBF16 && is_packed<kDim>(view)) {
    return ptx::load_global_constant<Packed>(static_cast<const std::uint16_t*>(view.data) + row +
                                             first);
  }
  float x[kPacket];
  load_channels<kDim>(view, row, first, x);
  Packed packed;
  VC_UNROLL
  for (int i = 0; i < 4; ++i) packed[i] = ptx::bf16x2_from_floats(x[2 * i], x[2 * i + 1]);
  return packed;
}

}  // namespace vcattn::cuda::cluster
