#include "cli/failure.h"

#include <fmt/format.h>

#include <cstdio>

namespace vcattn::cli {

Failure failure_of(const Error& error, const std::string& source) {
  if (error.code() == ErrorCode::kUnsupported) return {ExitCode::kUnsupported, error.what()};
  if (error.code() == ErrorCode::kDevice || error.code() == ErrorCode::kOutOfMemory) {
    return {ExitCode::kRuntime, error.what()};
  }
  // Fields of the recipe and the scale come from the command line, everything else from the file.
  if (error.where().starts_with("recipe") || error.where() == "scale") {
    return {ExitCode::kUsage, error.what()};
  }
  return {ExitCode::kBadInput, fmt::format("{}: {}", source, error.what())};
}

void say(const std::string& line) { fmt::print(stderr, "vcattn: {}\n", line); }

}  // namespace vcattn::cli
