#include "cuda/staging.h"

#include <cuda_runtime.h>

#include <cstring>
#include <utility>
#include <vector>

#include "cuda/host/device_memory.h"
#include "cuda/random.h"

namespace vcattn::cuda {
namespace {

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

/// A call whose tensors this object owns.
class CudaCall : public DeviceCall {
 public:
  CudaCall(const Arguments& call, int device) : device_call_(call), device_(device) {
    device_call_.device = {Device::Kind::kCuda, device};
    device_call_.stream = nullptr;
  }

  const Arguments& arguments() const override { return device_call_; }

  void synchronize() override {
    const DeviceGuard guard(device_);
    check(cudaStreamSynchronize(nullptr), "run");
  }

  std::vector<std::byte> read(const TensorView& view) override {
    synchronize();
    const std::size_t size = size_bytes(view.dtype);
    std::vector<std::byte> dense(element_count(view.shape) * size);
    const std::size_t row = static_cast<std::size_t>(view.dim()) * size;
    const std::size_t head = static_cast<std::size_t>(view.tokens()) * row;
    std::byte* to = dense.data();
    for (std::int64_t b = 0; b < view.batch(); ++b) {
      for (std::int64_t h = 0; h < view.heads(); ++h, to += head) {
        const auto* from = static_cast<const std::byte*>(view.data) +
                           view.offset(b, h, 0, 0) * static_cast<std::int64_t>(size);
        check(cudaMemcpy2D(to, row, from, static_cast<std::size_t>(view.stride[2]) * size, row,
                           static_cast<std::size_t>(view.tokens()), cudaMemcpyDeviceToHost),
              "read");
      }
    }
    return dense;
  }

 protected:
  /// NaN in every float dtype, so that what a kernel does not write shows.
  void* allocate(std::size_t bytes) {
    memory_.emplace_back(bytes);
    if (bytes > 0) check(cudaMemset(memory_.back().data(), 0xFF, bytes), "staging");
    return memory_.back().data();
  }

  Arguments device_call_;
  int device_;

 private:
  std::vector<DeviceMemory> memory_;
};

/// Copies of a host call's tensors.
class StagedHostCall final : public CudaCall {
 public:
  StagedHostCall(const Arguments& host, int device) : CudaCall(host, device), host_(host) {
    const DeviceGuard guard(device);
    for (TensorView* view : {&device_call_.q, &device_call_.k, &device_call_.v}) upload(*view);
    if (device_call_.mask) upload(*device_call_.mask);
    upload_array(device_call_.key_lengths, host.q.batch());
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

  void fetch() override {
    synchronize();
    if (host_.q.empty()) return;
    const std::size_t elements = element_count(host_.q.shape);
    std::vector<std::byte> out(elements * size_bytes(host_.out.dtype));
    check(cudaMemcpy(out.data(), device_call_.out.data, out.size(), cudaMemcpyDefault), "out");
    scatter(out, host_.out);
    if (!host_.lse) return;
    const std::size_t rows = elements / static_cast<std::size_t>(host_.q.dim());
    std::vector<float> lse(rows);
    check(cudaMemcpy(lse.data(), device_call_.lse->data, rows * sizeof(float), cudaMemcpyDefault),
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
    if (bytes > 0) check(cudaMemcpy(copy, data, bytes, cudaMemcpyDefault), "staging");
    data = static_cast<const T*>(copy);
  }

  Arguments host_;
};

class RandomCall final : public CudaCall {
 public:
  RandomCall(const CallSizes& sizes, int device) : CudaCall({}, device) {
    const DeviceGuard guard(device);
    const std::array<std::int64_t, 4> q_shape{1, sizes.q_heads, sizes.queries, sizes.dim};
    const std::array<std::int64_t, 4> k_shape{1, sizes.kv_heads, sizes.keys, sizes.dim};
    device_call_.q = normal(q_shape, 1);
    device_call_.k = normal(k_shape, 2);
    device_call_.v = normal(k_shape, 3);
    device_call_.out = dense_view(allocate(element_count(q_shape) * size_bytes(DType::kBF16)),
                                  DType::kBF16, Layout::kBHSD, q_shape);
  }

  void fetch() override { synchronize(); }

 private:
  TensorView normal(const std::array<std::int64_t, 4>& shape, std::uint32_t seed) {
    const std::size_t count = element_count(shape);
    void* data = allocate(count * size_bytes(DType::kBF16));
    fill_normal_bf16(data, count, seed);
    return as_const(dense_view(data, DType::kBF16, Layout::kBHSD, shape));
  }
};

}  // namespace

std::unique_ptr<DeviceCall> stage_on(const Arguments& host, int device) {
  return std::make_unique<StagedHostCall>(host, device);
}

std::unique_ptr<DeviceCall> random_call_on(const CallSizes& sizes, int device) {
  return std::make_unique<RandomCall>(sizes, device);
}

}  // namespace vcattn::cuda
