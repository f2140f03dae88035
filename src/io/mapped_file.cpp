#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "io/text.h"
#include "vcattn/error.h"

namespace vcattn::io {
namespace {

/// Closes the descriptor at the end of the scope; the mapping outlives it.
struct Descriptor {
  int value;
  ~Descriptor() { ::close(value); }
};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& message) {
  throw Error(ErrorCode::kIo, printable(path.string()), message);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: a FIFO is refused below instead of blocking here until somebody writes to it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(path, std::string("cannot be opened: ") + std::strerror(errno));
  const Descriptor closer{descriptor};

  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(path, std::string("stat: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;

  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) fail(path, std::string("cannot be mapped: ") + std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace vcattn::io
