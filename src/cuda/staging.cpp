#include "cuda/staging.h"

#include <cuda_runtime.h>

#include <cstring>
#include <utility>
#include <vector>

#include "cuda/host/device.h"

namespace vcattn::cuda {
namespace {

/// Device memory that lives as long as this object.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) {
    if (bytes > 0) require(cudaMalloc(&data_, bytes), "staging");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

std::size_t element_count(const std::array<std::int64_t, 4>& shape) {
  return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
}

/// Calls move(byte in a dense row-major buffer, byte in the view, bytes) for every run of elements
/// that lie side by side in both.
template <class View, class Move>
void for_each_piece(const View& view, const Move& move) {
  const auto size = static_cast<std::int64_t>(size_bytes(view.dtype));
  const std::int64_t piece = view.stride[3] == 1 ? view.dim() : 1;
  std::int64_t dense = 0;
  for (std::int64_t b = 0; b < view.batch(); ++b) {
    for (std::int64_t h = 0; h < view.heads(); ++h) {
      for (std::int64_t s = 0; s < view.tokens(); ++s) {
        for (std::int64_t c = 0; c < view.dim(); c += piece, dense += piece) {
          move(dense * size, view.offset(b, h, s, c) * size,
               static_cast<std::size_t>(piece * size));
        }
      }
    }
  }
}

std::vector<std::byte> gather(const TensorView& view) {
  std::vector<std::byte> dense(element_count(view.shape) * size_bytes(view.dtype));
  const auto* strided = static_cast<const std::byte*>(view.data);
  for_each_piece(view, [&](std::int64_t to, std::int64_t from, std::size_t bytes) {
    std::memcpy(dense.data() + to, strided + from, bytes);
  });
  return dense;
}

void scatter(const std::vector<std::byte>& dense, const MutableTensorView& view) {
  auto* strided = static_cast<std::byte*>(view.data);
  for_each_piece(view, [&](std::int64_t from, std::int64_t to, std::size_t bytes) {
    std::memcpy(strided + to, dense.data() + from, bytes);
  });
}

class CudaCall final : public DeviceCall {
 public:
  CudaCall(const Arguments& host, int device) : host_(host), device_call_(host), device_(device) {
    const DeviceGuard guard(device);
    device_call_.device = {Device::Kind::kCuda, device};
    device_call_.stream = nullptr;
    for (TensorView* view : {&device_call_.q, &device_call_.k, &device_call_.v}) upload(*view);
    if (device_call_.mask) upload(*device_call_.mask);
    upload_array(device_call_.key_lengths, host.q.batch());
    for (auto* segments : {&device_call_.q_segments, &device_call_.k_segments}) {
      if (*segments) upload_array((*segments)->offsets, (*segments)->count + 1);
    }
    for (auto* rope : {&device_call_.q_rope, &device_call_.k_rope}) {
      if (!*rope) continue;
      upload_array((*rope)->cos, (*rope)->tokens * (*rope)->pairs);
      upload_array((*rope)->sin, (*rope)->tokens * (*rope)->pairs);
    }
    const auto& shape = host.q.shape;
    device_call_.out = dense_view(allocate(element_count(shape) * size_bytes(host.out.dtype)),
                                  host.out.dtype, Layout::kBHSD, shape);
    if (host.lse) {
      const std::size_t rows = element_count({shape[0], shape[1], shape[2], 1});
      device_call_.lse = LseView{static_cast<float*>(allocate(rows * sizeof(float))),
                                 {shape[1] * shape[2], shape[2], 1}};
    }
  }

  const Arguments& arguments() const override { return device_call_; }

  void synchronize() override {
    const DeviceGuard guard(device_);
    require(cudaStreamSynchronize(nullptr), "run");
  }

  void fetch() override {
    synchronize();
    if (host_.q.empty()) return;
    const std::size_t elements = element_count(host_.q.shape);
    std::vector<std::byte> out(elements * size_bytes(host_.out.dtype));
    require(cudaMemcpy(out.data(), device_call_.out.data, out.size(), cudaMemcpyDefault), "out");
    scatter(out, host_.out);
    if (!host_.lse) return;
    const std::size_t rows = elements / static_cast<std::size_t>(host_.q.dim());
    std::vector<float> lse(rows);
    require(cudaMemcpy(lse.data(), device_call_.lse->data, rows * sizeof(float), cudaMemcpyDefault),
            "lse");
    std::size_t row = 0;
    for (std::int64_t b = 0; b < host_.q.batch(); ++b) {
      for (std::int64_t h = 0; h < host_.q.heads(); ++h) {
        for (std::int64_t s = 0; s < host_.q.tokens(); ++s) {
          host_.lse->data[host_.lse->offset(b, h, s)] = lse[row++];
        }
      }
    }
  }

 private:
  /// NaN in every float dtype, so that what a kernel does not write shows.
  void* allocate(std::size_t bytes) {
    memory_.emplace_back(bytes);
    if (bytes > 0) require(cudaMemset(memory_.back().data(), 0xFF, bytes), "staging");
    return memory_.back().data();
  }

  void upload(TensorView& view) {
    const std::vector<std::byte> dense = gather(view);
    const std::byte* data = dense.data();
    upload_array(data, static_cast<std::int64_t>(dense.size()));
    // (An empty tensor has no data, on the device either.)
    view = dense_view(static_cast<const void*>(data), view.dtype, Layout::kBHSD, view.shape);
  }

  /// Replaces a host pointer to `count` elements by one to a copy on the device.
  template <class T>
  void upload_array(const T*& data, std::int64_t count) {
    if (data == nullptr) return;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    void* copy = allocate(bytes);
    if (bytes > 0) require(cudaMemcpy(copy, data, bytes, cudaMemcpyDefault), "staging");
    data = static_cast<const T*>(copy);
  }

  Arguments host_, device_call_;
  int device_;
  std::vector<DeviceMemory> memory_;
};

}  // namespace

std::unique_ptr<DeviceCall> stage_on(const Arguments& host, int device) {
  return std::make_unique<CudaCall>(host, device);
}

}  // namespace vcattn::cuda
