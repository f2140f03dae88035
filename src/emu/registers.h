// The state of one register that a wgmma may own (see ptx::Fragment).
#pragma once

#include <cstdint>

namespace vcattn::emu {

// What the running lane knows, for the checks that every register access makes.
struct LaneView {
  uint32_t fence_serial = 0;  // wgmma.fence executed so far
  uint32_t waited = 0;        // wgmma groups known to be finished
};
extern thread_local LaneView* current_lane;

struct RegisterState {
  enum Role : uint8_t { kFree, kAccumulator, kOperandA };

  uint32_t ticket = 0;   // wgmma group that owns the register; 0: none, or fenced since
  uint32_t touched = 0;  // fence_serial at the last ordinary access
  Role role = kFree;
  bool defined = false;  // has been written
  int shape = 0;         // shape of the wgmma that accumulates here

  void before_read(int index) {
    if (ticket != 0 || !defined) fail_access(index, "read");
    touched = current_lane->fence_serial;
  }
  void before_write(int index) {
    if (ticket != 0) fail_access(index, "written");
    touched = current_lane->fence_serial;
    defined = true;
  }
  void before_end_of_life(int index) noexcept {
    if (ticket > current_lane->waited) record_end_of_life(index);
  }
  // The register fence after a wait. Fencing a register that is still in flight is harmless on the
  // device (it does not wait), so the register stays owned and its next use reports it.
  void fence(int) {
    if (ticket <= current_lane->waited) {
      ticket = 0;
      role = kFree;
    }
  }

 private:
  void fail_access(int index, const char* what) const;
  void record_end_of_life(int index) const noexcept;
};

}  // namespace vcattn::emu
