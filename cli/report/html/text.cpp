#include "cli/report/html/text.h"

#include <array>
#include <cstdlib>

namespace vcattn::cli::html {

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string power_of_ten(int exponent) {
  static constexpr std::array<const char*, 10> kDigits{"⁰", "¹", "²", "³", "⁴",
                                                       "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string superscript;
  for (const char c : std::to_string(std::abs(exponent))) superscript += kDigits[c - '0'];
  return std::string("10") + (exponent < 0 ? "⁻" : "") + superscript;
}

}  // namespace vcattn::cli::html
