#include "io/text.h"

#include <fmt/format.h>

#include <cstddef>

namespace vcattn::io {
namespace {

constexpr std::size_t kLongest = 120;

}  // namespace

std::string printable(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (line.size() >= kLongest) return line + "...";
    if (byte < 0x20 || byte == 0x7F) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace vcattn::io
