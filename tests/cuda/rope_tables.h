// Rotary tables of tests, on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "vcattn/arguments.h"

namespace vcattn::test {

/// Angles token * 10000^(-pair / pairs) + shift.
struct RopeTables {
  RopeTables(std::int64_t token_count, std::int64_t pair_count, double shift)
      : tokens(token_count), pairs(pair_count) {
    for (std::int64_t i = 0; i < tokens * pairs; ++i) {
      const auto token = static_cast<double>(i / pairs), pair = static_cast<double>(i % pairs);
      const double angle = token * std::pow(10000.0, -pair / static_cast<double>(pairs)) + shift;
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }

  Rope rope(RopeLayout layout) const { return {cos.data(), sin.data(), tokens, pairs, layout}; }

  std::int64_t tokens, pairs;
  std::vector<float> cos, sin;
};

}  // namespace vcattn::test
