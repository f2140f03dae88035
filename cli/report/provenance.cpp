#include "cli/report/provenance.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "vcattn/plan.h"

namespace vcattn::cli {
namespace {

std::string processor() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string system_name() {
  utsname names{};
  if (::uname(&names) != 0) return "unknown system";
  return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

/// With quotes where a shell would need them.
std::string shell_word(const std::string& word) {
  const std::string plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

Provenance provenance(const std::vector<std::string>& command_line) {
  std::vector<std::string> words;
  for (const std::string& word : command_line) words.push_back(shell_word(word));
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {.version = std::string(vcattn::version()),
          .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now)),
          .machine = fmt::format("{}, {} threads, {}", processor(),
                                 std::thread::hardware_concurrency(), system_name()),
          .command = fmt::format("{}", fmt::join(words, " "))};
}

nlohmann::ordered_json to_json(const Provenance& p) {
  return {{"version", p.version}, {"date", p.date}, {"machine", p.machine}, {"command", p.command}};
}

}  // namespace vcattn::cli
