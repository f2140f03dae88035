// Device memory with an owner.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "cuda/host/device.h"

namespace vcattn::cuda {

/// Device memory that lives as long as this object.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes, const char* where = "staging") {
    if (bytes > 0) check(cudaMalloc(&data_, bytes), where);
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace vcattn::cuda
