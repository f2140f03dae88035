// `vcattn info`: what this build has, and what would run and why.
#pragma once

#include "cli/flags.h"

namespace vcattn::cli {

Command declare_info(CLI::App& app);

}  // namespace vcattn::cli
