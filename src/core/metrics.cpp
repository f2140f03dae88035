#include "core/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/element.h"

namespace vcattn {
namespace {

/// Sums over some set of elements of an output x and its reference y.
struct Sums {
  double difference = 0.0, xx = 0.0, yy = 0.0, xy = 0.0, max_abs = 0.0;

  void add(double x, double y) {
    const double error = x - y;
    difference += error * error;
    xx += x * x;
    yy += y * y;
    xy += x * y;
    // Not std::max: a NaN must stay visible.
    if (!(std::abs(error) <= max_abs)) max_abs = std::abs(error);
  }
  void add(const Sums& other) {
    difference += other.difference;
    xx += other.xx;
    yy += other.yy;
    xy += other.xy;
    if (!(other.max_abs <= max_abs)) max_abs = other.max_abs;
  }
  double rel_l2() const {
    if (difference == 0.0) return 0.0;
    return std::sqrt(difference / yy);
  }
  double cosine() const {
    if (xx == 0.0 && yy == 0.0) return 1.0;
    if (xx == 0.0 || yy == 0.0) return 0.0;
    return xy / std::sqrt(xx) / std::sqrt(yy);
  }
};

double lse_error(double lse, double reference) {
  if (std::isinf(lse) && lse == reference) return 0.0;
  return std::abs(lse - reference);
}

}  // namespace

const HeadError& Metrics::worst_head() const {
  return *std::max_element(heads.begin(), heads.end(), [](const auto& a, const auto& b) {
    // NaN counts as the worst there is.
    const auto badness = [](double x) {
      return std::isnan(x) ? std::numeric_limits<double>::infinity() : x;
    };
    return badness(a.rel_l2) < badness(b.rel_l2);
  });
}

Metrics measure(const TensorView& out, const LseView* lse, const Reference& reference,
                const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> chosen = rows;
  if (chosen.empty()) {
    chosen.resize(static_cast<std::size_t>(out.tokens()));
    std::iota(chosen.begin(), chosen.end(), 0);
  }
  Metrics metrics;
  metrics.lse_max_abs = lse != nullptr ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  Sums all;
  const std::int64_t d = out.dim();
  std::size_t position = 0;
  for (std::int64_t b = 0; b < out.batch(); ++b) {
    for (std::int64_t h = 0; h < out.heads(); ++h) {
      HeadError head{.batch = b, .head = h};
      Sums head_sums;
      for (const std::int64_t row : chosen) {
        Sums row_sums;
        for (std::int64_t c = 0; c < d; ++c) {
          const double x = load_element(out, out.offset(b, h, row, c));
          metrics.finite = metrics.finite && std::isfinite(x);
          row_sums.add(
              x,
              reference.out[position * static_cast<std::size_t>(d) + static_cast<std::size_t>(c)]);
        }
        if (!(row_sums.cosine() >= head.worst_row_cosine)) {
          head.worst_row = row;
          head.worst_row_cosine = row_sums.cosine();
        }
        head_sums.add(row_sums);
        if (lse != nullptr) {
          const double error =
              lse_error(lse->data[lse->offset(b, h, row)], reference.lse[position]);
          if (!(error <= metrics.lse_max_abs)) metrics.lse_max_abs = error;
        }
        ++position;
      }
      head.rel_l2 = head_sums.rel_l2();
      head.cosine = head_sums.cosine();
      head.max_abs = head_sums.max_abs;
      metrics.heads.push_back(head);
      all.add(head_sums);
    }
  }
  metrics.rel_l2 = all.rel_l2();
  metrics.cosine = all.cosine();
  metrics.max_abs = all.max_abs;
  return metrics;
}

}  // namespace vcattn
