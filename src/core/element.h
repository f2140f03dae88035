// Single elements of views, in any float dtype.
#pragma once

#include <cstdint>
#include <cstring>

#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/f16.h"
#include "vcattn/tensor.h"

namespace vcattn {

/// The element at `offset` (in elements) of a float view.
inline float load_element(const TensorView& view, std::int64_t offset) {
  if (view.dtype == DType::kF32) return static_cast<const float*>(view.data)[offset];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(view.data)[offset];
  return view.dtype == DType::kBF16 ? numerics::bf16_to_float(bits) : numerics::f16_to_float(bits);
}

/// Rounds to nearest even into the view's dtype. A finite value stays finite: quantized attention
/// can overshoot the largest |v| it averages, which float16 inputs may have near the end of the
/// range.
inline void store_element(const MutableTensorView& view, std::int64_t offset, float value) {
  if (view.dtype == DType::kF32) {
    static_cast<float*>(view.data)[offset] = value;
    return;
  }
  const bool bf16 = view.dtype == DType::kBF16;
  const float largest = bf16 ? numerics::kBf16Max : numerics::kF16Max;
  const float kept = numerics::is_finite(value) ? numerics::clip(value, -largest, largest) : value;
  static_cast<std::uint16_t*>(view.data)[offset] =
      bf16 ? numerics::bf16_from_float(kept) : numerics::f16_from_float(kept);
}

}  // namespace vcattn
