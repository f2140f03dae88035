#include "core/visibility.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace vcattn {

std::vector<Entry> entries(const Arguments& a) {
  std::vector<Entry> result;
  if (a.q_segments) {
    for (std::int64_t i = 0; i < a.q_segments->count; ++i) {
      const std::int32_t* q = a.q_segments->offsets + i;
      const std::int32_t* k = a.k_segments->offsets + i;
      result.push_back({0, q[0], q[1] - q[0], k[0], k[1] - k[0]});
    }
    return result;
  }
  for (std::int64_t b = 0; b < a.q.batch(); ++b) {
    const std::int64_t keys = a.key_lengths != nullptr ? a.key_lengths[b] : a.k.tokens();
    result.push_back({b, 0, a.q.tokens(), 0, keys});
  }
  return result;
}

std::vector<std::int32_t> visible_keys(const Arguments& a, const Entry& entry,
                                       std::int64_t kv_head) {
  std::vector<std::int32_t> keys(static_cast<std::size_t>(entry.k_count));
  std::iota(keys.begin(), keys.end(), 0);
  // Bottom-right causality hides a key from every row only if there is no row at all.
  if (!a.mask || entry.q_count == 0) return keys;

  const std::int64_t group = a.q.heads() / a.k.heads();
  const std::int64_t heads = a.mask->shape[1] == 1 ? 1 : group;
  const std::int64_t rows = a.mask->shape[2] == 1 && !a.causal ? 1 : entry.q_count;
  const auto hidden = [&](std::int32_t key) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const float bias = score_bias(a, entry, kv_head * group + h, i, key);
        if (!(std::isinf(bias) && bias < 0.0F)) return false;
      }
    }
    return true;
  };
  keys.erase(std::remove_if(keys.begin(), keys.end(), hidden), keys.end());
  return keys;
}

}  // namespace vcattn
