#include "cli/failure.h"

#include <fmt/format.h>

#include <cstdio>

namespace vcattn::cli {

void say(const std::string& line) { fmt::print(stderr, "vcattn: {}\n", line); }

}  // namespace vcattn::cli
