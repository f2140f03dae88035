// The global memory a launch may touch: named ranges of host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "error.h"

namespace vcattn::emu {

class GlobalMemory {
 public:
  // Readable and written before the launch.
  void add_input(const std::string& name, const void* data, size_t bytes);
  // Writable; reading a byte that the kernel has not written is an error.
  void add_output(const std::string& name, void* data, size_t bytes);
  // Writable and written before the launch.
  void add_inout(const std::string& name, void* data, size_t bytes);

  template <class Container>
  void add_input(const std::string& name, const Container& c) {
    add_input(name, c.data(), c.size() * sizeof(*c.data()));
  }
  template <class Container>
  void add_output(const std::string& name, Container& c) {
    add_output(name, c.data(), c.size() * sizeof(*c.data()));
  }
  template <class Container>
  void add_inout(const std::string& name, Container& c) {
    add_inout(name, c.data(), c.size() * sizeof(*c.data()));
  }

  // Forgets the range that begins at `data`.
  void remove(const void* data);

  // Who accesses: a block of the running grid (its number), or nobody in particular.
  static constexpr uint32_t kHost = 0xFFFFF;
  static constexpr uint32_t kAtomic = 0xFFFFE;  // any block, indivisibly

  // Bytes that one block of a grid has written may not be touched by another: nothing orders them.
  void begin_grid() { grid_ = (grid_ + 1) % 4096; }

  // Empty when the access is allowed (and then a write is recorded), otherwise the reason.
  std::string check_read(const void* p, size_t bytes, uint32_t by = kHost);
  std::string check_write(const void* p, size_t bytes, uint32_t by = kHost);

  // Bytes of an output that the kernel has not written.
  size_t unwritten_bytes(const std::string& name) const;

 private:
  struct Range {
    std::string name;
    uintptr_t begin, end;
    bool writable;
    std::vector<bool> written;       // empty: all of it
    std::vector<uint32_t> writer{};  // of each byte: grid << 20 | block; empty: no byte so far
  };
  std::string check_owner(const Range& r, size_t offset, size_t bytes, uint32_t by) const;
  void add(Range range);
  Range* find(const void* p, size_t bytes);
  std::string describe_outside(const void* p, size_t bytes) const;

  std::vector<Range> ranges_;
  size_t last_ = 0;
  uint32_t grid_ = 0;
};

}  // namespace vcattn::emu
