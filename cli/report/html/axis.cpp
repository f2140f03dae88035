#include "cli/report/html/axis.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "cli/report/html/text.h"

namespace vcattn::cli::html {
namespace {

constexpr double kMostSteps = 6.0;
constexpr std::size_t kMostCharacters = 64;  // of category names side by side

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that covers `range` in few steps.
double round_step(double range) {
  const double decade = std::pow(10.0, std::floor(std::log10(range / kMostSteps)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (range <= kMostSteps * factor * decade) return factor * decade;
  }
  return 10.0 * decade;
}

}  // namespace

Axis zero_based_axis(double highest, std::string title, double factor, const std::string& unit) {
  const double range = std::isfinite(highest) && highest > 0.0 ? highest : 1.0;
  const double step = round_step(range);
  const int steps = static_cast<int>(std::ceil(range / step - 1e-9));
  Axis axis{.low = 0.0, .high = steps * step, .ticks = {}, .title = std::move(title)};
  for (int i = 0; i <= steps; ++i) {
    axis.ticks.push_back({i * step, fmt::format("{:.4g}{}", i * step * factor, unit)});
  }
  return axis;
}

Axis decade_axis(double low, double high, std::string title) {
  Axis axis{.low = low, .high = high, .ticks = {}, .title = std::move(title)};
  const int first = static_cast<int>(std::ceil(low)), last = static_cast<int>(std::floor(high));
  for (int exponent = first; exponent <= last; ++exponent) {
    axis.ticks.push_back({static_cast<double>(exponent), power_of_ten(exponent)});
  }
  return axis;
}

Axis category_axis(const std::vector<std::string>& names, std::string title) {
  Axis axis{.low = 0.0,
            .high = static_cast<double>(names.size()),
            .ticks = {},
            .title = std::move(title)};
  std::size_t characters = 0;
  for (const std::string& name : names) characters += name.size() + 1;
  const std::size_t every = characters / kMostCharacters + 1;
  for (std::size_t i = 0; i < names.size(); i += every) {
    axis.ticks.push_back({static_cast<double>(i) + 0.5, names[i]});
  }
  return axis;
}

}  // namespace vcattn::cli::html
