#include "cli/report/html/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report/html/charts.h"
#include "cli/report/html/style.h"
#include "cli/report/html/text.h"
#include "cli/report/table.h"

namespace vcattn::cli::html {
namespace {

std::string cell(const std::string& text) { return "<td>" + escape(text) + "</td>"; }

/// Error relative to the first recipe of the same precision: what a reader wants to know first.
std::string rival_text(const Comparison& c, std::size_t i) {
  const Evaluation& e = c.evaluations[i];
  for (std::size_t other = 0; other < i; ++other) {
    const Evaluation& rival = c.evaluations[other];
    if (precision_of(rival.recipe) != precision_of(e.recipe) || !rival.metrics) continue;
    if (!(rival.metrics->rel_l2 > 0.0)) continue;
    return fmt::format("{:.2f} × {}", e.metrics->rel_l2 / rival.metrics->rel_l2,
                       escape(rival.recipe.name));
  }
  return "";
}

std::string cards(const Comparison& c) {
  const std::vector<std::string> series = series_of(c.evaluations);
  std::string html;
  for (std::size_t i = 0; i < c.evaluations.size(); ++i) {
    const Evaluation& e = c.evaluations[i];
    if (!e.metrics) continue;
    const std::string rival = rival_text(c, i);
    html += fmt::format(
        "<div class=\"card {}\"><b>{}</b><span class=\"big\">{}</span>"
        "<span class=\"sub\">relative L2 error</span><span class=\"sub\">{}</span></div>",
        series[i], escape(e.recipe.name), number_text(e.metrics->rel_l2), rival);
  }
  return "<div class=\"cards\">" + html + "</div>";
}

std::string numbers(const Comparison& c) {
  std::string rows;
  for (const Evaluation& e : c.evaluations) {
    rows += fmt::format("<tr><td><b>{}</b><small>{}</small></td>", escape(e.recipe.name),
                        escape(recipe_summary(e.recipe.name)));
    if (e.metrics) {
      const Metrics& m = *e.metrics;
      rows += cell(number_text(m.rel_l2)) + cell(cosine_text(m.cosine)) +
              cell(number_text(m.max_abs)) + cell(head_text(m.worst_head())) +
              cell(row_text(worst_row(m))) + cell(number_text(m.lse_max_abs));
    } else {
      rows += "<td colspan=\"6\">nothing to compare</td>";
    }
    rows += cell(time_text(e.timing.median_ms)) + "</tr>";
  }
  return "<div class=\"scroll\"><table><thead><tr><th>recipe</th><th>rel. L2</th><th>cosine</th>"
         "<th>max abs</th><th>worst head<br>(rel. L2)</th><th>worst row<br>(cosine)</th>"
         "<th>LSE error<br>(max abs)</th><th>time</th></tr></thead><tbody>" +
         rows + "</tbody></table></div>";
}

std::string metadata_text(const io::Metadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", escape(key), escape(value));
  }
  return text;
}

std::string section(const Comparison& c) {
  const std::string notes = metadata_text(c.metadata);
  std::string html = fmt::format(
      "<section><h2>{}</h2><p class=\"sub\">{} (batch × query heads × queries × keys × d){}{}. {} "
      "of {} query rows held against attention in float64.</p>",
      escape(c.file), to_string(c.shape), notes.empty() ? "" : "; file notes: ", notes,
      c.reference_rows, c.shape.sq);
  if (!c.inputs_finite) html += "<p><b>The inputs hold NaN or infinity.</b></p>";
  html += cards(c) + numbers(c) + "<div class=\"figures\">";
  std::string errors = head_error_figure(c);
  if (!errors.empty()) {
    html += errors.replace(0, 7, "<figure class=\"wide\"");
  }
  html += error_distribution_figure(c) + value_energy_figure(c);
  return html + "</div></section>";
}

std::string summary(const std::vector<Comparison>& comparisons) {
  if (comparisons.size() < 2) return "";
  std::string rows;
  for (const RecipeSummary& s : summarize(comparisons)) {
    rows += "<tr>" + cell(s.recipe) + cell(number_text(s.mean_rel_l2)) +
            cell(number_text(s.worst_rel_l2)) + cell(cosine_text(s.worst_cosine)) +
            cell(time_text(s.total_ms)) + "</tr>";
  }
  return fmt::format(
      "<section><h2>All {} inputs</h2><div "
      "class=\"scroll\"><table><thead><tr><th>recipe</th><th>mean rel. L2</th>"
      "<th>worst rel. L2</th><th>worst cosine</th><th>total time</th></tr></thead><tbody>{}</tbody>"
      "</table></div></section>",
      comparisons.size(), rows);
}

/// The plans of the first input; those of the others differ in sizes only.
std::string explanations(const Comparison& c) {
  std::string html = "<section><h2>What ran, and why</h2><div class=\"figures\">";
  for (const Evaluation& e : c.evaluations) {
    std::string lines;
    for (const std::string& line : e.explanation) lines += "<li>" + escape(line) + "</li>";
    html += fmt::format("<div class=\"plan\"><h3>{} <span>on {}</span></h3><ul>{}</ul></div>",
                        escape(e.recipe.name), escape(e.kernel), lines);
  }
  return html + "</div></section>";
}

std::string provenance_section(const Provenance& p, const Timing& timing) {
  const std::string protocol =
      timing.protocol.repeats == 1
          ? "one call each, without warm-up; computing only, not reading or comparing"
          : fmt::format("median of {} calls after {} warm-up; computing only",
                        timing.protocol.repeats, timing.protocol.warmup);
  return fmt::format(
      "<section><h2>Where the numbers come from</h2><table class=\"plain\"><tbody>"
      "<tr><td>command</td><td><code>{}</code></td></tr><tr><td>date</td><td>{}</td></tr>"
      "<tr><td>machine</td><td>{}</td></tr><tr><td>vcattn</td><td>{}</td></tr>"
      "<tr><td>times</td><td>{}</td></tr></tbody></table></section>",
      escape(p.command), escape(p.date), escape(p.machine), escape(p.version), protocol);
}

bool uses_exp_cast(const Comparison& c) {
  return std::any_of(c.evaluations.begin(), c.evaluations.end(),
                     [](const Evaluation& e) { return e.recipe.p == PFormat::kExpCast; });
}

}  // namespace

std::string page(const std::vector<Comparison>& comparisons, const Provenance& source) {
  const Comparison& first = comparisons.front();
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>vcattn compare</title><style>";
  html += kStyle;
  html += fmt::format(
      "</style></head><body><main><header><h1>Low-bit attention against exact attention</h1>"
      "<p class=\"sub\">vcattn {} · {} · {}</p></header>",
      escape(source.version), escape(source.date), escape(source.machine));
  html += summary(comparisons);
  for (const Comparison& c : comparisons) html += section(c);
  if (uses_exp_cast(first)) {
    html += "<section><h2>ExpCast</h2>" + exp_cast_figure() + "</section>";
  }
  html += explanations(first);
  html += provenance_section(source, first.evaluations.front().timing);
  return html + "</main></body></html>\n";
}

}  // namespace vcattn::cli::html
