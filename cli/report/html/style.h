// The style sheet of the report.
#pragma once

#include <string_view>

namespace vcattn::cli::html {

/// Light and dark colours follow the reader's preference.
extern const std::string_view kStyle;

}  // namespace vcattn::cli::html
