// The generator of test inputs: the same bits in every language and on every machine (integer
// arithmetic, then one exact conversion), and addressable by index, so that a case can be named by
// its seed alone.
#pragma once

#include <cstdint>

namespace vcattn::test {

// A 32-bit mixing function (bijective).
constexpr std::uint32_t portable_hash(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  x ^= x >> 16;
  return x;
}

// G(seed, i): close to N(0, 1), within (-6, 6). The sum of twelve 16-bit uniforms, exact in float:
// a multiple of 2^-16.
constexpr float portable_normal(std::uint32_t seed, std::uint32_t i) {
  const std::uint32_t s = portable_hash(seed + 0x9E3779B9u);
  std::uint32_t sum = 0;
  for (std::uint32_t k = 0; k < 6; ++k) {
    const std::uint32_t r = portable_hash((i * 6u + k) ^ s);
    sum += (r & 0xFFFFu) + (r >> 16);
  }
  return static_cast<float>(sum + 6u) / 65536.0f - 6.0f;
}

// Uniform in [0, 1), a multiple of 2^-24.
constexpr float portable_uniform(std::uint32_t seed, std::uint32_t i) {
  const std::uint32_t s = portable_hash(seed + 0x9E3779B9u);
  return static_cast<float>(portable_hash(i ^ s) >> 8) / 16777216.0f;
}

}  // namespace vcattn::test
