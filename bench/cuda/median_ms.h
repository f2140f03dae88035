// The clock of the benchmarks whose work ends on the host.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace vcattn::bench {

/// Median of `repeats` runs of `work` in milliseconds, after one to warm up.
template <class Work>
double median_ms(int repeats, const Work& work) {
  std::vector<double> ms;
  for (int i = 0; i <= repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    if (i > 0) ms.push_back(elapsed.count());
  }
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

}  // namespace vcattn::bench
