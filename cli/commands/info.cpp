#include "cli/commands/info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/bench_cases.h"
#include "cli/measure/evaluation.h"
#include "cli/report/evaluation_json.h"
#include "cli/report/table.h"

namespace vcattn::cli {
namespace {

struct InfoFlags {
  std::string backend = "auto";
  bool json = false;
};

/// What a call of this shape would do. Planning reads no tensor, so two bytes stand for all.
Evaluation typical_plan(const BenchCase& call, const Options& options) {
  static std::uint16_t element = 0;
  const auto view = [&](std::int64_t heads, std::int64_t tokens) {
    return dense_view<const void>(&element, DType::kBF16, Layout::kBHSD,
                                  {1, heads, tokens, call.d});
  };
  Arguments arguments;
  arguments.q = view(call.hq, call.sq);
  arguments.k = arguments.v = view(call.hkv, call.skv);
  arguments.out = dense_view<void>(&element, DType::kBF16, Layout::kBHSD, arguments.q.shape);
  return describe(preview_call(std::string(call.name), arguments, options));
}

std::string field_text(const Recipe& recipe) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : fields(recipe)) parts.push_back(name + "=" + value);
  return fmt::format("{}", fmt::join(parts, " "));
}

void print_text(const Evaluation& typical, const BenchCase& call) {
  fmt::print("vcattn {}\n\nBackends\n", version());
  for (const BackendInfo& backend : backends()) {
    fmt::print("  {}: {} ({})\n", backend.name, backend.available ? "available" : "not available",
               backend.status);
    fmt::print("    kernels: {}\n", fmt::join(backend.kernels, ", "));
  }
  fmt::print("\nRecipes (change single fields with run --set field=value)\n");
  for (const std::string& name : recipe_names()) {
    fmt::print("  {:<10} {}\n             {}\n", name, recipe_summary(name),
               field_text(recipe(name)));
  }
  fmt::print("\n{} on {} (bfloat16, {})\n  kernel: {}\n", typical.recipe.name, call.what,
             to_string(typical.shape), typical.kernel);
  for (const std::string& line : typical.explanation) fmt::print("  {}\n", line);
}

void print_object(const Evaluation& typical) {
  nlohmann::ordered_json object = {{"version", version()}};
  object["backends"] = nlohmann::ordered_json::array();
  for (const BackendInfo& backend : backends()) {
    object["backends"].push_back({{"name", backend.name},
                                  {"available", backend.available},
                                  {"status", backend.status},
                                  {"kernels", backend.kernels}});
  }
  object["recipes"] = nlohmann::ordered_json::array();
  for (const std::string& name : recipe_names()) {
    nlohmann::ordered_json row = {{"name", name}, {"summary", recipe_summary(name)}};
    for (const auto& [field, value] : fields(recipe(name))) row["fields"][field] = value;
    object["recipes"].push_back(std::move(row));
  }
  object["typical"] = to_json(typical);
  object["typical"]["time_ms"] = nullptr;
  object["typical"]["explanation"] = typical.explanation;
  print_json(object);
}

ExitCode info(const InfoFlags& flags) {
  const BenchCase& call = kBenchCases.front();
  const Evaluation typical = typical_plan(call, options_of("vc8", flags.backend));
  if (flags.json) {
    print_object(typical);
  } else {
    print_text(typical, call);
  }
  return ExitCode::kOk;
}

}  // namespace

Command declare_info(CLI::App& app) {
  auto flags = std::make_shared<InfoFlags>();
  CLI::App* parser =
      app.add_subcommand("info", "backends, kernels, recipes, and what would run and why");
  add_backend_flag(*parser, flags->backend);
  add_json_flag(*parser, flags->json);
  return {parser, [flags] { return info(*flags); }};
}

}  // namespace vcattn::cli
