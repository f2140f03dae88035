#include "vcattn/tensor.h"

namespace vcattn {

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kBool:
      return "bool";
  }
  return "unknown";
}

std::size_t size_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kBool:
      return 1;
  }
  return 0;
}

std::string to_string(Device device) {
  if (device.kind == Device::Kind::kCpu) return "cpu";
  return "cuda:" + std::to_string(device.index);
}

}  // namespace vcattn
