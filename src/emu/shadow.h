// The shadow of a block's shared memory: who wrote and read each byte, and when, so that an access
// that nothing orders against an earlier one is an error under every schedule, not only under the
// unlucky one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "clock.h"
#include "error.h"

namespace vcattn::emu {

class Machine;

// An instruction at a place in the kernel.
struct Site {
  const char* instruction;
  Where where;
  int thread;  // thread of the cluster that issued it
};

// One access to (some bytes of) a 16-byte chunk.
struct Access {
  uint32_t agent;
  uint32_t time;
  uint32_t site;
  uint16_t mask;  // bytes of the chunk
  bool generic;   // through the generic proxy: asynchronous accesses need a proxy fence after it
  bool atomic;
};

// Who is about to access: any of these knowledges ordering the earlier access is enough.
struct Observer {
  const Knowledge* const* known;
  int count;
  bool asynchronous;  // through the async proxy
  uint32_t agent;
  uint32_t time;
  uint32_t site;
  bool atomic = false;

  bool knows(const Access& a) const;
  bool knows_ignoring_proxy(const Access& a) const;
};

class Shadow {
 public:
  explicit Shadow(size_t bytes) : chunks_((bytes + 15) / 16), bytes_(bytes) {}

  size_t bytes() const { return bytes_; }

  // Checks and records. Each throws a Fault that names both accesses.
  void read(Machine& m, size_t offset, size_t bytes, const Observer& by);
  void write(Machine& m, size_t offset, size_t bytes, const Observer& by);

  // mbarrier objects: bytes that no other access may touch.
  void reserve(size_t offset, size_t bytes, bool reserved);

 private:
  struct Chunk {
    std::vector<Access> writers;
    std::vector<Access> readers;
    uint16_t reserved = 0;
  };

  void read_chunk(Machine& m, size_t chunk, uint16_t mask, const Observer& by);
  void write_chunk(Machine& m, size_t chunk, uint16_t mask, const Observer& by);

  std::vector<Chunk> chunks_;
  size_t bytes_;
};

}  // namespace vcattn::emu
