// Takes the place of src/cuda/host/launch.cuh: a launch runs the kernel under the emulator, and
// throws its Fault.
#pragma once

#include "cuda/host/device.h"
#include "cuda/ptx/target.cuh"
#include "emu/launch.h"
#include "emu/runtime/runtime.h"

namespace vcattn::cuda {

template <class Kernel>
void launch(dim3 grid, const typename Kernel::Params& params, cudaStream_t, const char*) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  emu::Options options;
  options.grid = {static_cast<int>(grid.x), static_cast<int>(grid.y), static_cast<int>(grid.z)};
  options.seed = emu::device().seed++;
  options.memory = &emu::device().memory;
  emu::launch<Kernel>(options, params);
}

}  // namespace vcattn::cuda
