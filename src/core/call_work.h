// How much a call has to do, for estimates of its time.
#pragma once

#include "vcattn/arguments.h"

namespace vcattn {

/// Multiply-adds of both products of exact attention, every key visible.
inline double multiply_adds(const Arguments& a) {
  return 2.0 * static_cast<double>(a.q.batch() * a.q.heads()) * static_cast<double>(a.q.tokens()) *
         static_cast<double>(a.k.tokens()) * static_cast<double>(a.q.dim());
}

/// Elements of q, k, v and out.
inline double elements(const Arguments& a) {
  const auto rows = [](const TensorView& x) { return x.batch() * x.heads() * x.tokens(); };
  return 2.0 * static_cast<double>((rows(a.q) + rows(a.k)) * a.q.dim());
}

}  // namespace vcattn
