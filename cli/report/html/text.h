// Text in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace vcattn::cli::html {

/// `text` with the five characters that mean something to HTML as entities.
std::string escape(std::string_view text);

/// "10", then the exponent as superscript digits: 10⁻³.
std::string power_of_ten(int exponent);

}  // namespace vcattn::cli::html
