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

  // Empty when the access is allowed (and then a write is recorded), otherwise the reason.
  std::string check_read(const void* p, size_t bytes);
  std::string check_write(const void* p, size_t bytes);

  // Bytes of an output that the kernel has not written.
  size_t unwritten_bytes(const std::string& name) const;

 private:
  struct Range {
    std::string name;
    uintptr_t begin, end;
    bool writable;
    std::vector<bool> written;  // empty: all of it
  };
  void add(Range range);
  Range* find(const void* p, size_t bytes);
  std::string describe_outside(const void* p, size_t bytes) const;

  std::vector<Range> ranges_;
  size_t last_ = 0;
};

}  // namespace vcattn::emu
