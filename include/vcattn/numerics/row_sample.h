// Which rows of Q and K the statistics of their channels are taken from: all of a few, a sample of
// many. The mean key only has to be near (any vector may be taken from all keys of a softmax), the
// balance is rounded to powers of two, and a pass over all rows costs a GPU a tenth of preparation.
#pragma once

#include <cstdint>

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr int kSampleGroup = 16;        // one row of so many is taken,
constexpr int kSampledFromRows = 8192;  // if there are at least so many

// The rows row(0), ..., row(count - 1) of a tensor, ascending.
struct RowSample {
  int count;
  bool is_part;

  // Within each group the place follows multiples of the golden ratio, so that no period of the
  // rows (a line or a frame of a video) meets one of the sample.
  VCATTN_HD int row(int i) const {
    if (!is_part) return i;
    return kSampleGroup * i + static_cast<int>(static_cast<std::uint32_t>(i) * 0x9E3779B9u >> 28);
  }
};

VCATTN_HD RowSample row_sample(int rows, bool sampling) {
  const bool is_part = sampling && rows >= kSampledFromRows;
  return {is_part ? rows / kSampleGroup : rows, is_part};
}

}  // namespace vcattn::numerics
