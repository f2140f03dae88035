// Which query rows meet which keys: batch entries, packed segments, key lengths, causality, masks.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/element.h"
#include "vcattn/arguments.h"

namespace vcattn {

/// One independent attention problem per KV head: a batch entry or a packed segment.
struct Entry {
  std::int64_t batch = 0;
  std::int64_t q_begin = 0, q_count = 0;
  std::int64_t k_begin = 0, k_count = 0;  ///< without the padding behind a key length
};

/// The entries of a call, in order. Reads key lengths and offsets: host memory only.
std::vector<Entry> entries(const Arguments& arguments);

/// Additive masks at or below this hide a key, as -infinity does: frameworks mask with finfo.min
/// (which for float16 is its largest value, negated).
inline constexpr float kHiddenBias = -1.0e30F;

/// What is added to the scaled score of query row `i` and key `j` of an entry (both relative to the
/// entry) in query head `head`; -infinity hides the key.
inline float score_bias(const Arguments& a, const Entry& entry, std::int64_t head, std::int64_t i,
                        std::int64_t j) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  if (a.causal && j > i + entry.k_count - entry.q_count) return kHidden;
  if (!a.mask) return 0.0F;
  const TensorView& mask = *a.mask;
  const auto index = [&](int axis, std::int64_t at) { return mask.shape[axis] == 1 ? 0 : at; };
  const std::int64_t offset = mask.offset(index(0, entry.batch), index(1, head),
                                          index(2, entry.q_begin + i), index(3, entry.k_begin + j));
  if (mask.dtype != DType::kBool) {
    const float bias = load_element(mask, offset);
    const float lowest = mask.dtype == DType::kF16 ? -numerics::kF16Max : kHiddenBias;
    return bias <= lowest ? kHidden : bias;
  }
  return static_cast<const std::uint8_t*>(mask.data)[offset] != 0 ? 0.0F : kHidden;
}

/// Whether `score_bias` can differ from 0 at all.
inline bool has_bias(const Arguments& a) { return a.causal || a.mask.has_value(); }

/// The keys of an entry that at least one query row of the KV head's group sees, ascending. Hidden
/// keys take no part in means, scales and clusters, and their memory is never read.
std::vector<std::int32_t> visible_keys(const Arguments& arguments, const Entry& entry,
                                       std::int64_t kv_head);

}  // namespace vcattn
