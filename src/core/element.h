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

/// Rounds to nearest even into the view's dtype.
inline void store_element(const MutableTensorView& view, std::int64_t offset, float value) {
  if (view.dtype == DType::kF32) {
    static_cast<float*>(view.data)[offset] = value;
    return;
  }
  static_cast<std::uint16_t*>(view.data)[offset] = view.dtype == DType::kBF16
                                                       ? numerics::bf16_from_float(value)
                                                       : numerics::f16_from_float(value);
}

}  // namespace vcattn
