// The exact answer in float64: the referee of every other path.
#pragma once

#include <cstdint>
#include <vector>

#include "vcattn/arguments.h"
#include "vcattn/plan.h"

namespace vcattn {

struct Reference {
  /// (B, Hq, rows, d) row-major, where rows are the chosen query rows.
  std::vector<double> out;
  /// (B, Hq, rows) natural log.
  std::vector<double> lse;
};

/// softmax(q k^T * scale) v in float64 straight from the definition, on the inputs as they are
/// stored; every argument of `Arguments` is honoured (`out` and `lse` are not written). Inputs must
/// be in host memory.
///
/// @param rows  query rows to compute, ascending; empty: all of them.
Reference reference_attention(const Arguments& arguments,
                              const std::vector<std::int64_t>& rows = {},
                              const Progress& progress = {});

}  // namespace vcattn
