// How much a call has to do, for estimates of its time.
#pragma once

#include "vcattn/arguments.h"

namespace vcattn {

/// Multiply-adds of both products of exact attention, every key (of a segment) visible.
inline double multiply_adds(const Arguments& a) {
  double pairs = static_cast<double>(a.q.tokens()) * static_cast<double>(a.k.tokens());
  if (a.q_segments) {
    pairs = 0.0;
    for (std::int64_t i = 0; i < a.q_segments->count; ++i) {
      const std::int32_t* q = a.q_segments->offsets + i;
      const std::int32_t* k = a.k_segments->offsets + i;
      pairs += static_cast<double>(q[1] - q[0]) * static_cast<double>(k[1] - k[0]);
    }
  }
  return 2.0 * static_cast<double>(a.q.batch() * a.q.heads() * a.q.dim()) * pairs;
}

/// Elements of q, k, v and out.
inline double elements(const Arguments& a) {
  const auto rows = [](const TensorView& x) { return x.batch() * x.heads() * x.tokens(); };
  return 2.0 * static_cast<double>((rows(a.q) + rows(a.k)) * a.q.dim());
}

}  // namespace vcattn
