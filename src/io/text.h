// Names from files as they may appear in a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace vcattn::io {

/// `text` with control characters as \xNN, so that a hostile name can neither break a line nor
/// drive a terminal, and cut after 120 bytes.
std::string printable(std::string_view text);

}  // namespace vcattn::io
