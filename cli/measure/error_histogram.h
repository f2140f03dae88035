// How the errors of single elements are distributed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "vcattn/arguments.h"
#include "vcattn/reference.h"

namespace vcattn::cli {

/// Shares of |out - reference| / rms(reference) in logarithmic bins.
struct ErrorHistogram {
  static constexpr int kBinsPerDecade = 10;
  static constexpr int kLowestDecade = -10;
  static constexpr int kHighestDecade = 2;
  static constexpr int kBins = (kHighestDecade - kLowestDecade) * kBinsPerDecade;

  /// Share of the elements per bin; what lies beyond the ends counts in the first and last bin.
  std::array<double, kBins> share{};

  /// log10 of the middle of a bin.
  static double center(int bin);
};

ErrorHistogram error_histogram(const Arguments& arguments, const Reference& reference,
                               const std::vector<std::int64_t>& rows);

}  // namespace vcattn::cli
