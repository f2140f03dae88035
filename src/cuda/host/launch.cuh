// Launching a kernel struct (ptx/shell.cuh) with its errors turned into Error.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "cuda/ptx/shell.cuh"
#include "vcattn/error.h"

namespace vcattn::cuda {

inline void check(cudaError_t status, const char* where) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // or it would fail the caller's next launch check
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDevice;
  throw Error(code, where,
              std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

template <class Kernel>
void launch(dim3 grid, const typename Kernel::Params& params, cudaStream_t stream,
            const char* where) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr std::size_t kBytes = ptx::shared_bytes<Kernel>;
  if constexpr (kBytes > 48 * 1024) {
    check(cudaFuncSetAttribute(ptx::shell<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kBytes)),
          where);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(Kernel::kThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if constexpr (requires { Kernel::kClusterSize; }) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {Kernel::kClusterSize, 1, 1};
  }
  if constexpr (requires { Kernel::kStartsEarly; }) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  check(cudaLaunchKernelEx(&config, ptx::shell<Kernel>, params), where);
}

}  // namespace vcattn::cuda
