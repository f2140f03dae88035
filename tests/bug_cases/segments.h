// Packed variable-length inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "bug_cases/call.h"

namespace vcattn::test {

/// Offsets of consecutive segments.
inline std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> offsets{0};
  for (const std::int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

inline Segments segments_of(const std::vector<std::int32_t>& offsets) {
  return {offsets.data(), static_cast<std::int64_t>(offsets.size()) - 1};
}

/// The call on segment i alone.
inline Arguments segment_alone(const Arguments& packed, std::int64_t i) {
  Arguments a = packed;
  const std::int32_t* q = packed.q_segments->offsets + i;
  const std::int32_t* k = packed.k_segments->offsets + i;
  a.q = narrow(packed.q, 2, q[0], q[1] - q[0]);
  a.k = narrow(packed.k, 2, k[0], k[1] - k[0]);
  a.v = narrow(packed.v, 2, k[0], k[1] - k[0]);
  const auto rows_from = [](std::optional<Rope>& rope, std::int32_t first) {
    if (rope)
      *rope = {&rope->cos[first * rope->pairs], &rope->sin[first * rope->pairs],
               rope->tokens - first, rope->pairs, rope->layout};
  };
  rows_from(a.q_rope, q[0]);
  rows_from(a.k_rope, k[0]);
  a.q_segments.reset();
  a.k_segments.reset();
  return a;
}

/// Fails unless every segment of a packed call has the bits of a call of its own.
inline void expect_segments_alone(const Arguments& packed, const Recipe& recipe) {
  const Outcome together = run(packed, recipe);
  for (std::int64_t i = 0; i < packed.q_segments->count; ++i) {
    SCOPED_TRACE(testing::Message() << "segment " << i);
    const std::int32_t* q = packed.q_segments->offsets + i;
    const Outcome alone = run(segment_alone(packed, i), recipe);
    EXPECT_TRUE(same_bits(alone.out_view(), narrow(together.out_view(), 2, q[0], q[1] - q[0])));
    EXPECT_TRUE(same_bits(alone.lse_view(), narrow(together.lse_view(), 2, q[0], q[1] - q[0])));
  }
}

}  // namespace vcattn::test
