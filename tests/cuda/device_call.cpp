#include "cuda/device_call.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

namespace vcattn::test {
namespace {

void check(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

/// The memory of an output, guard bands included.
struct OutputMemory : GuardedTensor {
  static Memory& of(GuardedTensor& tensor) {
    Memory& (HostTensor::*memory)() = &OutputMemory::memory;
    return (tensor.*memory)();
  }
};

/// The elements a view reaches, in elements from its origin.
struct Span {
  std::int64_t begin = 0, end = 0;
};

Span span_of(const TensorView& view) {
  Span span;
  if (view.empty()) return span;
  for (int axis = 0; axis < 4; ++axis) {
    const std::int64_t reach = (view.shape[axis] - 1) * view.stride[axis];
    (reach < 0 ? span.begin : span.end) += reach;
  }
  ++span.end;
  return span;
}

/// The memory around a host tensor, on the device. Where the tensor is spread thin over gigabytes,
/// only its rows and both ends of the memory are copied; the rest is NaN on the device.
class DeviceTensor {
 public:
  /// @param ends  bytes at each end
  DeviceTensor(const std::byte* memory, std::size_t bytes, const TensorView& host, std::size_t ends)
      : bytes_(bytes), memory_(memory), host_(host), ends_(ends), sparse_(is_sparse(bytes, host)) {
    void* data = nullptr;
    check(cudaMalloc(&data, std::max<std::size_t>(bytes, 1)));
    data_ = static_cast<std::byte*>(data);
    if (sparse_) check(cudaMemset(data_, 0xFF, bytes));
    for_each_piece([&](std::size_t at, std::size_t count) {
      check(cudaMemcpy(data_ + at, memory_ + at, count, cudaMemcpyHostToDevice));
    });
  }
  ~DeviceTensor() { cudaFree(data_); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  /// What the host address `p` is on the device.
  std::byte* at(const void* p) const {
    return data_ + (static_cast<const std::byte*>(p) - memory_);
  }
  void copy_back(std::byte* memory) const {
    for_each_piece([&](std::size_t at, std::size_t count) {
      check(cudaMemcpy(memory + at, data_ + at, count, cudaMemcpyDeviceToHost));
    });
  }

 private:
  static bool is_sparse(std::size_t bytes, const TensorView& view) {
    constexpr std::size_t kDense = std::size_t{64} << 20;
    const auto& [b, h, s, d] = view.shape;
    return bytes > kDense && bytes / 16 > static_cast<std::size_t>(b * h * s * d);
  }

  template <class Move>
  void for_each_piece(const Move& move) const {
    if (bytes_ == 0) return;
    if (!sparse_) {
      move(std::size_t{0}, bytes_);
      return;
    }
    if (ends_ > 0) {
      move(std::size_t{0}, ends_);
      move(bytes_ - ends_, ends_);
    }
    const auto size = static_cast<std::int64_t>(size_bytes(host_.dtype));
    const std::int64_t origin = static_cast<const std::byte*>(host_.data) - memory_;
    const std::int64_t piece = host_.stride[3] == 1 ? host_.dim() : 1;
    for (std::int64_t b = 0; b < host_.batch(); ++b) {
      for (std::int64_t h = 0; h < host_.heads(); ++h) {
        for (std::int64_t s = 0; s < host_.tokens(); ++s) {
          for (std::int64_t d = 0; d < host_.dim(); d += piece) {
            move(static_cast<std::size_t>(origin + host_.offset(b, h, s, d) * size),
                 static_cast<std::size_t>(piece * size));
          }
        }
      }
    }
  }

  std::size_t bytes_;
  const std::byte* memory_;
  TensorView host_;
  std::size_t ends_;
  bool sparse_;
  std::byte* data_ = nullptr;
};

/// An input on the device, with nothing around it.
struct DeviceInput {
  explicit DeviceInput(const TensorView& host)
      : span(span_of(host)),
        size(static_cast<std::int64_t>(size_bytes(host.dtype))),
        memory(static_cast<const std::byte*>(host.data) + span.begin * size,
               static_cast<std::size_t>((span.end - span.begin) * size), host, 0),
        view(host) {
    view.data = memory.at(host.data);
  }
  Span span;
  std::int64_t size;
  DeviceTensor memory;
  TensorView view;
};

/// Rotary tables on the device; nothing for a call without.
struct DeviceRope {
  explicit DeviceRope(const std::optional<Rope>& host)
      : rope(host),
        cos(host ? host->cos : nullptr, bytes(host)),
        sin(host ? host->sin : nullptr, bytes(host)) {
    if (!rope) return;
    rope->cos = reinterpret_cast<const float*>(cos.data());
    rope->sin = reinterpret_cast<const float*>(sin.data());
  }
  static std::size_t bytes(const std::optional<Rope>& rope) {
    return rope ? static_cast<std::size_t>(rope->tokens * rope->pairs) * sizeof(float) : 0;
  }
  std::optional<Rope> rope;
  DeviceBytes cos, sin;
};

struct DeviceOutput {
  explicit DeviceOutput(GuardedTensor& host)
      : host_memory(OutputMemory::of(host)),
        memory(host_memory.data(), host_memory.size(), host.view(),
               static_cast<std::size_t>(GuardedTensor::kGuard) * size_bytes(host.view().dtype)),
        view(host.mutable_view()) {
    view.data = memory.at(view.data);
  }
  void copy_back() { memory.copy_back(host_memory.data()); }
  Memory& host_memory;
  DeviceTensor memory;
  MutableTensorView view;
};

Outcome poisoned_outputs(const Arguments& host, const OutputLayout& layout) {
  const Shape shape = host.q.shape;
  const Shape lse_shape{shape[0], shape[1], shape[2], 1};
  return {{layout.dtype.value_or(host.q.dtype), shape,
           layout.out_stride.value_or(dense_strides(shape))},
          {DType::kF32, lse_shape, layout.lse_stride.value_or(dense_strides(lse_shape))}};
}

LseView lse_of(const MutableTensorView& lse) {
  return {static_cast<float*>(lse.data), {lse.stride[0], lse.stride[1], lse.stride[2]}};
}

}  // namespace

bool has_hopper() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return false;
  cudaDeviceProp properties{};
  return cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.major == 9 &&
         properties.minor == 0;
}

DeviceBytes::DeviceBytes(const void* host, std::size_t bytes) : bytes_(bytes) {
  void* pointer = nullptr;
  check(cudaMalloc(&pointer, std::max<std::size_t>(bytes, 1)));
  data_ = static_cast<std::byte*>(pointer);
  if (bytes > 0) check(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice));
}

DeviceBytes::~DeviceBytes() { cudaFree(data_); }

void DeviceBytes::copy_back(void* host) const {
  if (bytes_ > 0) check(cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost));
}

Outcome run_on_device(const Arguments& host, const Recipe& recipe, const DeviceOptions& options,
                      VSmoothState* state) {
  Outcome outcome = poisoned_outputs(host, options.layout);
  const DeviceInput q(host.q), k(host.k), v(host.v);
  const DeviceRope q_rope(host.q_rope), k_rope(host.k_rope);
  DeviceOutput out(outcome.out), lse(outcome.lse);
  const DeviceBytes lengths(options.key_lengths.data(),
                            options.key_lengths.size() * sizeof(std::int32_t));
  Arguments a = host;
  a.q = q.view;
  a.k = k.view;
  a.v = v.view;
  a.q_rope = q_rope.rope;
  a.k_rope = k_rope.rope;
  a.out = out.view;
  if (options.lse) a.lse = lse_of(lse.view);
  a.key_lengths =
      options.key_lengths.empty() ? nullptr : reinterpret_cast<const std::int32_t*>(lengths.data());
  a.device = {Device::Kind::kCuda, 0};
  a.stream = options.stream;
  a.allocator = options.allocator;
  attention(a, {.recipe = recipe, .backend = BackendChoice::kCuda}, state);
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(options.stream)));
  out.copy_back();
  lse.copy_back();
  EXPECT_TRUE(outcome.out.written()) << "out";
  if (options.lse) {
    EXPECT_TRUE(outcome.lse.written()) << "lse";
  } else {
    EXPECT_TRUE(outcome.lse.untouched()) << "lse";
  }
  return outcome;
}

Outcome run_on_host(const Arguments& host, const Recipe& recipe, const DeviceOptions& options) {
  Arguments a = host;
  a.key_lengths = options.key_lengths.empty() ? nullptr : options.key_lengths.data();
  return run(a, recipe, nullptr, options.layout);
}

Recipe device_recipe(const char* name) {
  Recipe result = recipe(name);
  result.v_smooth = VSmooth::kSequence;
  if (result.p == PFormat::kE4M3Exp) result.p_reference = PReference::kTile;  // the kernel's
  return result;
}

void expect_errors_of_the_cpu(const Arguments& host, const Recipe& recipe,
                              const Reference& reference, const std::string& label) {
  const Metrics gpu = compare(run_on_device(host, recipe), reference);
  const Metrics cpu = compare(run_on_host(host, recipe), reference);
  EXPECT_TRUE(gpu.finite) << label;
  EXPECT_LE(gpu.rel_l2, cpu.rel_l2 * 1.05 + 0.002) << label;
  EXPECT_LE(gpu.lse_max_abs, cpu.lse_max_abs * 1.1 + 0.02) << label;
  std::printf("  %s %-9s gpu %.4f cpu %.4f  lse gpu %.4f cpu %.4f\n", label.c_str(),
              recipe.name.c_str(), gpu.rel_l2, cpu.rel_l2, gpu.lse_max_abs, cpu.lse_max_abs);
}

}  // namespace vcattn::test
