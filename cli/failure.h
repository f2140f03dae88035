// How a command ends.
#pragma once

#include <stdexcept>
#include <string>

namespace vcattn::cli {

/// Process exit codes; docs/cli.md and `vcattn --help` list them.
enum class ExitCode : int {
  kOk = 0,
  kRuntime = 1,        ///< out of memory, a device failure, an output that cannot be written
  kUsage = 2,          ///< unknown command, option, recipe or field, or a bad value
  kBadInput = 3,       ///< the input file is missing, lies, or holds what no call could accept
  kUnsupported = 4,    ///< a well-formed call that this build, device or recipe cannot run
  kBoundExceeded = 5,  ///< the result is worse than --max-rel-l2
};

/// Ends the command with one line on stderr.
class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// "vcattn: <line>" on stderr.
void say(const std::string& line);

}  // namespace vcattn::cli
