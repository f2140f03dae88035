// The CPU's part of VSmoothState.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/load.h"
#include "vcattn/state.h"

namespace vcattn::cpu {

/// Permutation and centroids of one (entry, KV head).
struct HeadGrouping {
  std::vector<std::int32_t> visible;  ///< the keys that were grouped, ascending
  std::vector<std::int32_t> order;    ///< position -> index into `visible`
  Rows centroids;
};

class CpuGrouping : public VSmoothState::Grouping {
 public:
  CpuGrouping(std::int64_t entries, std::int64_t heads)
      : entries_(entries), heads_(heads), groupings_(static_cast<std::size_t>(entries * heads)) {}

  bool fits(std::int64_t entries, std::int64_t heads) const {
    return entries == entries_ && heads == heads_;
  }
  HeadGrouping& at(std::int64_t entry, std::int64_t head) {
    return groupings_[entry * heads_ + head];
  }
  const HeadGrouping& at(std::int64_t entry, std::int64_t head) const {
    return groupings_[entry * heads_ + head];
  }

  std::vector<std::int32_t> permutation(std::int64_t entry, std::int64_t head) const override {
    const HeadGrouping& grouping = at(entry, head);
    std::vector<std::int32_t> keys;
    for (const std::int32_t i : grouping.order) keys.push_back(grouping.visible[i]);
    return keys;
  }
  std::vector<float> centroids(std::int64_t entry, std::int64_t head) const override {
    return at(entry, head).centroids.data;
  }

 private:
  std::int64_t entries_, heads_;
  std::vector<HeadGrouping> groupings_;
};

}  // namespace vcattn::cpu
