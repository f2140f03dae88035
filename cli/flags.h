// Options that several commands share, and their translation into the library's types.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/failure.h"
#include "vcattn/options.h"
#include "vcattn/tensor.h"

namespace vcattn::cli {

/// A subcommand: declared before parsing, executed after.
struct Command {
  CLI::App* parser;
  std::function<ExitCode()> execute;
};

struct AttentionFlags {
  std::string backend = "auto";
  std::string layout;  ///< empty: the file's metadata decide
  std::optional<float> scale;
  bool causal = false;
  bool json = false;
};

void add_backend_flag(CLI::App& parser, std::string& backend);
CLI::Option* add_recipes_flag(CLI::App& parser, std::vector<std::string>& recipes);
void add_json_flag(CLI::App& parser, bool& json);
void add_reference_rows_flag(CLI::App& parser, std::int64_t& rows);
/// --backend, --layout, --scale, --causal and --json.
void add_attention_flags(CLI::App& parser, AttentionFlags& flags);

std::optional<Layout> layout_of(const std::string& name);

/// The recipe with its fields set by "field=value" assignments. Throws Failure{kUsage} with the
/// library's list of what is supported.
Options options_of(const std::string& recipe_name, const std::string& backend,
                   const std::vector<std::string>& assignments = {});

}  // namespace vcattn::cli
