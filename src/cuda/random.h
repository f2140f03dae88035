// Random tensors made on the device, for measurements and tests of sizes that a host would take
// minutes to fill.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace vcattn::cuda {

/// Fills `data` with `count` N(mean, 1) bfloat16 values in stream order, the same for the same
/// seed.
void fill_normal_bf16(void* data, std::size_t count, std::uint32_t seed, float mean = 0.0F,
                      cudaStream_t stream = nullptr);

}  // namespace vcattn::cuda
