// `vcattn run`: one recipe on one file, results to another.
#pragma once

#include "cli/flags.h"

namespace vcattn::cli {

Command declare_run(CLI::App& app);

}  // namespace vcattn::cli
