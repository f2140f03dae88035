// `vcattn bench`: time on the shapes of video models, scaled to the machine.
#pragma once

#include "cli/flags.h"

namespace vcattn::cli {

Command declare_bench(CLI::App& app, const std::vector<std::string>& command_line);

}  // namespace vcattn::cli
