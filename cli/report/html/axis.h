// Axes: a range, where it is marked, and what stands beside it.
#pragma once

#include <string>
#include <vector>

namespace vcattn::cli::html {

struct Tick {
  double at;
  std::string label;
};

struct Axis {
  double low = 0.0, high = 1.0;
  std::vector<Tick> ticks;
  std::string title;
};

/// From 0 to a round number at or above `highest`, marked at round steps. Labels are value * factor
/// with `unit` behind.
Axis zero_based_axis(double highest, std::string title, double factor = 1.0,
                     const std::string& unit = "");

/// Base-10 logarithms from `low` to `high`, marked at powers of ten.
Axis decade_axis(double low, double high, std::string title);

/// One mark in the middle of each unit interval; with many names only every n-th is shown.
Axis category_axis(const std::vector<std::string>& names, std::string title);

}  // namespace vcattn::cli::html
