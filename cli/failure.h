// How a command ends.
#pragma once

#include <stdexcept>
#include <string>

#include "vcattn/error.h"

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

/// An error of the library with the right exit code; `source` is the file the tensors come from.
Failure failure_of(const Error& error, const std::string& source);

/// Calls f and turns the library's errors into Failures.
template <class F>
auto with_failures(const std::string& source, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw failure_of(error, source);
  }
}

/// "vcattn: <line>" on stderr.
void say(const std::string& line);

}  // namespace vcattn::cli
