// Helpers shared by the instruction families.
#pragma once

#include "machine.h"

namespace vcattn::emu {

// The running thread's own access through the generic proxy, or, when asynchronous, the check an
// asynchronous unit makes on its behalf.
class ThreadObserver {
 public:
  ThreadObserver(const Thread& t, uint32_t site, bool asynchronous = false)
      : known_(&t.known), by_{&known_, 1, asynchronous, t.agent(), t.now(), site} {}
  ThreadObserver(const ThreadObserver&) = delete;
  ThreadObserver& operator=(const ThreadObserver&) = delete;

  // Valid while this object lives, which a full expression guarantees.
  Observer get() const {
    Observer by = by_;
    by.known = &known_;
    return by;
  }

 private:
  const Knowledge* known_;
  Observer by_;
};

// Checks a global access by the running thread: bounds, initialisation, other blocks' bytes; a
// write is recorded. The first also checks that the address is a multiple of the size.
void check_global(const char* instruction, const void* p, size_t bytes, bool write, Where where,
                  bool atomic = false);
void check_global_range(const char* instruction, const void* p, size_t bytes, bool write,
                        Where where, bool atomic = false);

// A remote access needs its block to be there.
void require_alive(const char* instruction, const Block& b, Where where);

// The mbarrier at `p` of block `b`, initialised and known to the running thread.
Mbarrier& find_mbarrier(const char* instruction, Block& b, size_t offset, Where where);
// Takes `bytes` off the transaction count, and completes the phase if that was the last.
void complete_tx(Machine& m, Mbarrier& bar, int64_t bytes);

}  // namespace vcattn::emu
