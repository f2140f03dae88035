// JSON from files nobody vouches for.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace vcattn::io {

/// Parses `text`; refuses what nlohmann::json lets pass: a name twice in one object (it would keep
/// the last), and nesting deeper than `max_depth`.
///
/// @throws std::runtime_error with one line on what is wrong.
nlohmann::json parse_strict(std::string_view text, std::size_t max_depth);

}  // namespace vcattn::io
