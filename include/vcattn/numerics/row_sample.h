// Which rows of Q and K the statistics of their channels are taken from: all of a few, a sample of
// many. The mean key only has to be near (any vector may be taken from all keys of a softmax), the
// balance is rounded to powers of two, and a pass over all rows costs a GPU a tenth of preparation.
#pragma once

#include <cstdint>

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr int kSampleShift = 4;         // one row of 16 is taken,
constexpr int kSampledFromRows = 8192;  // if there are at least so many
constexpr int kGramRows = 2048;         // that a Gram matrix of 128 channels wants

// The rows row(0), ..., row(count - 1) of a tensor, ascending: one of each 2^shift.
struct RowSample {
  int count;
  int shift;

  // Within each group the place follows multiples of the golden ratio, so that no period of the
  // rows (a line or a frame of a video) meets one of the sample.
  VCATTN_HD int row(int i) const {
    if (shift == 0) return i;
    const std::uint32_t place = static_cast<std::uint32_t>(i) * 0x9E3779B9u >> (32 - shift);
    return (i << shift) + static_cast<int>(place);
  }
};

// For means and energies.
VCATTN_HD RowSample row_sample(int rows, bool sampling) {
  const int shift = sampling && rows >= kSampledFromRows ? kSampleShift : 0;
  return {rows >> shift, shift};
}

// For Gram matrices: one of up to 16, as long as kGramRows are left.
VCATTN_HD RowSample gram_sample(int rows, bool sampling) {
  int shift = sampling ? kSampleShift : 0;
  while (shift > 0 && rows >> shift < kGramRows) --shift;
  return {rows >> shift, shift};
}

}  // namespace vcattn::numerics
