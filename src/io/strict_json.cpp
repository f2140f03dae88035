#include "io/strict_json.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/text.h"

namespace vcattn::io {
namespace {

using nlohmann::json;

/// Watches the parser's events; throwing out of it ends the parse at once.
class Watch {
 public:
  explicit Watch(std::size_t max_depth) : max_depth_(max_depth) {}

  void see(json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (names_.size() == max_depth_) {
          throw std::runtime_error(fmt::format("nests deeper than {} levels", max_depth_));
        }
        names_.emplace_back();
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        names_.pop_back();
        break;
      case json::parse_event_t::key: {
        const auto& name = parsed.get_ref<const std::string&>();
        if (!names_.back().insert(name).second) {
          throw std::runtime_error(fmt::format("has the name '{}' twice", printable(name)));
        }
        break;
      }
      case json::parse_event_t::value:
        break;
    }
  }

 private:
  std::size_t max_depth_;
  std::vector<std::set<std::string>> names_;  ///< one set per open object or array
};

}  // namespace

json parse_strict(std::string_view text, std::size_t max_depth) {
  Watch watch(max_depth);
  const auto callback = [&watch](int /*depth*/, json::parse_event_t event, json& parsed) {
    watch.see(event, parsed);
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), callback);
  } catch (const json::parse_error& error) {
    throw std::runtime_error(fmt::format("is not JSON (byte {})", error.byte));
  } catch (const json::exception&) {
    throw std::runtime_error("is not JSON (a number is out of range)");
  }
}

}  // namespace vcattn::io
