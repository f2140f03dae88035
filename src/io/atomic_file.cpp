#include "io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "io/text.h"
#include "vcattn/error.h"

namespace vcattn::io {
namespace {

/// Follows symbolic links, so that the rename replaces the file and not the link to it; renaming
/// over a device such as /dev/null would destroy it.
std::filesystem::path target_of(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) return path;
  if (!std::filesystem::is_regular_file(status)) {
    throw Error(ErrorCode::kIo, printable(path.string()), "exists and is not a regular file");
  }
  return std::filesystem::canonical(path);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(target_of(path)),
      temporary_(path_.string() + "." + std::to_string(::getpid()) + ".part") {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot be created");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  // Without the flush a power cut could leave the new name on empty blocks.
  if (::fsync(descriptor_) != 0) fail("cannot be written");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be created");
  ::close(descriptor_);
  descriptor_ = -1;
}

void AtomicFile::fail(const char* what) const {
  const std::string reason = std::strerror(errno);
  throw Error(ErrorCode::kIo, printable(path_.string()), std::string(what) + ": " + reason);
}

void require_writable(const std::filesystem::path& path) { const AtomicFile probe(path); }

}  // namespace vcattn::io
