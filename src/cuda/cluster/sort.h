// Stable sorts on the device, by CUB; the emulator has its own (emu/runtime/sort.cpp).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace vcattn::cuda::cluster {

/// Scratch memory that either sort of `count` pairs needs.
std::size_t sort_scratch_bytes(std::int64_t count);

/// Enqueues a stable sort of pairs by the low `bits` bits of their keys.
void sort_pairs(void* scratch, std::size_t scratch_bytes, const std::uint32_t* keys,
                std::uint32_t* sorted_keys, const std::int32_t* values, std::int32_t* sorted_values,
                std::int64_t count, int bits, cudaStream_t stream);
void sort_pairs(void* scratch, std::size_t scratch_bytes, const std::uint64_t* keys,
                std::uint64_t* sorted_keys, const std::int32_t* values, std::int32_t* sorted_values,
                std::int64_t count, int bits, cudaStream_t stream);

}  // namespace vcattn::cuda::cluster
