#include "cli/commands/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "cli/io/input_file.h"
#include "cli/io/output_buffers.h"
#include "cli/progress.h"
#include "cli/report/comparison.h"
#include "cli/report/evaluation_json.h"
#include "cli/report/html/page.h"
#include "cli/report/provenance.h"
#include "cli/report/table.h"
#include "io/atomic_file.h"

namespace vcattn::cli {
namespace {

struct CompareFlags : AttentionFlags {
  std::vector<std::string> inputs;
  std::vector<std::string> recipes{"exact", "sage2", "vc8", "sage3", "vc4"};
  std::string html;
  std::int64_t reference_rows = 0;
  int repeats = 1;
};

/// The first of several timed runs pays for page faults and threads, so it is thrown away; a single
/// run is timed as it is.
Protocol protocol_of(const CompareFlags& flags) {
  return {.warmup = flags.repeats > 1 ? 1 : 0, .repeats = flags.repeats};
}

/// One file with all recipes: the reference is computed once, the outputs are reused.
class FileComparison {
 public:
  FileComparison(const CompareFlags& flags, const std::vector<Options>& options,
                 const std::string& file)
      : flags_(flags),
        input_(file, flags),
        buffers_(input_.arguments().q, input_.layout()),
        arguments_(buffers_.attach(input_.arguments())) {
    // All plans first: a recipe that cannot run is reported before minutes are spent on others.
    for (const Options& option : options) {
      calls_.push_back(stage_call(input_.name(), arguments_, option));
      result_.evaluations.push_back(describe(calls_.back().plan));
    }
    result_.file = input_.name();
    result_.metadata = input_.metadata();
    result_.shape = shape_of(arguments_);
    result_.inputs_finite = visible_inputs_finite(arguments_);
  }

  const std::vector<Evaluation>& planned() const { return result_.evaluations; }

  Comparison run() {
    const auto rows = reference_rows(result_.shape, flags_.reference_rows);
    result_.reference_rows = rows.empty() ? result_.shape.sq : std::ssize(rows);
    Reference reference;
    {
      ProgressLine progress(result_.file + ": float64 reference");
      reference = reference_attention(arguments_, rows, progress.callback());
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) evaluate(i, reference, rows);
    return std::move(result_);
  }

 private:
  void evaluate(std::size_t i, const Reference& reference, const std::vector<std::int64_t>& rows) {
    Evaluation& evaluation = result_.evaluations[i];
    buffers_.fill_with_nan();
    VSmoothState state;
    {
      ProgressLine progress(fmt::format("{}: {}", result_.file, evaluation.recipe.name));
      evaluation.timing = time_call(calls_[i], protocol_of(flags_), progress.callback(), &state);
    }
    calls_[i].call->fetch();
    evaluation.finite = result_.inputs_finite && output_finite(arguments_);
    evaluation.metrics = compare_with(reference, rows, arguments_);
    if (flags_.html.empty()) return;
    result_.histograms.push_back(error_histogram(arguments_, reference, rows));
    const bool clusters = evaluation.recipe.v_smooth == VSmooth::kClustered;
    if (clusters && result_.energy.empty() && state.grouping() != nullptr) {
      result_.energy = value_energy(arguments_, *state.grouping());
    }
  }

  const CompareFlags& flags_;
  InputFile input_;
  OutputBuffers buffers_;
  Arguments arguments_;
  std::vector<StagedCall> calls_;
  Comparison result_;
};

std::vector<std::string> table_row(const Evaluation& e) {
  if (!e.metrics)
    return {e.recipe.name, "-", "-", "-", "-", "-", "-", time_text(e.timing.median_ms)};
  const Metrics& m = *e.metrics;
  return {e.recipe.name,
          number_text(m.rel_l2),
          cosine_text(m.cosine),
          number_text(m.max_abs),
          head_text(m.worst_head()),
          row_text(worst_row(m)),
          number_text(m.lse_max_abs),
          time_text(e.timing.median_ms)};
}

void print_tables(const std::vector<Comparison>& comparisons) {
  for (const Comparison& c : comparisons) {
    fmt::print("{}  {}  ({} of {} query rows against float64)\n", c.file, to_string(c.shape),
               c.reference_rows, c.shape.sq);
    Table table({"recipe", "rel_l2", "cosine", "max_abs", "worst head (rel_l2)",
                 "worst row (cosine)", "LSE error", "time"});
    for (const Evaluation& e : c.evaluations) table.add(table_row(e));
    fmt::print("{}\n", table.text());
  }
  if (comparisons.size() < 2) return;
  fmt::print("all {} inputs\n", comparisons.size());
  Table table({"recipe", "mean rel_l2", "worst rel_l2", "worst cosine", "total time"});
  for (const RecipeSummary& s : summarize(comparisons)) {
    table.add({s.recipe, number_text(s.mean_rel_l2), number_text(s.worst_rel_l2),
               cosine_text(s.worst_cosine), time_text(s.total_ms)});
  }
  fmt::print("{}\n", table.text());
}

void print_results(const std::vector<Comparison>& comparisons, const Provenance& source) {
  auto object = to_json(source);
  object["results"] = nlohmann::ordered_json::array();
  for (const Comparison& c : comparisons) {
    for (const Evaluation& e : c.evaluations) {
      auto result = to_json(e);
      add_spread(result, e.timing);
      result["input"] = c.file;
      result["reference_rows"] = c.reference_rows;
      object["results"].push_back(std::move(result));
    }
  }
  print_json(object);
}

ExitCode verdict(const std::vector<Comparison>& comparisons) {
  ExitCode code = ExitCode::kOk;
  for (const Comparison& c : comparisons) {
    if (!c.inputs_finite) {
      say(fmt::format("warning: {}: NaN or infinity among the inputs", c.file));
      code = ExitCode::kBadInput;
      continue;
    }
    for (const Evaluation& e : c.evaluations) {
      if (e.finite) continue;
      say(fmt::format("warning: {}: the output of {} holds NaN or infinity, the inputs do not",
                      c.file, e.recipe.name));
      if (code == ExitCode::kOk) code = ExitCode::kRuntime;
    }
  }
  return code;
}

ExitCode compare(const CompareFlags& flags, const std::vector<std::string>& command_line) {
  std::vector<Options> options;
  for (const std::string& name : flags.recipes) options.push_back(options_of(name, flags.backend));
  if (!flags.html.empty()) io::require_writable(flags.html);
  std::vector<Comparison> comparisons;
  std::set<std::string> said;  // inputs of one kind need the same line only once
  for (const std::string& file : flags.inputs) {
    FileComparison comparison(flags, options, file);
    for (const std::string& line : announcements(comparison.planned())) {
      if (said.insert(line).second) say(line);
    }
    comparisons.push_back(comparison.run());
  }
  const Provenance source = provenance(command_line);
  if (!flags.html.empty()) {
    const std::string page = html::page(comparisons, source);
    io::AtomicFile file(flags.html);
    file.write(std::as_bytes(std::span(page)));
    file.commit();
  }
  if (flags.json) {
    print_results(comparisons, source);
  } else {
    print_tables(comparisons);
    if (!flags.html.empty()) fmt::print("report: {}\n", flags.html);
  }
  return verdict(comparisons);
}

}  // namespace

Command declare_compare(CLI::App& app, const std::vector<std::string>& command_line) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* parser =
      app.add_subcommand("compare", "hold several recipes against the float64 reference");
  parser->add_option("inputs", flags->inputs, "safetensors files with q, k, v")->required();
  add_recipes_flag(*parser, flags->recipes);
  parser->add_option("--html", flags->html, "write a self-contained page with pictures");
  add_attention_flags(*parser, *flags);
  add_reference_rows_flag(*parser, flags->reference_rows);
  parser
      ->add_option("--repeats", flags->repeats,
                   "timed runs per recipe, after one warm-up if there are several")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  return {parser, [flags, command_line] { return compare(*flags, command_line); }};
}

}  // namespace vcattn::cli
