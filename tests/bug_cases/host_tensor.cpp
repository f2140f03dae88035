#include "bug_cases/host_tensor.h"

#include <oneapi/tbb/parallel_for.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "core/element.h"
#include "support/portable_random.h"

namespace vcattn::test {
namespace {

constexpr std::size_t kSparseFrom = std::size_t{64} << 20;

/// A NaN in float32, float16 and bfloat16 that no conversion or operation returns.
constexpr std::uint16_t kPoison = 0x7FC1;

/// Lowest and highest offset of a view's elements.
std::pair<std::int64_t, std::int64_t> extent(const Shape& shape, const Shape& stride) {
  std::int64_t low = 0, high = 0;
  for (int axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 0) return {0, -1};
    const std::int64_t reach = (shape[axis] - 1) * stride[axis];
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

std::size_t bytes_needed(DType dtype, const Shape& shape, const Shape& stride, std::int64_t guard) {
  const auto [low, high] = extent(shape, stride);
  return static_cast<std::size_t>(high - low + 1 + 2 * guard) * size_bytes(dtype);
}

/// Calls f(b, h, s) for every row, from many threads.
template <class F>
void for_each_row(const Shape& shape, const F& f) {
  oneapi::tbb::parallel_for(std::int64_t{0}, shape[0] * shape[1] * shape[2], [&](std::int64_t r) {
    f(r / shape[2] / shape[1], r / shape[2] % shape[1], r % shape[2]);
  });
}

/// Calls f(offset) for every element of a view.
template <class View, class F>
void for_each_offset(const View& view, const F& f) {
  for (std::int64_t b = 0; b < view.batch(); ++b) {
    for (std::int64_t h = 0; h < view.heads(); ++h) {
      for (std::int64_t s = 0; s < view.tokens(); ++s) {
        for (std::int64_t d = 0; d < view.dim(); ++d) f(view.offset(b, h, s, d));
      }
    }
  }
}

bool same_element(const TensorView& a, std::int64_t at_a, const TensorView& b, std::int64_t at_b) {
  const std::size_t bytes = size_bytes(a.dtype);
  return std::memcmp(static_cast<const std::byte*>(a.data) + static_cast<std::size_t>(at_a) * bytes,
                     static_cast<const std::byte*>(b.data) + static_cast<std::size_t>(at_b) * bytes,
                     bytes) == 0;
}

}  // namespace

Values normal(std::uint32_t seed) {
  return [seed](const Index& at) { return portable_normal(seed, at.i); };
}

Values constant(float value) {
  return [value](const Index&) { return value; };
}

Values affine(Values values, float factor, float offset) {
  return [=](const Index& at) { return factor * values(at) + offset; };
}

Shape dense_strides(Shape shape, Layout layout) {
  return dense_view<const void>(nullptr, DType::kF32, layout, shape).stride;
}

Memory::Memory(std::size_t bytes) : size_(bytes), sparse_(bytes > kSparseFrom) {
  if (!sparse_) {
    data_ = {new std::byte[bytes]{}, [](std::byte* p) { delete[] p; }};
    return;
  }
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = {static_cast<std::byte*>(mapped), [bytes](std::byte* p) { ::munmap(p, bytes); }};
}

HostTensor::HostTensor(DType dtype, Shape shape, Shape stride, std::int64_t guard)
    : dtype_(dtype),
      shape_(shape),
      stride_(stride),
      base_(guard - extent(shape, stride).first),
      memory_(bytes_needed(dtype, shape, stride, guard)) {}

MutableTensorView HostTensor::mutable_view() const {
  return {memory_.data() + base_ * static_cast<std::int64_t>(size_bytes(dtype_)), dtype_, shape_,
          stride_};
}

void HostTensor::fill(const Values& values) {
  const MutableTensorView view = mutable_view();
  for_each_row(shape_, [&](std::int64_t b, std::int64_t h, std::int64_t s) {
    const std::int64_t row = ((b * shape_[1] + h) * shape_[2] + s) * shape_[3];
    for (std::int64_t d = 0; d < shape_[3]; ++d) {
      const float value = values({b, h, s, d, static_cast<std::uint32_t>(row + d)});
      const std::int64_t at = view.offset(b, h, s, d);
      if (dtype_ == DType::kBool) {
        static_cast<std::uint8_t*>(view.data)[at] = value != 0.0F ? 1 : 0;
      } else {
        store_element(view, at, value);
      }
    }
  });
}

void HostTensor::set(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d, float value) {
  const MutableTensorView view = mutable_view();
  store_element(view, view.offset(b, h, s, d), value);
}

float HostTensor::get(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
  return element(view(), b, h, s, d);
}

GuardedTensor::GuardedTensor(DType dtype, Shape shape, Shape stride)
    : HostTensor(dtype, shape, stride, kGuard) {
  const auto poison = [&](std::int64_t at) {
    const std::size_t halves = size_bytes(dtype) / 2;
    for (std::size_t half = 0; half < halves; ++half) {
      std::memcpy(memory().data() + 2 * (static_cast<std::size_t>(at) * halves + half), &kPoison,
                  sizeof kPoison);
    }
  };
  if (memory().sparse()) {
    for_each_offset(view(), [&](std::int64_t offset) { poison(position(offset)); });
    for (std::int64_t i = 0; i < kGuard; ++i) {
      poison(i);
      poison(element_count() - 1 - i);
    }
  } else {
    for (std::int64_t at = 0; at < element_count(); ++at) poison(at);
  }
}

std::int64_t GuardedTensor::element_count() const {
  return static_cast<std::int64_t>(memory().size() / size_bytes(view().dtype));
}

bool GuardedTensor::poisoned(std::int64_t at) const {
  const std::size_t bytes = size_bytes(view().dtype);
  const std::uint16_t pattern[2] = {kPoison, kPoison};
  return std::memcmp(memory().data() + static_cast<std::size_t>(at) * bytes, pattern, bytes) == 0;
}

testing::AssertionResult GuardedTensor::written() const {
  std::int64_t missing = 0, first_missing = 0, damaged = 0, first_damaged = 0;
  std::vector<bool> own(memory().sparse() ? 0 : static_cast<std::size_t>(element_count()));
  for_each_offset(view(), [&](std::int64_t offset) {
    if (poisoned(position(offset)) && missing++ == 0) first_missing = offset;
    if (!own.empty()) own[static_cast<std::size_t>(position(offset))] = true;
  });
  const auto expect_intact = [&](std::int64_t at) {
    if (!poisoned(at) && damaged++ == 0) first_damaged = at - position(0);
  };
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(own.size()); ++at) {
    if (!own[static_cast<std::size_t>(at)]) expect_intact(at);
  }
  for (std::int64_t i = 0; own.empty() && i < kGuard; ++i) {
    expect_intact(i);
    expect_intact(element_count() - 1 - i);
  }
  if (missing == 0 && damaged == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << missing << " elements were not written (the first at offset " << first_missing << "), "
         << damaged << " outside the tensor were (the first at offset " << first_damaged << ")";
}

testing::AssertionResult GuardedTensor::untouched() const {
  std::int64_t touched = 0;
  for_each_offset(view(), [&](std::int64_t offset) {
    if (!poisoned(position(offset))) ++touched;
  });
  if (touched == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << touched << " elements were written";
}

TensorView expand(TensorView view, int axis, std::int64_t count) {
  view.shape[axis] = count;
  view.stride[axis] = 0;
  return view;
}

HostTensor copy(const TensorView& view, const Shape& stride, std::int64_t guard) {
  HostTensor result(view.dtype, view.shape, stride, guard);
  result.fill([&](const Index& at) { return element(view, at.b, at.h, at.s, at.d); });
  return result;
}

std::vector<NamedStrides> odd_layouts(const Shape& shape) {
  const auto [b, h, s, d] = shape;
  (void)b;
  return {{"tokens before heads", {s * h * d, d, h * d, 1}},
          {"a third of a fused QKV", {s * h * d * 3, d, h * d * 3, 1}},
          {"rows in a wider buffer", {h * s * (d + 32), s * (d + 32), d + 32, 1}},
          {"every second token", {h * s * d * 2, s * d * 2, d * 2, 1}},
          {"channels before tokens", {h * d * s, d * s, 1, s}},
          {"heads innermost", {s * d * h, 1, d * h, h}},
          {"tokens backwards", {h * s * d, s * d, -d, 1}}};
}

Shape far_strides(const Shape& shape, int axis) {
  constexpr std::int64_t kFar = std::int64_t{1} << 32;
  Shape stride = dense_strides(shape);
  stride[axis] = kFar / (shape[axis] - 1) + 3;
  // The axes outside stay apart: they move by less than one step of the far axis.
  if (axis < 3) return stride;
  return {1, shape[0], shape[0] * shape[1], stride[3]};
}

float element(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t s,
              std::int64_t d) {
  const std::int64_t at = view.offset(b, h, s, d);
  if (view.dtype == DType::kBool) return static_cast<const std::uint8_t*>(view.data)[at];
  return load_element(view, at);
}

testing::AssertionResult same_bits(const TensorView& a, const TensorView& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) {
    return testing::AssertionFailure() << "the tensors differ in shape or dtype";
  }
  std::vector<std::int64_t> offsets;
  for_each_offset(b, [&](std::int64_t offset) { offsets.push_back(offset); });
  std::size_t at = 0, different = 0, first = 0;
  for_each_offset(a, [&](std::int64_t offset) {
    if (!same_element(a, offset, b, offsets[at]) && different++ == 0) first = at;
    ++at;
  });
  if (different == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << different << " of " << at << " elements differ, the first is element " << first;
}

testing::AssertionResult all_finite(const TensorView& view) {
  std::int64_t bad = 0, first = 0, at = 0;
  for_each_offset(view, [&](std::int64_t offset) {
    if (!std::isfinite(load_element(view, offset)) && bad++ == 0) first = at;
    ++at;
  });
  if (bad == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << bad << " of " << at << " elements are not finite, the first is element " << first;
}

void poison_heap() {
  std::vector<std::vector<float>> blocks;
  for (std::size_t floats = 8; floats <= (std::size_t{1} << 20); floats *= 2) {
    const std::size_t copies = std::clamp<std::size_t>((std::size_t{1} << 20) / floats, 1, 256);
    for (std::size_t i = 0; i < copies; ++i) {
      blocks.emplace_back(floats, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

}  // namespace vcattn::test
