#include "registers.h"

#include <fmt/format.h>

#include "machine.h"

namespace vcattn::emu {

void RegisterState::fail_access(int index, const char* what) const {
  Machine& m = machine();
  const Thread& t = m.thread();
  if (ticket == 0) {
    m.fail(FaultKind::kUninitialized, "register", t.last,
           fmt::format("register {} of a fragment is {} before anything has been put there", index,
                       what));
  }
  const char* owner = role == kAccumulator ? "accumulates into" : "reads";
  if (ticket > t.waited) {
    m.fail(FaultKind::kRegister, "register", t.last,
           fmt::format("register {} of a fragment is {} while wgmma group {} still {} it (group {} "
                       "is the last "
                       "one waited for); the line is that of the last collective before it",
                       index, what, ticket, owner, t.waited));
  }
  m.fail(
      FaultKind::kRegister, "register", t.last,
      fmt::format(
          "register {} of a fragment is {} after wgmma group {}, which {} it, was waited for, but "
          "without a register_fence: name the fragment in wgmma_wait",
          index, what, ticket, owner));
}

void RegisterState::record_end_of_life(int index) const noexcept {
  Machine& m = machine();
  if (m.unwinding()) return;
  const Thread& t = m.thread();
  m.record_fault(
      {FaultKind::kRegister,
       fmt::format(
           "{}: register {} of a fragment goes out of scope after {}:{} in {} while wgmma group "
           "{} still uses it",
           name_of(FaultKind::kRegister), index, t.last.file, t.last.line, m.describe_thread(t),
           ticket)});
}

}  // namespace vcattn::emu
