// Test tensors with their own memory, in any layout, and outputs that notice what was not written
// and what was overwritten.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "vcattn/tensor.h"

namespace vcattn::test {

using Shape = std::array<std::int64_t, 4>;

/// Where an element is; `i` is its row-major index over (batch, heads, tokens, d), the index of the
/// portable generator.
struct Index {
  std::int64_t b, h, s, d;
  std::uint32_t i;
};
using Values = std::function<float(const Index&)>;

/// G(seed, i): the portable N(0, 1)-like generator.
Values normal(std::uint32_t seed);
Values constant(float value);
/// factor * values + offset, rounded at each step.
Values affine(Values values, float factor, float offset = 0.0F);

Shape dense_strides(Shape shape, Layout layout = Layout::kBHSD);

/// Zeroed bytes. Up to 64 MiB they come from the heap, where the address sanitizer watches both
/// ends; more is mapped without being reserved, so that a view with huge strides costs the pages it
/// touches and nothing else.
class Memory {
 public:
  explicit Memory(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  bool sparse() const { return sparse_; }

 private:
  std::size_t size_;
  bool sparse_;
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_;
};

/// A tensor with any strides, negative and zero ones included, and `guard` unused elements in front
/// of it and behind it (an odd guard misaligns the base pointer).
class HostTensor {
 public:
  HostTensor(DType dtype, Shape shape, Shape stride, std::int64_t guard = 0);
  HostTensor(DType dtype, Shape shape, Layout layout = Layout::kBHSD)
      : HostTensor(dtype, shape, dense_strides(shape, layout)) {}

  /// Sets every element; the values are rounded to the dtype.
  void fill(const Values& values);
  void set(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d, float value);
  float get(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const;

  TensorView view() const { return as_const(mutable_view()); }
  MutableTensorView mutable_view() const;

 protected:
  Memory& memory() { return memory_; }
  const Memory& memory() const { return memory_; }
  /// Position of an element of the view in the memory, in elements.
  std::int64_t position(std::int64_t offset) const { return base_ + offset; }

 private:
  DType dtype_;
  Shape shape_, stride_;
  std::int64_t base_;
  Memory memory_;
};

/// An output: filled with NaNs of a pattern no arithmetic produces, guard bands and the gaps
/// between strided elements included.
class GuardedTensor : public HostTensor {
 public:
  static constexpr std::int64_t kGuard = 64;  ///< elements at both ends

  GuardedTensor(DType dtype, Shape shape, Shape stride);

  /// Every element was written and nothing else was. (Of sparse memory, only the elements and the
  /// ends are known.)
  testing::AssertionResult written() const;
  /// Nothing was written at all.
  testing::AssertionResult untouched() const;

 private:
  bool poisoned(std::int64_t at) const;
  std::int64_t element_count() const;
};

/// Part of a view along one axis, as torch.narrow gives it.
template <class View>
View narrow(View view, int axis, std::int64_t first, std::int64_t count) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                  const std::byte, std::byte>;
  view.data = static_cast<Byte*>(view.data) +
              first * view.stride[axis] * static_cast<std::int64_t>(size_bytes(view.dtype));
  view.shape[axis] = count;
  return view;
}

/// The same memory seen with one axis repeated `count` times (stride 0).
TensorView expand(TensorView view, int axis, std::int64_t count);

/// A copy of a view, in any layout.
HostTensor copy(const TensorView& view, const Shape& stride, std::int64_t guard = 0);
inline HostTensor contiguous(const TensorView& view) {
  return copy(view, dense_strides(view.shape));
}

/// Layouts that are not dense in (batch, heads, tokens, d) order.
struct NamedStrides {
  const char* name;
  Shape stride;
};
std::vector<NamedStrides> odd_layouts(const Shape& shape);

/// Strides with which the last element along `axis` lies beyond 2^32 elements. The row of the bug
/// table that reaches such offsets with many tokens reaches them here with long strides.
Shape far_strides(const Shape& shape, int axis);

float element(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t s,
              std::int64_t d);

/// Equal shapes, dtypes and element bits; strides may differ.
testing::AssertionResult same_bits(const TensorView& a, const TensorView& b);

/// No NaN and no infinity.
testing::AssertionResult all_finite(const TensorView& view);

/// Fills and frees heap memory of many sizes, so that whoever reads memory before writing it reads
/// NaNs.
void poison_heap();

}  // namespace vcattn::test
