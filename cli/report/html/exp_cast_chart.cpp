// Probability bytes of ExpCast beside those of an exact exponential over one octave of scores.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "cli/report/html/charts.h"
#include "cli/report/html/plot.h"
#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/exp_cast.h"

namespace vcattn::cli::html {
namespace {

constexpr int kSamples = 4096;
constexpr double kWidth = 500.0, kHeight = 290.0;

struct Sample {
  double octaves;  ///< score minus the row's maximum, in [-1, 0)
  int cast, exact;
  double cast_ratio, exact_ratio;  ///< decoded value over the true exponential
};

std::vector<Sample> samples() {
  const float bias = numerics::exp_cast_bias(numerics::kExpCastPaper, 0.0F);
  std::vector<Sample> result;
  for (int i = 0; i < kSamples; ++i) {
    const float octaves = -1.0F + (static_cast<float>(i) + 0.5F) / kSamples;
    const std::uint8_t cast = numerics::exp_cast_code(octaves * numerics::kCodesPerOctave, bias);
    const std::uint8_t exact = numerics::exp_exact_code(octaves);
    const double truth = std::exp2(octaves + numerics::kExpExactReferenceOctaves);
    result.push_back({octaves, cast, exact, numerics::e4m3_decode(cast) / truth,
                      numerics::e4m3_decode(exact) / truth});
  }
  return result;
}

Axis octave_axis() {
  Axis axis{.low = -1.0, .high = 0.0, .ticks = {}, .title = "score below the maximum, in octaves"};
  for (const double at : {-1.0, -0.75, -0.5, -0.25, 0.0}) {
    axis.ticks.push_back({at, fmt::format("{:g}", at)});
  }
  return axis;
}

std::vector<Point> curve(const std::vector<Sample>& all, double (*value)(const Sample&)) {
  std::vector<Point> points;
  for (const Sample& sample : all) points.emplace_back(sample.octaves, value(sample));
  return points;
}

/// Shades where the two bytes differ.
void mark_differences(Plot& plot, const std::vector<Sample>& all) {
  const double half = 0.5 / kSamples;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].cast == all[i].exact) continue;
    std::size_t last = i;
    while (last + 1 < all.size() && all[last + 1].cast != all[last + 1].exact) ++last;
    plot.strip(all[i].octaves - half, all[last].octaves + half);
    i = last;
  }
}

std::string byte_plot(const std::vector<Sample>& all) {
  Axis bytes{.low = 111.0, .high = 121.0, .ticks = {}, .title = "E4M3 byte"};
  for (int code = 112; code <= 120; code += 2) {
    bytes.ticks.push_back({static_cast<double>(code), fmt::format("{}", code)});
  }
  Plot plot(kWidth, kHeight, octave_axis(), bytes, "E4M3 byte of a probability over one octave");
  mark_differences(plot, all);
  plot.line(curve(all, [](const Sample& s) { return static_cast<double>(s.exact); }), "neutral");
  plot.line(curve(all, [](const Sample& s) { return static_cast<double>(s.cast); }), "s0");
  return plot.svg();
}

std::string ratio_plot(const std::vector<Sample>& all) {
  Axis ratios{.low = 0.92, .high = 1.08, .ticks = {}, .title = "decoded / exact exponential"};
  for (const double at : {0.92, 0.96, 1.0, 1.04, 1.08}) {
    ratios.ticks.push_back({at, fmt::format("{:.2f}", at)});
  }
  Plot plot(kWidth, kHeight, octave_axis(), ratios, "Decoded probability over the exact one");
  plot.line(curve(all, [](const Sample& s) { return s.exact_ratio; }), "neutral");
  plot.line(curve(all, [](const Sample& s) { return s.cast_ratio; }), "s0");
  return plot.svg();
}

}  // namespace

std::string exp_cast_figure() {
  const std::vector<Sample> all = samples();
  int same = 0, furthest = 0;
  double low = 1.0, high = 1.0;
  for (const Sample& sample : all) {
    same += sample.cast == sample.exact ? 1 : 0;
    furthest = std::max(furthest, std::abs(sample.cast - sample.exact));
    low = std::min(low, sample.cast_ratio);
    high = std::max(high, sample.cast_ratio);
  }
  const std::string names =
      "<ul class=\"legend\"><li><i class=\"s0\"></i>ExpCast: one multiply-add</li>"
      "<li><i class=\"neutral\"></i>exponential, then round to E4M3</li>"
      "<li><i class=\"strip\"></i>bytes differ</li></ul>";
  return figure(
      "Probability bytes of ExpCast",
      fmt::format("{}<div class=\"panels\"><div class=\"panel\"><h4>Byte</h4>{}</div>"
                  "<div class=\"panel\"><h4>Decoded value</h4>{}</div></div>",
                  names, byte_plot(all), ratio_plot(all)),
      fmt::format("The paper's form (maximum at byte 120, offset −0.35). {:.1f} % of the octave "
                  "get the same byte, the rest differ by {}; decoded values lie within {:.3f} and "
                  "{:.4f} of the exponential. Other octaves repeat this one.",
                  100.0 * same / kSamples, furthest, low, high));
}

}  // namespace vcattn::cli::html
