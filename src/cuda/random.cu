#include <cmath>

#include "cuda/host/launch.cuh"
#include "cuda/ptx/ptx.cuh"
#include "cuda/random.h"
#include "vcattn/numerics/bf16.h"

namespace vcattn::cuda {
namespace {

/// Grid-stride: element i of the sequence that `seed` names, by Box and Muller.
struct NormalKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = 4;
  struct Params {
    std::uint16_t* data = nullptr;
    std::uint64_t count = 0;
    std::uint32_t seed = 0;
    float mean = 0.0F;
  };
  struct SharedStorage {};

  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    const auto step = static_cast<std::uint64_t>(ptx::grid_size().x) * kThreads;
    const auto first = static_cast<std::uint64_t>(ptx::block_index().x) * kThreads;
    for (std::uint64_t i = first + ptx::thread_index(); i < p.count; i += step) {
      ptx::store_global(p.data + i, numerics::bf16_from_float(normal(i, p.seed) + p.mean));
    }
  }

  VC_DEVICE static float normal(std::uint64_t i, std::uint32_t seed) {
    std::uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ull + seed;
    h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9ull;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBull;
    h ^= h >> 31;
    const float u = static_cast<float>((h >> 40) + 1) / 16777217.0F;
    const float v = static_cast<float>(h & 0xFFFFFF) / 16777216.0F;
    return sqrtf(-2.0F * logf(u)) * cosf(6.2831853F * v);
  }
};

}  // namespace

void fill_normal_bf16(void* data, std::size_t count, std::uint32_t seed, float mean,
                      cudaStream_t stream) {
  constexpr std::size_t kMostBlocks = 2048;
  const std::size_t blocks = (count + NormalKernel::kThreads - 1) / NormalKernel::kThreads;
  launch<NormalKernel>(dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
                       {static_cast<std::uint16_t*>(data), count, seed, mean}, stream,
                       "random tensor");
}

}  // namespace vcattn::cuda
