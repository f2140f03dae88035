#include "cli/report/html/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/report/html/text.h"

namespace vcattn::cli::html {
namespace {

// Room for labels around the marks.
constexpr double kLeft = 58.0, kRight = 12.0, kTop = 14.0, kTickRoom = 24.0, kTitleRoom = 20.0;
constexpr double kTextGap = 6.0;

}  // namespace

Plot::Plot(double width, double height, Axis x, Axis y, const std::string& description)
    : width_(width),
      height_(height),
      x_(std::move(x)),
      y_(std::move(y)),
      floor_(height - kTickRoom - (x_.title.empty() ? 0.0 : kTitleRoom)),
      description_(description) {}

double Plot::x_of(double value) const {
  return kLeft + x_extent(std::clamp(value, x_.low, x_.high) - x_.low);
}

double Plot::y_of(double value) const {
  const double clipped = std::clamp(value, y_.low, y_.high);
  return kTop + (floor_ - kTop) * (y_.high - clipped) / (y_.high - y_.low);
}

double Plot::x_extent(double span) const {
  return (width_ - kLeft - kRight) * span / (x_.high - x_.low);
}

std::string Plot::path_of(const std::vector<Point>& points) const {
  std::string path;
  for (const auto& [x, y] : points) {
    path += fmt::format("{}{:.2f} {:.2f}", path.empty() ? "M" : "L", x_of(x), y_of(y));
  }
  return path;
}

void Plot::bar(double x_low, double x_high, double height, const std::string& series,
               const std::string& tooltip) {
  marks_ +=
      fmt::format(R"(<rect class="fill {}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}">)"
                  "<title>{}</title></rect>",
                  series, x_of(x_low), y_of(height), x_extent(x_high - x_low),
                  y_of(y_.low) - y_of(height), escape(tooltip));
}

void Plot::line(const std::vector<Point>& points, const std::string& series) {
  marks_ += fmt::format(R"(<path class="line {}" d="{}"/>)", series, path_of(points));
}

void Plot::area(const std::vector<Point>& points, const std::string& series) {
  if (points.empty()) return;
  marks_ += fmt::format(R"(<path class="area {}" d="{}L{:.2f} {:.2f}L{:.2f} {:.2f}Z"/>)", series,
                        path_of(points), x_of(points.back().first), y_of(y_.low),
                        x_of(points.front().first), y_of(y_.low));
  line(points, series);
}

void Plot::level(double y) {
  marks_ += fmt::format(R"(<path class="level" d="M{:.2f} {:.2f}H{:.2f}"/>)", kLeft, y_of(y),
                        width_ - kRight);
}

void Plot::strip(double x_low, double x_high) {
  marks_ +=
      fmt::format(R"(<rect class="strip" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>)",
                  x_of(x_low), kTop, x_extent(x_high - x_low), floor_ - kTop);
}

void Plot::text(Point at, const std::string& label, const std::string& anchor) {
  marks_ += fmt::format(R"(<text class="value" x="{:.2f}" y="{:.2f}" text-anchor="{}">{}</text>)",
                        x_of(at.first), y_of(at.second) - kTextGap + 2.0, anchor, escape(label));
}

std::string Plot::axes() const {
  std::string svg;
  for (const Tick& tick : y_.ticks) {
    svg += fmt::format(R"(<path class="grid" d="M{:.2f} {:.2f}H{:.2f}"/>)", kLeft, y_of(tick.at),
                       width_ - kRight);
    svg += fmt::format(R"(<text class="tick" x="{:.2f}" y="{:.2f}" text-anchor="end">{}</text>)",
                       kLeft - kTextGap, y_of(tick.at) + 4.0, escape(tick.label));
  }
  for (const Tick& tick : x_.ticks) {
    svg += fmt::format(R"(<text class="tick" x="{:.2f}" y="{:.2f}" text-anchor="middle">{}</text>)",
                       x_of(tick.at), floor_ + 16.0, escape(tick.label));
  }
  svg += fmt::format(R"(<path class="axis" d="M{:.2f} {:.2f}H{:.2f}"/>)", kLeft, floor_,
                     width_ - kRight);
  svg += fmt::format(R"(<text class="title" x="{:.2f}" y="{:.2f}" text-anchor="middle">{}</text>)",
                     (kLeft + width_ - kRight) / 2.0, height_ - 8.0, escape(x_.title));
  const double middle = (kTop + floor_) / 2.0;
  svg += fmt::format(
      R"svg(<text class="title" transform="rotate(-90 14 {0:.2f})" x="14" y="{0:.2f}" )svg"
      R"(text-anchor="middle">{1}</text>)",
      middle, escape(y_.title));
  return svg;
}

std::string Plot::svg() const {
  return fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}{}</svg>)",
                     width_, height_, escape(description_), axes(), marks_);
}

}  // namespace vcattn::cli::html
