// Errors of the CUDA runtime as Error, and the device of a scope.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "vcattn/error.h"

namespace vcattn::cuda {

/// @throws Error about `where` unless `status` is success.
inline void check(cudaError_t status, const char* where) {
  if (status == cudaSuccess) return;
  // The runtime keeps a failure for the next launch check; this one is reported here.
  static_cast<void>(cudaGetLastError());
  throw Error(status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDevice,
              where, std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

/// Makes a device current for a scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check(cudaGetDevice(&previous_), "device");
    if (device != previous_) check(cudaSetDevice(device), "device");
  }
  ~DeviceGuard() { cudaSetDevice(previous_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

}  // namespace vcattn::cuda
