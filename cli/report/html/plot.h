// A plot as inline SVG: axes, and marks in data coordinates.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/report/html/axis.h"

namespace vcattn::cli::html {

/// x and y in data coordinates.
using Point = std::pair<double, double>;

/// Colours come from the page's style sheet through class names, so that they follow the reader's
/// light or dark scheme. `series` classes are "s0" to "s7" and "neutral".
class Plot {
 public:
  /// `description` is read out by screen readers.
  Plot(double width, double height, Axis x, Axis y, const std::string& description);

  void bar(double x_low, double x_high, double height, const std::string& series,
           const std::string& tooltip);
  void line(const std::vector<Point>& points, const std::string& series);
  /// A line with its area down to the axis shaded.
  void area(const std::vector<Point>& points, const std::string& series);
  /// A dashed line across.
  void level(double y);
  /// A shaded strip over all of the height.
  void strip(double x_low, double x_high);
  void text(Point at, const std::string& label, const std::string& anchor = "middle");

  /// Width of `span` units of the x axis in SVG units.
  double x_extent(double span) const;

  std::string svg() const;

 private:
  double x_of(double value) const;
  double y_of(double value) const;
  std::string path_of(const std::vector<Point>& points) const;
  std::string axes() const;

  double width_, height_;
  Axis x_, y_;
  double floor_;  ///< SVG y of the x axis
  std::string description_, marks_;
};

}  // namespace vcattn::cli::html
