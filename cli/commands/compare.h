// `vcattn compare`: several recipes on the same inputs, against the float64 reference.
#pragma once

#include "cli/flags.h"

namespace vcattn::cli {

Command declare_compare(CLI::App& app, const std::vector<std::string>& command_line);

}  // namespace vcattn::cli
