#include "cli/measure/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

#include "cli/failure.h"
#include "core/element.h"

namespace vcattn::cli {
namespace {

/// Multiply-adds of the float64 reference that take about half a minute on two cores.
constexpr double kReferenceBudget = 4e10;

double run_once(const StagedCall& staged, const Progress& progress, VSmoothState& state) {
  const auto start = std::chrono::steady_clock::now();
  staged.run(&state, progress);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

}  // namespace

double CallShape::flops() const {
  return 4.0 * static_cast<double>(b) * static_cast<double>(hq) * static_cast<double>(sq) *
         static_cast<double>(skv) * static_cast<double>(d);
}

CallShape shape_of(const Arguments& arguments) {
  return {.b = arguments.q.batch(),
          .hq = arguments.q.heads(),
          .hkv = arguments.k.heads(),
          .sq = arguments.q.tokens(),
          .skv = arguments.k.tokens(),
          .d = arguments.q.dim()};
}

std::string to_string(const CallShape& s) {
  const std::string heads =
      s.hq == s.hkv ? fmt::format("{}", s.hq) : fmt::format("{}({})", s.hq, s.hkv);
  return fmt::format("{} x {} x {} x {} x {}", s.b, heads, s.sq, s.skv, s.d);
}

Timing time_call(const StagedCall& staged, const Protocol& protocol, const Progress& progress,
                 VSmoothState* last_state) {
  std::vector<double> times;
  const int runs = protocol.warmup + protocol.repeats;
  for (int run = 0; run < runs; ++run) {
    VSmoothState state;
    const auto part = [&](double fraction) { progress((run + fraction) / runs); };
    const double time = run_once(staged, progress ? Progress(part) : Progress(), state);
    if (run >= protocol.warmup) times.push_back(time);
    if (last_state != nullptr) *last_state = state;
  }
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  const double median =
      times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2.0;
  return {
      .median_ms = median, .min_ms = times.front(), .max_ms = times.back(), .protocol = protocol};
}

std::vector<std::int64_t> reference_rows(const CallShape& shape, std::int64_t limit) {
  const double per_row = shape.flops() / 2.0 / std::max(1.0, static_cast<double>(shape.sq));
  std::int64_t count = limit;
  if (limit == 0) {
    count = static_cast<std::int64_t>(std::max(16.0, kReferenceBudget / std::max(1.0, per_row)));
  }
  if (count >= shape.sq) return {};
  std::vector<std::int64_t> rows;
  // From the first row to the last.
  for (std::int64_t i = 0; i < count; ++i) {
    rows.push_back(count == 1 ? 0 : i * (shape.sq - 1) / (count - 1));
  }
  return rows;
}

namespace {}  // namespace

StagedCall stage_call(const std::string& source, const Arguments& arguments,
                      const Options& options) {
  return with_failures(source, [&] { return stage(arguments, options); });
}

Plan preview_call(const std::string& source, const Arguments& arguments, const Options& options) {
  return with_failures(source, [&] { return preview(arguments, options); });
}

Evaluation describe(const Plan& plan) {
  return {.recipe = plan.recipe(),
          .backend = plan.backend(),
          .kernel = plan.kernel(),
          .shape = shape_of(plan.arguments()),
          .timing = {},
          .finite = true,
          .metrics = std::nullopt,
          .explanation = lines_of(plan.explain())};
}

std::optional<Metrics> compare_with(const Reference& reference,
                                    const std::vector<std::int64_t>& rows,
                                    const Arguments& arguments) {
  const TensorView out = as_const(arguments.out);
  if (out.empty()) return std::nullopt;
  return measure(out, arguments.lse ? &*arguments.lse : nullptr, reference, rows);
}

const HeadError& worst_row(const Metrics& metrics) {
  // NaN counts as the worst there is.
  const auto goodness = [](const HeadError& head) {
    return std::isnan(head.worst_row_cosine) ? -2.0 : head.worst_row_cosine;
  };
  return *std::min_element(
      metrics.heads.begin(), metrics.heads.end(),
      [&](const HeadError& a, const HeadError& b) { return goodness(a) < goodness(b); });
}

bool output_finite(const Arguments& arguments) {
  const TensorView out = as_const(arguments.out);
  for (std::int64_t b = 0; b < out.batch(); ++b) {
    for (std::int64_t h = 0; h < out.heads(); ++h) {
      for (std::int64_t s = 0; s < out.tokens(); ++s) {
        for (std::int64_t c = 0; c < out.dim(); ++c) {
          if (!std::isfinite(load_element(out, out.offset(b, h, s, c)))) return false;
        }
      }
    }
  }
  return true;
}

std::vector<std::string> announcements(const std::vector<Evaluation>& evaluations) {
  std::vector<std::pair<std::string, std::string>> kernels;  // kernel and reason, recipes
  for (const Evaluation& e : evaluations) {
    const std::string why = e.explanation.empty() ? "" : ": " + e.explanation.front();
    const std::string key = fmt::format(" on {}{}", e.kernel, why);
    const auto same = std::find_if(kernels.begin(), kernels.end(),
                                   [&](const auto& kernel) { return kernel.first == key; });
    if (same == kernels.end()) {
      kernels.emplace_back(key, e.recipe.name);
    } else {
      same->second += ", " + e.recipe.name;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [key, recipes] : kernels) lines.push_back(recipes + key);
  return lines;
}

}  // namespace vcattn::cli
