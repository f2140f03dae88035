#include "runtime.h"

#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace vcattn::emu {

Device& device() {
  static Device* const kDevice = [] {
    auto* d = new Device;
    if (const char* seed = std::getenv("VCATTN_EMU_SEED")) {
      d->seed = std::strtoull(seed, nullptr, 10);
    }
    return d;
  }();
  return *kDevice;
}

}  // namespace vcattn::emu

namespace {

constexpr std::size_t kAlignment = 256;

cudaError_t check(const std::string& reason) {
  return reason.empty() ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    default:
      return "cudaErrorInvalidValue";
  }
}

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    default:
      return "invalid argument";
  }
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return cudaErrorInvalidValue;
  *properties = {"emulated", 9, 0};
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return cudaErrorInvalidValue;
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  *p = std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded);
  if (*p == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*p, 0xA5, rounded);
  vcattn::emu::device().memory.add_output("allocation", *p, bytes);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  return cudaMalloc(p, bytes);
}

cudaError_t cudaFree(void* p) {
  vcattn::emu::device().memory.remove(p);
  std::free(p);
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  if (kind != cudaMemcpyDeviceToHost) {
    const cudaError_t status = check(vcattn::emu::device().memory.check_write(to, bytes));
    // By default the destination may also be the host's.
    if (status != cudaSuccess && kind != cudaMemcpyDefault) return status;
  }
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t) {
  const cudaError_t status = check(vcattn::emu::device().memory.check_write(p, bytes));
  if (status == cudaSuccess) std::memset(p, value, bytes);
  return status;
}

cudaError_t cudaMemset(void* p, int value, std::size_t bytes) {
  return cudaMemsetAsync(p, value, bytes, nullptr);
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t status =
        cudaMemcpy(static_cast<std::byte*>(to) + row * to_pitch,
                   static_cast<const std::byte*>(from) + row * from_pitch, width, kind);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return cudaSuccess;
}
