#include "cli/commands/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "cli/bench_cases.h"
#include "cli/io/output_buffers.h"
#include "cli/io/synthetic.h"
#include "cli/measure/evaluation.h"
#include "cli/measure/full_size.h"
#include "cli/progress.h"
#include "cli/report/evaluation_json.h"
#include "cli/report/provenance.h"
#include "cli/report/table.h"

namespace vcattn::cli {
namespace {

/// Rows held against float64 in every case: enough to see a broken kernel.
constexpr std::int64_t kCheckedRows = 32;
constexpr std::int64_t kCpuHeads = 2;

constexpr std::int64_t kCpuTokens = 2048;
const std::vector<std::string> kCpuRecipes{"exact", "fp8", "sage2", "vc8", "sage3", "vc4"};
const std::vector<std::string> kGpuRecipes{"vc8", "vc8-fast", "vc8-shaped"};

struct BenchFlags {
  std::vector<std::string> recipes;
  std::vector<std::string> shapes;
  std::int64_t tokens = 0;
  int repeats = 3;
  std::string backend = "auto";
  bool json = false;

  /// Full-size cases whose stages are timed, with inputs made on the device.
  bool on_gpu() const { return backend == "cuda"; }

  std::vector<std::string> chosen_recipes() const {
    if (!recipes.empty()) return recipes;
    return on_gpu() ? kGpuRecipes : kCpuRecipes;
  }

  BenchScale scale() const {
    if (on_gpu()) return {.tokens = tokens, .heads = 0};
    return {.tokens = tokens > 0 ? tokens : kCpuTokens, .heads = kCpuHeads};
  }
};

struct BenchResult {
  BenchCase full;
  Evaluation evaluation;
  std::optional<StageTimes> stages = std::nullopt;
  std::int64_t checked_rows = kCheckedRows;

  double tflops(double milliseconds) const {
    return evaluation.shape.flops() / (milliseconds * 1e-3) * 1e-12;
  }
  double tflops() const { return tflops(evaluation.timing.median_ms); }
};

std::vector<BenchCase> cases_of(const std::vector<std::string>& names) {
  if (names.empty()) return {kBenchCases.begin(), kBenchCases.end()};
  std::vector<BenchCase> cases;
  for (const std::string& name : names) {
    const auto* found = std::find_if(kBenchCases.begin(), kBenchCases.end(),
                                     [&](const BenchCase& row) { return row.name == name; });
    if (found == kBenchCases.end()) {
      std::vector<std::string_view> known;
      for (const BenchCase& row : kBenchCases) known.push_back(row.name);
      throw Failure(ExitCode::kUsage, fmt::format("--shapes: \"{}\" is not known (supported: {})",
                                                  name, fmt::join(known, ", ")));
    }
    cases.push_back(*found);
  }
  return cases;
}

std::vector<BenchResult> run_on_gpu(const BenchFlags& flags, const BenchCase& full,
                                    const std::vector<Options>& options) {
  FullSizeCase shared(scaled(full, flags.scale()), BackendChoice::kCuda);
  std::vector<BenchResult> results;
  for (const Options& option : options) {
    FullSizeResult result = shared.run(option, flags.repeats);
    results.push_back(
        {full, std::move(result.evaluation), result.stages, FullSizeCase::kCheckedRows});
  }
  return results;
}

/// All recipes on one case, which share its inputs and its reference.
std::vector<BenchResult> run_case(const BenchFlags& flags, const BenchCase& full,
                                  const std::vector<Options>& options) {
  if (flags.on_gpu()) return run_on_gpu(flags, full, options);
  const BenchCase size = scaled(full, flags.scale());
  const SyntheticInputs inputs(size.hq, size.hkv, size.sq, size.skv, size.d);
  OutputBuffers buffers(inputs.arguments().q, Layout::kBHSD);
  const Arguments arguments = buffers.attach(inputs.arguments());
  const auto rows = reference_rows(shape_of(arguments), kCheckedRows);
  const Reference reference = reference_attention(arguments, rows);

  std::vector<BenchResult> results;
  for (const Options& option : options) {
    buffers.fill_with_nan();
    const StagedCall staged = stage_call(std::string(full.name), arguments, option);
    Evaluation evaluation = describe(staged.plan);
    ProgressLine progress(fmt::format("{}: {}", full.name, evaluation.recipe.name));
    evaluation.timing =
        time_call(staged, {.warmup = 1, .repeats = flags.repeats}, progress.callback());
    staged.call->fetch();
    evaluation.finite = output_finite(arguments);
    evaluation.metrics = compare_with(reference, rows, arguments);
    results.push_back({full, std::move(evaluation)});
  }
  return results;
}

std::string scale_text(const BenchCase& full, const CallShape& s) {
  if (full.hq == s.hq && full.sq == s.sq) return "full size";
  return fmt::format("scaled from {} heads, {} queries, {} keys", full.hq, full.sq, full.skv);
}

/// TFLOP/s of a GPU: "1195".
std::string rate_text(double tflops) { return fmt::format("{:.0f}", tflops); }

/// "1.63 ms (1.7 %)" of the kernel's time.
std::string share_text(double milliseconds, const StageTimes& stages) {
  return fmt::format("{} ({:.1f} %)", time_text(milliseconds),
                     100.0 * milliseconds / stages.kernel.median_ms);
}

void print_stages(const std::vector<BenchResult>& results) {
  Table table({"recipe", "kernel", "attention", "TFLOP/s", "preparation", "grouping", "scheduled",
               "call", "TFLOP/s", "rel_l2"});
  for (const BenchResult& r : results) {
    const StageTimes& s = *r.stages;
    table.add({r.evaluation.recipe.name, r.evaluation.kernel, time_text(s.kernel.median_ms),
               rate_text(r.tflops(s.kernel.median_ms)), share_text(s.prepare.median_ms, s),
               share_text(s.grouping.median_ms, s), share_text(s.scheduled_grouping_ms, s),
               time_text(s.call.median_ms), rate_text(r.tflops()),
               number_text(r.evaluation.metrics->rel_l2)});
  }
  fmt::print("{}\n", table.text());
  std::fflush(stdout);
}

void print_case(const std::vector<BenchResult>& results) {
  const BenchResult& first = results.front();
  const CallShape& shape = first.evaluation.shape;
  fmt::print("{}: {}\n{}  ({})\n", first.full.name, first.full.what, to_string(shape),
             scale_text(first.full, shape));
  if (first.stages) {
    print_stages(results);
    return;
  }
  Table table({"recipe", "kernel", "median", "min", "max", "TFLOP/s", "rel_l2"});
  for (const BenchResult& r : results) {
    const Timing& t = r.evaluation.timing;
    const double rel_l2 = r.evaluation.metrics ? r.evaluation.metrics->rel_l2 : 0.0;
    table.add({r.evaluation.recipe.name, r.evaluation.kernel, time_text(t.median_ms),
               time_text(t.min_ms), time_text(t.max_ms), number_text(r.tflops()),
               number_text(rel_l2)});
  }
  fmt::print("{}\n", table.text());
  std::fflush(stdout);
}

nlohmann::ordered_json spread_json(const Spread& spread) {
  return {{"median_ms", spread.median_ms}, {"min_ms", spread.min_ms}, {"max_ms", spread.max_ms}};
}

nlohmann::ordered_json stages_json(const BenchResult& r) {
  const StageTimes& s = *r.stages;
  const double scheduled = s.call.median_ms + s.scheduled_grouping_ms;
  return {{"attention", spread_json(s.kernel)},
          {"attention_tflops", r.tflops(s.kernel.median_ms)},
          {"preparation", spread_json(s.prepare)},
          {"grouping", spread_json(s.grouping)},
          {"grouping_warm", spread_json(s.warm_grouping)},
          {"grouping_scheduled_ms", s.scheduled_grouping_ms},
          {"call_scheduled_ms", scheduled},
          {"call_scheduled_tflops", r.tflops(scheduled)},
          {"workspace_bytes", s.workspace_bytes},
          {"grouping_workspace_bytes", s.grouping_workspace_bytes}};
}

nlohmann::ordered_json result_json(const BenchResult& r) {
  auto object = to_json(r.evaluation);
  object["case"] = r.full.name;
  object["tflops"] = number_json(r.tflops());
  add_spread(object, r.evaluation.timing);
  object["full_shape"] = {{"b", 1},          {"hq", r.full.hq},   {"hkv", r.full.hkv},
                          {"sq", r.full.sq}, {"skv", r.full.skv}, {"d", r.full.d}};
  object["reference_rows"] = std::min(r.checked_rows, r.evaluation.shape.sq);
  if (r.stages) object["stages"] = stages_json(r);
  return object;
}

ExitCode bench(const BenchFlags& flags, const std::vector<std::string>& command_line) {
  const std::vector<BenchCase> cases = cases_of(flags.shapes);
  std::vector<Options> options;
  for (const std::string& name : flags.chosen_recipes()) {
    options.push_back(options_of(name, flags.backend));
  }

  std::vector<BenchResult> all;
  for (const BenchCase& full : cases) {
    const std::vector<BenchResult> results = run_case(flags, full, options);
    if (all.empty()) {
      std::vector<Evaluation> evaluations;
      for (const BenchResult& r : results) evaluations.push_back(r.evaluation);
      for (const std::string& line : announcements(evaluations)) say(line);
    }
    if (!flags.json) print_case(results);
    all.insert(all.end(), results.begin(), results.end());
  }
  if (flags.json) {
    auto object = to_json(provenance(command_line));
    object["results"] = nlohmann::ordered_json::array();
    for (const BenchResult& r : all) object["results"].push_back(result_json(r));
    print_json(object);
  }
  const bool finite =
      std::all_of(all.begin(), all.end(), [](const auto& r) { return r.evaluation.finite; });
  if (!finite) say("warning: some output holds NaN or infinity");
  return finite ? ExitCode::kOk : ExitCode::kRuntime;
}

}  // namespace

Command declare_bench(CLI::App& app, const std::vector<std::string>& command_line) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* parser = app.add_subcommand("bench", "time recipes on the shapes of video models");
  std::vector<std::string_view> names;
  for (const BenchCase& row : kBenchCases) names.push_back(row.name);
  add_recipes_flag(*parser, flags->recipes)
      ->default_str(fmt::format("{}; with --backend cuda {}", fmt::join(kCpuRecipes, ","),
                                fmt::join(kGpuRecipes, ",")));
  parser
      ->add_option(
          "--shapes", flags->shapes,
          fmt::format("comma-separated cases (default: all), from {}", fmt::join(names, ", ")))
      ->delimiter(',')
      ->allow_extra_args(false);
  parser
      ->add_option("--tokens", flags->tokens,
                   fmt::format("scales queries and keys of every case down to this many (default: "
                               "{}; with --backend cuda full size)",
                               kCpuTokens))
      ->check(CLI::Range(1, 1 << 24));
  parser
      ->add_option("--repeats", flags->repeats, "timed runs, after one warm-up; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_backend_flag(*parser, flags->backend);
  add_json_flag(*parser, flags->json);
  return {parser, [flags, command_line] { return bench(*flags, command_line); }};
}

}  // namespace vcattn::cli
