// Counts finished work from many threads and tells the caller.
#pragma once

#include <cstdint>
#include <mutex>

#include "vcattn/plan.h"

namespace vcattn {

class ProgressCounter {
 public:
  ProgressCounter(const Progress& callback, std::int64_t total)
      : callback_(callback), total_(total) {}

  void add(std::int64_t amount) {
    if (!callback_) return;
    const std::lock_guard lock(mutex_);
    done_ += amount;
    callback_(static_cast<double>(done_) / static_cast<double>(total_));
  }

 private:
  const Progress& callback_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  std::mutex mutex_;
};

}  // namespace vcattn
