// Helpers of the emulator's tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/ptx/ptx.cuh"
#include "emu/launch.h"

namespace vcattn::emu::test {

// What every kernel says of its launch.
template <int kN>
struct BlockOf {
  static constexpr int kThreads = kN, kBlocksPerSm = 1;
};

template <class Kernel>
void run(const typename Kernel::Params& params, uint64_t seed = 1, GlobalMemory* memory = nullptr,
         Dim3 grid = {1, 1, 1}) {
  Options options;
  options.grid = grid;
  options.seed = seed;
  options.memory = memory;
  launch<Kernel>(options, params);
}

// The message of the fault of this kind that the kernel raises under every one of `seeds` seeds.
template <class Kernel>
std::string fault_of(FaultKind kind, const typename Kernel::Params& params, int seeds = 20,
                     Dim3 grid = {1, 1, 1}) {
  std::string message;
  for (int seed = 0; seed < seeds; ++seed) {
    try {
      run<Kernel>(params, static_cast<uint64_t>(seed), nullptr, grid);
      ADD_FAILURE() << "no fault with seed " << seed;
      return message;
    } catch (const Fault& fault) {
      EXPECT_EQ(name_of(fault.kind), std::string(name_of(kind))) << fault.what();
      message = fault.what();
    }
  }
  return message;
}

// How many schedules a test tries; VCATTN_EMU_SEEDS overrides it, for a long run before a release.
inline uint64_t seed_count(uint64_t usual) {
  const char* wanted = std::getenv("VCATTN_EMU_SEEDS");
  return wanted == nullptr ? usual : std::strtoull(wanted, nullptr, 10);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A fixed stream of test values.
class Stream {
 public:
  explicit Stream(uint64_t seed) : random_(seed) {}
  uint32_t u32() { return static_cast<uint32_t>(random_.next() >> 32); }
  int between(int low, int high) {
    return low + static_cast<int>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }

 private:
  Random random_;
};

}  // namespace vcattn::emu::test
