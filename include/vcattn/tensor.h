// Strided views of tensors the caller owns. Nothing here allocates, copies or frees.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace vcattn {

/// Element types of inputs and outputs. kBool is one byte per element and is accepted for masks
/// only.
enum class DType : std::uint8_t { kF32, kF16, kBF16, kBool };

std::string_view to_string(DType dtype) noexcept;
std::size_t size_bytes(DType dtype) noexcept;

/// Order of the two middle axes in memory: (batch, heads, tokens, d) or (batch, tokens, heads, d).
enum class Layout : std::uint8_t { kBHSD, kBSHD };

struct Device {
  enum class Kind : std::uint8_t { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;  ///< CUDA device ordinal; 0 for the CPU

  friend bool operator==(const Device&, const Device&) = default;
};

std::string to_string(Device device);

/// A rank-4 view. The axes are always named (batch, heads, tokens, d), whatever the memory order:
/// the layout lives in the strides. Strides are in elements, may be zero (broadcast) and need not
/// be contiguous in any axis; offsets are 64-bit throughout.
template <class Byte>
struct BasicTensorView {
  Byte* data = nullptr;
  DType dtype = DType::kBF16;
  std::array<std::int64_t, 4> shape{};
  std::array<std::int64_t, 4> stride{};

  std::int64_t batch() const { return shape[0]; }
  std::int64_t heads() const { return shape[1]; }
  std::int64_t tokens() const { return shape[2]; }
  std::int64_t dim() const { return shape[3]; }
  std::int64_t offset(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
    return b * stride[0] + h * stride[1] + s * stride[2] + d * stride[3];
  }
  bool empty() const { return shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0; }
};

using TensorView = BasicTensorView<const void>;
using MutableTensorView = BasicTensorView<void>;

/// The view of a dense tensor in the given layout; sizes are (batch, heads, tokens, d).
template <class Byte>
BasicTensorView<Byte> dense_view(Byte* data, DType dtype, Layout layout,
                                 std::array<std::int64_t, 4> shape) {
  const auto [b, h, s, d] = shape;
  (void)b;
  if (layout == Layout::kBSHD) return {data, dtype, shape, {s * h * d, d, h * d, 1}};
  return {data, dtype, shape, {h * s * d, s * d, d, 1}};
}

inline TensorView as_const(const MutableTensorView& view) {
  return {view.data, view.dtype, view.shape, view.stride};
}

/// Where log-sum-exp values go: float32, (batch, heads, query tokens), any strides (in elements).
struct LseView {
  float* data = nullptr;
  std::array<std::int64_t, 3> stride{};

  std::int64_t offset(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return b * stride[0] + h * stride[1] + s * stride[2];
  }
};

}  // namespace vcattn
