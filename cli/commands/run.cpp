#include "cli/commands/run.h"

#include <fmt/format.h>

#include <memory>

#include "cli/io/input_file.h"
#include "cli/io/output_buffers.h"
#include "cli/measure/evaluation.h"
#include "cli/progress.h"
#include "cli/report/evaluation_json.h"
#include "cli/report/table.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"

namespace vcattn::cli {
namespace {

struct RunFlags : AttentionFlags {
  std::string input, output;
  std::string recipe = "vc8";
  std::vector<std::string> assignments;
  bool check = false;
  std::optional<double> max_rel_l2;
  std::int64_t reference_rows = 0;
};

void write_output(const RunFlags& flags, const InputFile& input, const OutputBuffers& buffers,
                  const Evaluation& evaluation) {
  const TensorView& q = input.arguments().q;
  std::vector<std::int64_t> shape(q.shape.begin(), q.shape.end());
  if (input.layout() == Layout::kBSHD) std::swap(shape[1], shape[2]);
  if (input.rank() == 3) shape.erase(shape.begin());
  const std::vector<std::int64_t> lse_shape(q.shape.begin(), q.shape.end() - 1);

  io::Metadata metadata = input.metadata();
  metadata["layout"] = input.layout() == Layout::kBSHD ? "BSHD" : "BHSD";
  metadata["recipe"] = evaluation.recipe.name;
  metadata["kernel"] = evaluation.kernel;
  metadata["vcattn"] = std::string(version());
  io::write_safetensors(flags.output,
                        {{"out", std::string(io::dtype_name(q.dtype)), shape, buffers.out_bytes()},
                         {"lse", "F32", lse_shape, std::as_bytes(std::span(buffers.lse()))}},
                        metadata);
}

void print_text(const RunFlags& flags, const Evaluation& e) {
  const auto line = [](const char* label, const std::string& text) {
    fmt::print("{:<12}{}\n", label, text);
  };
  line("recipe", e.recipe.name);
  line("kernel", e.kernel);
  line("shape", to_string(e.shape) + "  (batch x heads x queries x keys x d)");
  line("time", time_text(e.timing.median_ms));
  if (e.metrics) {
    const Metrics& m = *e.metrics;
    line("rel_l2", number_text(m.rel_l2));
    line("cosine", cosine_text(m.cosine));
    line("max_abs", number_text(m.max_abs));
    line("lse_max_abs", number_text(m.lse_max_abs));
    line("worst head", head_text(m.worst_head()));
    line("worst row", row_text(worst_row(m)));
  }
  line("written", flags.output.empty() ? "nothing (no -o)" : flags.output);
}

void print_result(const RunFlags& flags, const Evaluation& evaluation) {
  if (!flags.json) {
    print_text(flags, evaluation);
    return;
  }
  auto object = to_json(evaluation);
  object["input"] = flags.input;
  object["output"] = nullptr;
  if (!flags.output.empty()) object["output"] = flags.output;
  object["set"] = flags.assignments;
  object["explanation"] = evaluation.explanation;
  print_json(object);
}

void check(const RunFlags& flags, const Arguments& arguments, Evaluation& evaluation) {
  const auto rows = reference_rows(evaluation.shape, flags.reference_rows);
  if (!rows.empty()) say(fmt::format("checked on {} rows of {}", rows.size(), evaluation.shape.sq));
  ProgressLine progress("float64 reference");
  evaluation.metrics =
      compare_with(reference_attention(arguments, rows, progress.callback()), rows, arguments);
}

ExitCode verdict(const RunFlags& flags, const Evaluation& evaluation, bool inputs_finite) {
  if (!inputs_finite) {
    say(fmt::format("warning: {}: NaN or infinity among the inputs", flags.input));
    return ExitCode::kBadInput;
  }
  if (!evaluation.finite) {
    say("warning: the output holds NaN or infinity, the inputs do not");
    return ExitCode::kRuntime;
  }
  if (!flags.max_rel_l2 || !evaluation.metrics) return ExitCode::kOk;
  // Not "greater": a NaN is no better than the bound.
  if (evaluation.metrics->rel_l2 <= *flags.max_rel_l2) return ExitCode::kOk;
  say(fmt::format("rel_l2 {} exceeds the bound {}", number_text(evaluation.metrics->rel_l2),
                  *flags.max_rel_l2));
  return ExitCode::kBoundExceeded;
}

ExitCode run(const RunFlags& flags) {
  const Options options = options_of(flags.recipe, flags.backend, flags.assignments);
  const InputFile input(flags.input, flags);
  if (!flags.output.empty()) io::require_writable(flags.output);
  OutputBuffers buffers(input.arguments().q, input.layout());
  const Arguments arguments = buffers.attach(input.arguments());
  const StagedCall staged = stage_call(input.name(), arguments, options);
  Evaluation evaluation = describe(staged.plan);
  for (const std::string& line : announcements({evaluation})) say(line);
  {
    ProgressLine progress(evaluation.recipe.name);
    evaluation.timing = time_call(staged, {}, progress.callback());
  }
  staged.call->fetch();
  const bool inputs_finite = visible_inputs_finite(arguments);
  evaluation.finite = inputs_finite && output_finite(arguments);
  if (!flags.output.empty()) write_output(flags, input, buffers, evaluation);
  if (flags.check || flags.max_rel_l2) check(flags, arguments, evaluation);
  print_result(flags, evaluation);
  return verdict(flags, evaluation, inputs_finite);
}

}  // namespace

Command declare_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* parser = app.add_subcommand("run", "run attention on the q, k and v of a file");
  parser->add_option("input", flags->input, "safetensors file with q, k, v")->required();
  parser->add_option("-o,--output", flags->output, "safetensors file to write out and lse to");
  parser->add_option("--recipe", flags->recipe, "what to compute with; `vcattn info` lists them")
      ->capture_default_str();
  parser->add_option("--set", flags->assignments, "field=value: changes one field of the recipe")
      ->allow_extra_args(false);
  add_attention_flags(*parser, *flags);
  parser->add_flag("--check", flags->check, "compare with the float64 reference");
  parser->add_option("--max-rel-l2", flags->max_rel_l2,
                     "with --check (implied): exit 5 if rel_l2 is larger");
  add_reference_rows_flag(*parser, flags->reference_rows);
  return {parser, [flags] { return run(*flags); }};
}

}  // namespace vcattn::cli
