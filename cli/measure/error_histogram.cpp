#include "cli/measure/error_histogram.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/element.h"

namespace vcattn::cli {
namespace {

int bin_of(double ratio) {
  const double decades = std::log10(ratio) - ErrorHistogram::kLowestDecade;
  const double bin = std::floor(decades * ErrorHistogram::kBinsPerDecade);
  return static_cast<int>(std::clamp(bin, 0.0, ErrorHistogram::kBins - 1.0));
}

}  // namespace

double ErrorHistogram::center(int bin) { return kLowestDecade + (bin + 0.5) / kBinsPerDecade; }

ErrorHistogram error_histogram(const Arguments& arguments, const Reference& reference,
                               const std::vector<std::int64_t>& rows) {
  ErrorHistogram histogram;
  if (reference.out.empty()) return histogram;
  const auto count = static_cast<double>(reference.out.size());
  const double rms = std::sqrt(
      std::inner_product(reference.out.begin(), reference.out.end(), reference.out.begin(), 0.0) /
      count);
  const TensorView out = as_const(arguments.out);
  const std::int64_t row_count = rows.empty() ? out.tokens() : std::ssize(rows);
  std::size_t position = 0;
  for (std::int64_t b = 0; b < out.batch(); ++b) {
    for (std::int64_t h = 0; h < out.heads(); ++h) {
      for (std::int64_t i = 0; i < row_count; ++i) {
        const std::int64_t row = rows.empty() ? i : rows[static_cast<std::size_t>(i)];
        for (std::int64_t c = 0; c < out.dim(); ++c) {
          const double value = load_element(out, out.offset(b, h, row, c));
          const double error = std::abs(value - reference.out[position++]);
          // NaN lies in no bin; an exact element lies in the lowest.
          if (!std::isnan(error)) histogram.share[bin_of(error / rms)] += 1.0 / count;
        }
      }
    }
  }
  return histogram;
}

}  // namespace vcattn::cli
