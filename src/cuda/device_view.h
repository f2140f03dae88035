// A tensor view as kernels receive it: plain arrays instead of std::array, whose members host code
// alone may call.
#pragma once

#include <cstdint>

#include "vcattn/numerics/arith.h"
#include "vcattn/tensor.h"

namespace vcattn::cuda {

template <class Byte>
struct DeviceView {
  Byte* data = nullptr;
  DType dtype = DType::kBF16;
  int heads = 0, tokens = 0, dim = 0;
  std::int64_t stride[4] = {};

  DeviceView() = default;
  explicit DeviceView(const BasicTensorView<Byte>& view)
      : data(view.data),
        dtype(view.dtype),
        heads(static_cast<int>(view.heads())),
        tokens(static_cast<int>(view.tokens())),
        dim(static_cast<int>(view.dim())),
        stride{view.stride[0], view.stride[1], view.stride[2], view.stride[3]} {}

  /// Of channel 0, in elements.
  VCATTN_HD std::int64_t row_offset(int b, int h, int token) const {
    return b * stride[0] + h * stride[1] + token * stride[2];
  }
};

using InputView = DeviceView<const void>;
using OutputView = DeviceView<void>;

}  // namespace vcattn::cuda
