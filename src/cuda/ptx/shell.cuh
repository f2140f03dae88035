// The __global__ shell of a kernel, nvcc only (a kernel's launch.cuh includes it).
//
// A kernel is a struct:
//
//   struct Kernel {
//     static constexpr int kThreads = 384, kBlocksPerSm = 1, kClusterSize = 1;
//     static constexpr bool kStartsEarly = true;  // optional: its blocks take the places which the
//                                                 // last ones of the kernel before it leave, and
//                                                 // wait there until that one has ended
//     struct Params { ... };                      // by value, trivially copyable
//     struct SharedStorage { ... };               // its alignment is honoured up to 1024
//     VC_DEVICE static void run(const Params& p, SharedStorage& shared);
//   };
//
// and shell<Kernel> is what gets launched, with shared_bytes<Kernel> of dynamic shared memory. The
// emulator runs the same struct: emu::launch<Kernel>(grid, params, options).
#pragma once

#include "barrier.cuh"

namespace vcattn::ptx {

template <class Kernel>
inline constexpr size_t shared_bytes = sizeof(typename Kernel::SharedStorage);

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocksPerSm)
    shell(const __grid_constant__ typename Kernel::Params params) {
  using Storage = typename Kernel::SharedStorage;
  static_assert(std::is_trivially_default_constructible_v<Storage> && alignof(Storage) <= 1024);
  extern __shared__ __align__(1024) unsigned char raw[];
  if constexpr (requires { Kernel::kStartsEarly; }) {
    // First of all: what the kernel before wrote is read through the read-only path too.
    grid_dependency_wait();
    grid_dependency_launch();
  }
  Kernel::run(params, *reinterpret_cast<Storage*>(raw));
}

}  // namespace vcattn::ptx
