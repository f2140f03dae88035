// Launching a kernel struct (ptx/shell.cuh) with its errors turned into Error.
#pragma once

#include "cuda/host/device.h"
#include "cuda/ptx/shell.cuh"

namespace vcattn::cuda {

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
