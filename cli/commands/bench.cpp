#include "cli/commands/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "cli/bench_cases.h"
#include "cli/io/output_buffers.h"
#include "cli/io/synthetic.h"
#include "cli/measure/evaluation.h"
#include "cli/progress.h"
#include "cli/report/evaluation_json.h"
#include "cli/report/provenance.h"
#include "cli/report/table.h"

namespace vcattn::cli {
namespace {

/// Rows held against float64 in every case: enough to see a broken kernel.
constexpr std::int64_t kCheckedRows = 32;
constexpr std::int64_t kCpuHeads = 2;

struct BenchFlags {
  std::vector<std::string> recipes{"exact", "fp8", "sage2", "vc8", "sage3", "vc4"};
  std::vector<std::string> shapes;
  std::int64_t tokens = 2048;
  int repeats = 3;
  std::string backend = "auto";
  bool json = false;
};

struct BenchResult {
  BenchCase full;
  Evaluation evaluation;

  double tflops() const {
    return evaluation.shape.flops() / (evaluation.timing.median_ms * 1e-3) * 1e-12;
  }
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

/// All recipes on one case, which share its inputs and its reference.
std::vector<BenchResult> run_case(const BenchFlags& flags, const BenchCase& full,
                                  const std::vector<Options>& options) {
  const BenchCase size = scaled(full, {.tokens = flags.tokens, .heads = kCpuHeads});
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

void print_case(const std::vector<BenchResult>& results) {
  const BenchResult& first = results.front();
  const CallShape& shape = first.evaluation.shape;
  fmt::print("{}: {}\n{}  ({})\n", first.full.name, first.full.what, to_string(shape),
             scale_text(first.full, shape));
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

nlohmann::ordered_json result_json(const BenchResult& r) {
  auto object = to_json(r.evaluation);
  object["case"] = r.full.name;
  object["tflops"] = number_json(r.tflops());
  add_spread(object, r.evaluation.timing);
  object["full_shape"] = {{"b", 1},          {"hq", r.full.hq},   {"hkv", r.full.hkv},
                          {"sq", r.full.sq}, {"skv", r.full.skv}, {"d", r.full.d}};
  object["reference_rows"] = std::min(kCheckedRows, r.evaluation.shape.sq);
  return object;
}

ExitCode bench(const BenchFlags& flags, const std::vector<std::string>& command_line) {
  const std::vector<BenchCase> cases = cases_of(flags.shapes);
  std::vector<Options> options;
  for (const std::string& name : flags.recipes) options.push_back(options_of(name, flags.backend));

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
  add_recipes_flag(*parser, flags->recipes);
  parser
      ->add_option(
          "--shapes", flags->shapes,
          fmt::format("comma-separated cases (default: all), from {}", fmt::join(names, ", ")))
      ->delimiter(',')
      ->allow_extra_args(false);
  parser
      ->add_option("--tokens", flags->tokens,
                   "scales queries and keys of every case down to this many")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  parser
      ->add_option("--repeats", flags->repeats, "timed runs, after one warm-up; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_backend_flag(*parser, flags->backend);
  add_json_flag(*parser, flags->json);
  return {parser, [flags, command_line] { return bench(*flags, command_line); }};
}

}  // namespace vcattn::cli
