// A small seeded generator (splitmix64), so that a seed replays a run on any machine.
#pragma once

#include <cstdint>

namespace vcattn::emu {

class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, n).
  uint64_t below(uint64_t n) { return n <= 1 ? 0 : next() % n; }

 private:
  uint64_t state_;
};

}  // namespace vcattn::emu
