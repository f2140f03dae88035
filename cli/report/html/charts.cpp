#include "cli/report/html/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/report/html/plot.h"
#include "cli/report/html/text.h"
#include "cli/report/table.h"

namespace vcattn::cli::html {
namespace {

constexpr double kHalfWidth = 500.0;
constexpr double kHeight = 290.0;
constexpr double kLabelWidth = 38.0;  // a bar narrower than this has its value in the tooltip only
constexpr double kRareShare = 2e-3;   // bins with fewer elements than this end the axis

struct Bars {
  std::string name, series;
  std::vector<double> values;  ///< one per group
};

/// Bars side by side in groups.
void draw_groups(Plot& plot, const std::vector<std::string>& groups, const std::vector<Bars>& bars,
                 std::string (*label)(double)) {
  constexpr double kGroupWidth = 0.8;
  const double width = kGroupWidth / static_cast<double>(bars.size());
  const bool labelled = plot.x_extent(width) >= kLabelWidth;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < bars.size(); ++i) {
      const double left =
          static_cast<double>(g) + (1.0 - kGroupWidth) / 2.0 + width * static_cast<double>(i);
      const double value = bars[i].values[g];
      plot.bar(left + 0.04 * width, left + 0.96 * width, value, bars[i].series,
               fmt::format("{}, {}: {}", bars[i].name, groups[g], label(value)));
      if (labelled) plot.text({left + width / 2.0, value}, label(value));
    }
  }
}

std::string head_name(std::int64_t batch, std::int64_t head, bool several_entries) {
  return several_entries ? fmt::format("b{} h{}", batch, head) : fmt::format("head {}", head);
}

double highest(const std::vector<Bars>& bars) {
  double most = 0.0;
  for (const Bars& row : bars) {
    for (const double value : row.values) {
      if (std::isfinite(value)) most = std::max(most, value);
    }
  }
  return most;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100.0 * share); }

/// One panel of the error figure: the recipes of one precision.
std::string head_error_panel(const Comparison& c, Precision precision, const std::string& title) {
  const std::vector<std::string> series = series_of(c.evaluations);
  std::vector<Bars> bars;
  for (std::size_t i = 0; i < c.evaluations.size(); ++i) {
    const Evaluation& e = c.evaluations[i];
    if (!e.metrics || precision_of(e.recipe) != precision) continue;
    Bars row{e.recipe.name, series[i], {}};
    for (const HeadError& head : e.metrics->heads) row.values.push_back(head.rel_l2);
    row.values.push_back(e.metrics->rel_l2);
    bars.push_back(std::move(row));
  }
  if (bars.empty()) return "";
  std::vector<std::string> groups;
  for (const HeadError& head : c.evaluations.front().metrics->heads) {
    groups.push_back(head_name(head.batch, head.head, c.shape.b > 1));
  }
  groups.emplace_back("all");
  Plot plot(kHalfWidth, kHeight, category_axis(groups, ""),
            zero_based_axis(1.08 * highest(bars), "relative L2 error"),
            title + ": relative L2 error per head and recipe");
  draw_groups(plot, groups, bars, number_text);
  std::string heading = title;
  for (const Evaluation& e : c.evaluations) {
    if (!e.metrics || precision_of(e.recipe) != Precision::kFloat) continue;
    plot.level(e.metrics->rel_l2);
    heading += fmt::format(" <span>dashed: {}, {}</span>", escape(e.recipe.name),
                           number_text(e.metrics->rel_l2));
  }
  return fmt::format("<div class=\"panel\"><h4>{}</h4>{}</div>", heading, plot.svg());
}

}  // namespace

Precision precision_of(const Recipe& r) {
  if (r.qk == QkFormat::kNvfp4 || r.p == PFormat::kNvfp4 || r.v == VFormat::kNvfp4) {
    return Precision::k4Bit;
  }
  const bool all_float =
      r.qk == QkFormat::kFloat && r.p == PFormat::kFloat && r.v == VFormat::kFloat;
  return all_float ? Precision::kFloat : Precision::k8Bit;
}

std::vector<std::string> series_of(const std::vector<Evaluation>& evaluations) {
  constexpr int kColours = 8;
  std::vector<std::string> series;
  int next = 0;
  for (const Evaluation& e : evaluations) {
    const bool grey = precision_of(e.recipe) == Precision::kFloat;
    series.push_back(grey ? "neutral" : fmt::format("s{}", next++ % kColours));
  }
  return series;
}

std::string legend(const std::vector<Evaluation>& evaluations) {
  const std::vector<std::string> series = series_of(evaluations);
  std::string items;
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    items += fmt::format("<li><i class=\"{}\"></i>{}</li>", series[i],
                         escape(evaluations[i].recipe.name));
  }
  return "<ul class=\"legend\">" + items + "</ul>";
}

std::string figure(const std::string& title, const std::string& body, const std::string& caption) {
  return fmt::format("<figure><h3>{}</h3>{}<figcaption>{}</figcaption></figure>", title, body,
                     caption);
}

std::string head_error_figure(const Comparison& comparison) {
  const std::string panels = head_error_panel(comparison, Precision::k8Bit, "8 bit") +
                             head_error_panel(comparison, Precision::k4Bit, "4 bit");
  if (panels.empty()) return "";
  return figure("Error per head and recipe",
                legend(comparison.evaluations) + "<div class=\"panels\">" + panels + "</div>",
                "‖out − reference‖ / ‖reference‖ per query head against the float64 reference. The "
                "axes of the panels differ; the dashed line is float32 arithmetic, whose error is "
                "the rounding of the output to its own format.");
}

std::string error_distribution_figure(const Comparison& comparison) {
  int first = ErrorHistogram::kBins, last = -1;
  double most = 0.0;
  for (const ErrorHistogram& histogram : comparison.histograms) {
    for (int bin = 0; bin < ErrorHistogram::kBins; ++bin) {
      most = std::max(most, histogram.share[bin]);
      if (histogram.share[bin] < kRareShare) continue;
      first = std::min(first, bin);
      last = std::max(last, bin);
    }
  }
  if (last < first) return "";
  const double half = 0.5 / ErrorHistogram::kBinsPerDecade;
  Plot plot(kHalfWidth, kHeight,
            decade_axis(ErrorHistogram::center(first) - half, ErrorHistogram::center(last) + half,
                        "|out − reference| / rms(reference)"),
            zero_based_axis(1.05 * most, "share of elements", 100.0, " %"),
            "Distribution of the error of single elements per recipe");
  const std::vector<std::string> series = series_of(comparison.evaluations);
  for (std::size_t i = 0; i < comparison.histograms.size(); ++i) {
    std::vector<Point> points;
    for (int bin = first; bin <= last; ++bin) {
      points.emplace_back(ErrorHistogram::center(bin), comparison.histograms[i].share[bin]);
    }
    plot.area(points, series[i]);
  }
  return figure("Distribution of the error", legend(comparison.evaluations) + plot.svg(),
                "Errors of single output elements in bins of a tenth of a decade. A curve further "
                "left is more exact.");
}

std::string value_energy_figure(const Comparison& comparison) {
  if (comparison.energy.empty()) return "";
  std::vector<std::string> groups;
  std::vector<Bars> bars{{"sequence order", "neutral", {}}, {"after clustering", "s6", {}}};
  for (const HeadEnergy& head : comparison.energy) {
    groups.push_back(head_name(head.batch, head.head, comparison.shape.b > 1));
    bars[0].values.push_back(head.sequence);
    bars[1].values.push_back(head.clustered);
  }
  Plot plot(kHalfWidth, kHeight, category_axis(groups, ""),
            zero_based_axis(1.08 * highest(bars), "energy of V in the block means", 100.0, " %"),
            "Energy of V that block means take out, in sequence order and after clustering");
  draw_groups(plot, groups, bars, percent);
  const std::string names =
      "<ul class=\"legend\"><li><i class=\"neutral\"></i>sequence order</li>"
      "<li><i class=\"s6\"></i>after clustering</li></ul>";
  return figure("What V-Smooth removes", names + plot.svg(),
                "Share of ‖V‖² that the means of blocks of 128 keys hold, per KV head. What is "
                "removed before quantization cannot be quantized wrongly; it is restored exactly.");
}

}  // namespace vcattn::cli::html
