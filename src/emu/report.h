// Words for faults.
#pragma once

#include <string>

namespace vcattn::emu {

// The last two components of a path.
std::string short_file(const char* file);

}  // namespace vcattn::emu
