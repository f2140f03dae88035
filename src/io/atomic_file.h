// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace vcattn::io {

/// Bytes go to a temporary file beside `path`, which takes that name in `commit`. Without a commit
/// (an exception, say) the temporary file is removed and whatever stood at `path` is untouched.
class AtomicFile {
 public:
  /// @throws Error{kIo} if the folder cannot be written or `path` exists and is no regular file.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// @throws Error{kIo}, for example when the disk is full.
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

/// Fails now, as AtomicFile would, rather than after minutes of work. Leaves nothing behind.
void require_writable(const std::filesystem::path& path);

}  // namespace vcattn::io
