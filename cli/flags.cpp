#include "cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "vcattn/error.h"

namespace vcattn::cli {
namespace {

void assign(Recipe& recipe, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    throw Failure(ExitCode::kUsage, fmt::format("--set takes field=value, not \"{}\"", assignment));
  }
  set_field(recipe, assignment.substr(0, equals), assignment.substr(equals + 1));
}

}  // namespace

void add_backend_flag(CLI::App& parser, std::string& backend) {
  parser.add_option("--backend", backend, "where to run: auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

CLI::Option* add_recipes_flag(CLI::App& parser, std::vector<std::string>& recipes) {
  return parser
      .add_option("--recipes", recipes,
                  fmt::format("comma-separated recipes, from {}", fmt::join(recipe_names(), ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
}

void add_json_flag(CLI::App& parser, bool& json) {
  parser.add_flag("--json", json, "one JSON object on stdout and nothing else there");
}

void add_reference_rows_flag(CLI::App& parser, std::int64_t& rows) {
  parser
      .add_option("--reference-rows", rows,
                  "query rows to compare, evenly spread (default: all that take half a minute)")
      ->check(CLI::PositiveNumber);
}

void add_attention_flags(CLI::App& parser, AttentionFlags& flags) {
  add_backend_flag(parser, flags.backend);
  parser
      .add_option("--layout", flags.layout,
                  "order of the axes in the file: BHSD or BSHD (default: its metadata, else BHSD)")
      ->check(CLI::IsMember({"BHSD", "BSHD"}));
  parser.add_option("--scale", flags.scale, "multiplies the scores (default: d^-0.5)");
  parser.add_flag("--causal", flags.causal, "query i sees keys up to i + Skv - Sq");
  add_json_flag(parser, flags.json);
}

std::optional<Layout> layout_of(const std::string& name) {
  if (name == "BHSD") return Layout::kBHSD;
  if (name == "BSHD") return Layout::kBSHD;
  return std::nullopt;
}

Options options_of(const std::string& recipe_name, const std::string& backend,
                   const std::vector<std::string>& assignments) {
  Options options;
  try {
    options.recipe = recipe(recipe_name);
    for (const std::string& assignment : assignments) assign(options.recipe, assignment);
  } catch (const Error& error) {
    throw Failure(ExitCode::kUsage, error.what());
  }
  if (backend == "cpu") options.backend = BackendChoice::kCpu;
  if (backend == "cuda") options.backend = BackendChoice::kCuda;
  return options;
}

}  // namespace vcattn::cli
