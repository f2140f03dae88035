// A read-only memory mapping of a whole file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace vcattn::io {

/// Pages are read when touched, so opening a file of many gigabytes costs nothing. The file must
/// not be truncated by somebody else while it is mapped: the kernel answers that with SIGBUS.
class MappedFile {
 public:
  /// @throws Error{kIo} if the path is not a readable regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace vcattn::io
