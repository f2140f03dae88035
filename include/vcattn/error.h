// Typed, located, actionable errors. Nothing in the library calls exit or prints.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace vcattn {

enum class ErrorCode {
  kInvalidArgument,  ///< the caller passed something no configuration could accept
  kUnsupported,      ///< well formed, but this build, device or recipe cannot do it
  kOutOfMemory,      ///< workspace or output could not be allocated
  kIo,               ///< a file could not be read or written, or lies about its contents
  kDevice,           ///< the device or its driver reported a failure
};

/// "invalid argument", "unsupported", ... as printed in messages.
std::string_view to_string(ErrorCode code) noexcept;

/// `what()` reads "<where>: <message>", for example
/// "k: head count 5 does not divide the 12 query heads (supported: a divisor of 12)".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string where, const std::string& message)
      : std::runtime_error(where + ": " + message), code_(code), where_(std::move(where)) {}

  ErrorCode code() const noexcept { return code_; }
  /// The argument, field or file the message is about.
  const std::string& where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  std::string where_;
};

}  // namespace vcattn
