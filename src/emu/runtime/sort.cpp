// Stands in for src/cuda/cluster/sort.cu: the same sorts on the host.
#include "cuda/cluster/sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "emu/runtime/runtime.h"
#include "vcattn/error.h"

namespace vcattn::cuda::cluster {
namespace {

void mark_written(void* p, std::size_t bytes) {
  const std::string reason = emu::device().memory.check_write(p, bytes);
  if (!reason.empty()) throw Error(ErrorCode::kDevice, "sort", reason);
}

template <class Key>
void sort(const Key* keys, Key* sorted_keys, const std::int32_t* values,
          std::int32_t* sorted_values, std::int64_t count, int bits) {
  const Key mask = bits < static_cast<int>(8 * sizeof(Key)) ? (Key{1} << bits) - 1 : ~Key{0};
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return (keys[a] & mask) < (keys[b] & mask);
  });
  mark_written(sorted_keys, order.size() * sizeof(Key));
  mark_written(sorted_values, order.size() * sizeof(std::int32_t));
  for (std::int64_t i = 0; i < count; ++i) {
    sorted_keys[i] = keys[order[i]];
    sorted_values[i] = values[order[i]];
  }
}

}  // namespace

std::size_t sort_scratch_bytes(std::int64_t) { return 1; }

void sort_pairs(void*, std::size_t, const std::uint32_t* keys, std::uint32_t* sorted_keys,
                const std::int32_t* values, std::int32_t* sorted_values, std::int64_t count,
                int bits, cudaStream_t) {
  sort(keys, sorted_keys, values, sorted_values, count, bits);
}

void sort_pairs(void*, std::size_t, const std::uint64_t* keys, std::uint64_t* sorted_keys,
                const std::int32_t* values, std::int32_t* sorted_values, std::int64_t count,
                int bits, cudaStream_t) {
  sort(keys, sorted_keys, values, sorted_values, count, bits);
}

}  // namespace vcattn::cuda::cluster
