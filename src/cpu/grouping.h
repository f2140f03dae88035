// The CPU's part of VSmoothState.
#pragma once

#include <algorithm>
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

/// A task is an (entry, KV head), entries first.
class CpuGrouping : public VSmoothState::Grouping {
 public:
  /// @param visible  the keys of each task
  CpuGrouping(const std::vector<std::vector<std::int32_t>>& visible, std::int64_t heads)
      : heads_(heads) {
    for (const auto& keys : visible) groupings_.push_back({keys, {}, {}});
  }

  /// Whether it groups exactly these keys.
  bool is_of(const std::vector<std::vector<std::int32_t>>& visible) const {
    return std::equal(visible.begin(), visible.end(), groupings_.begin(), groupings_.end(),
                      [](const auto& keys, const auto& head) { return keys == head.visible; });
  }
  HeadGrouping& at(std::int64_t task) { return groupings_[task]; }
  const HeadGrouping& at(std::int64_t task) const { return groupings_[task]; }

  std::vector<std::int32_t> permutation(std::int64_t entry, std::int64_t head) const override {
    const HeadGrouping& grouping = find(entry, head);
    std::vector<std::int32_t> keys;
    for (const std::int32_t i : grouping.order) keys.push_back(grouping.visible[i]);
    return keys;
  }
  std::vector<float> centroids(std::int64_t entry, std::int64_t head) const override {
    return find(entry, head).centroids.data;
  }

 private:
  const HeadGrouping& find(std::int64_t entry, std::int64_t head) const {
    const std::int64_t entries =
        heads_ > 0 ? static_cast<std::int64_t>(groupings_.size()) / heads_ : 0;
    require_task(entry, entries, head, heads_);
    return groupings_[entry * heads_ + head];
  }

  std::int64_t heads_;
  std::vector<HeadGrouping> groupings_;
};

}  // namespace vcattn::cpu
