// Where numbers come from: when, on what, by which command.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vcattn::cli {

struct Provenance {
  std::string version;  ///< of vcattn
  std::string date;     ///< UTC, ISO 8601
  std::string machine;  ///< processor, threads and system
  std::string command;  ///< as it was typed
};

Provenance provenance(const std::vector<std::string>& command_line);

nlohmann::ordered_json to_json(const Provenance& provenance);

}  // namespace vcattn::cli
