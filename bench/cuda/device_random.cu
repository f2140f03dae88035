#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "device_random.h"

namespace vcattn::bench {
namespace {

__device__ float normal(std::uint64_t i, std::uint32_t seed) {
  std::uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ull + seed;
  h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9ull;
  h = (h ^ (h >> 27)) * 0x94D049BB133111EBull;
  h ^= h >> 31;
  const float u = static_cast<float>((h >> 40) + 1) / 16777217.0f;
  const float v = static_cast<float>(h & 0xFFFFFF) / 16777216.0f;
  return sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
}

__global__ void fill(__nv_bfloat16* data, std::size_t count, std::uint32_t seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    data[i] = __float2bfloat16_rn(normal(i, seed));
  }
}

}  // namespace

void fill_normal_bf16(void* data, std::size_t count, std::uint32_t seed) {
  fill<<<2048, 256>>>(static_cast<__nv_bfloat16*>(data), count, seed);
}

}  // namespace vcattn::bench
