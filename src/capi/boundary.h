// Where C++ exceptions end: every C entry runs inside `guarded`.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <vector>

#include "vcattn/c.h"
#include "vcattn/error.h"

namespace vcattn::capi {

/// What the calling thread was last told.
struct ThreadText {
  std::string error, where;
  std::vector<std::string> results;  ///< text handed out by the last call
};
inline ThreadText& thread_text() {
  thread_local ThreadText text;
  return text;
}

inline vcattn_status fail(vcattn_status status, std::string where, std::string message) noexcept {
  thread_text().where = std::move(where);
  thread_text().error = std::move(message);
  return status;
}

inline vcattn_status to_status(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return VCATTN_INVALID_ARGUMENT;
    case ErrorCode::kUnsupported:
      return VCATTN_UNSUPPORTED;
    case ErrorCode::kOutOfMemory:
      return VCATTN_OUT_OF_MEMORY;
    case ErrorCode::kIo:
      return VCATTN_IO;
    case ErrorCode::kDevice:
      return VCATTN_DEVICE;
  }
  return VCATTN_INTERNAL;
}

/// Runs `body` and turns what it throws into a status and this thread's message.
template <class Body>
vcattn_status guarded(Body&& body) noexcept {
  try {
    body();
    return VCATTN_OK;
  } catch (const Error& error) {
    return fail(to_status(error.code()), error.where(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(VCATTN_OUT_OF_MEMORY, "memory", "memory: an allocation on the host failed");
  } catch (const std::exception& error) {
    return fail(VCATTN_INTERNAL, "internal", std::string("internal: ") + error.what());
  } catch (...) {
    return fail(VCATTN_INTERNAL, "internal", "internal: an unknown exception");
  }
}

/// Throws unless the caller passed something.
template <class T>
T& required(T* pointer, const char* where) {
  if (pointer == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, where, "NULL was given");
  }
  return *pointer;
}

}  // namespace vcattn::capi
