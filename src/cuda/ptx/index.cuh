// Who am I: thread, warp, block and cluster indices (PTX ISA 10, special registers).
// Blocks are one-dimensional; grids have up to three dimensions.
#pragma once

#include "target.cuh"

VC_PTX_BEGIN

struct Index3 {
  int x, y, z;
};

VC_DEVICE int thread_index() {  // %tid.x
#if VC_ON_DEVICE
  return static_cast<int>(threadIdx.x);
#else
  return emu::thread_index();
#endif
}

VC_DEVICE int block_threads() {  // %ntid.x
#if VC_ON_DEVICE
  return static_cast<int>(blockDim.x);
#else
  return emu::block_threads();
#endif
}

VC_DEVICE Index3 block_index() {  // %ctaid
#if VC_ON_DEVICE
  return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
#else
  const emu::Dim3 b = emu::block_index();
  return {b.x, b.y, b.z};
#endif
}

VC_DEVICE Index3 grid_size() {  // %nctaid
#if VC_ON_DEVICE
  return {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)};
#else
  const emu::Dim3 g = emu::grid_size();
  return {g.x, g.y, g.z};
#endif
}

VC_DEVICE int
lane_index() {  // %laneid, as thread_index() mod 32 (the same for one-dimensional blocks)
  return thread_index() & (kWarpSize - 1);
}

// Warp number in the block, broadcast from lane 0 so that the compiler keeps it in a uniform
// register and branches on it without divergence. Every lane of the warp must call it together.
VC_DEVICE int warp_index(VC_WHERE0) {
#if VC_ON_DEVICE
  return __shfl_sync(kFullMask, static_cast<int>(threadIdx.x) / kWarpSize, 0);
#else
  return static_cast<int>(emu::warp_broadcast(
      "warp_index", static_cast<uint32_t>(emu::thread_index() / kWarpSize), where));
#endif
}

// Warpgroup number in the block (four consecutive warps), uniform as warp_index.
VC_DEVICE int warpgroup_index(VC_WHERE0) {
#if VC_ON_DEVICE
  return __shfl_sync(kFullMask, static_cast<int>(threadIdx.x) / kWarpgroupSize, 0);
#else
  return static_cast<int>(emu::warp_broadcast(
      "warpgroup_index", static_cast<uint32_t>(emu::thread_index() / kWarpgroupSize), where));
#endif
}

VC_DEVICE uint32_t cluster_rank() {  // %cluster_ctarank
#if VC_ON_DEVICE
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return emu::cluster_rank();
#endif
}

VC_DEVICE uint32_t cluster_size() {  // %cluster_nctarank
#if VC_ON_DEVICE
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
#else
  return emu::cluster_size();
#endif
}

VC_DEVICE uint64_t clock_ticks() {  // %clock64; the emulator counts scheduler steps instead
#if VC_ON_DEVICE
  uint64_t t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t));
  return t;
#else
  return emu::clock_ticks();
#endif
}

VC_PTX_END
