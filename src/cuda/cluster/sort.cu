#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "cuda/cluster/sort.h"
#include "cuda/host/launch.cuh"

namespace vcattn::cuda::cluster {
namespace {

template <class Key>
std::size_t sort(void* scratch, std::size_t bytes, const Key* keys, Key* sorted_keys,
                 const std::int32_t* values, std::int32_t* sorted_values, std::int64_t count,
                 int bits, cudaStream_t stream) {
  check(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted_keys, values, sorted_values,
                                        count, 0, bits, stream),
        "sort");
  return bytes;
}

template <class Key>
std::size_t scratch_bytes(std::int64_t count) {
  return sort<Key>(nullptr, 0, nullptr, nullptr, nullptr, nullptr, count, 8 * sizeof(Key), nullptr);
}

}  // namespace

std::size_t sort_scratch_bytes(std::int64_t count) {
  return std::max(scratch_bytes<std::uint32_t>(count), scratch_bytes<std::uint64_t>(count));
}

void sort_pairs(void* scratch, std::size_t bytes, const std::uint32_t* keys,
                std::uint32_t* sorted_keys, const std::int32_t* values, std::int32_t* sorted_values,
                std::int64_t count, int bits, cudaStream_t stream) {
  sort(scratch, bytes, keys, sorted_keys, values, sorted_values, count, bits, stream);
}

void sort_pairs(void* scratch, std::size_t bytes, const std::uint64_t* keys,
                std::uint64_t* sorted_keys, const std::int32_t* values, std::int32_t* sorted_values,
                std::int64_t count, int bits, cudaStream_t stream) {
  sort(scratch, bytes, keys, sorted_keys, values, sorted_values, count, bits, stream);
}

}  // namespace vcattn::cuda::cluster
