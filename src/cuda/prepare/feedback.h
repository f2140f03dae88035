// How rounding errors are fed forward (numerics/noise_shaping.h), as the preparation kernels hand
// it on.
#pragma once

#include <cstdint>

#include "cuda/ptx/target.cuh"

namespace vcattn::cuda::prepare {

/// The feedback of one operand of a KV head, as it lies in global and in shared memory.
template <int kDim>
struct alignas(16) Feedback {
  static constexpr int kWords = kDim / 4;  ///< of four channels of a row
  float scale[kDim];
  /// Byte b of factor[at(group, word)][j]: from channel 4 word + b to channel 4 group + j; zero
  /// unless the first is the later one.
  std::uint32_t factor[kWords * (kWords + 1) / 2][4];

  /// The entry of a group of channels and a word behind it or the same, in the order of use.
  VC_CONSTEXPR static int at(int group, int word) {
    const int first = kWords - 1 - group;
    return first * (first + 1) / 2 + kWords - 1 - word;
  }
};

}  // namespace vcattn::cuda::prepare
