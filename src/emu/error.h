// What the emulator reports: where in the kernel, which thread, which instruction, what and why.
#pragma once

#include <stdexcept>
#include <string>

namespace vcattn::emu {

// The kernel line that called an instruction.
struct Where {
  const char* file = "?";
  int line = 0;
  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

enum class FaultKind {
  kUninitialized,  // reads bytes nobody has written
  kInFlight,       // touches the destination of an unfinished asynchronous copy
  kRace,           // two accesses, one a write, that nothing orders
  kProxyFence,     // ordinary store and asynchronous access without fence.proxy.async
  kRegister,       // touches registers of an unfinished wgmma, or leaves out a register fence
  kWgmmaFence,     // wgmma after a register access without wgmma.fence
  kTransaction,    // bytes expected and bytes copied do not match
  kBarrier,        // misuse of a barrier
  kDivergence,     // a collective that not all lanes (warps) execute
  kDeadlock,       // nothing can run
  kBounds,         // out of bounds
  kAlignment,      // misaligned or badly sized
  kInvalid,        // an operand the instruction does not allow
  kExit,           // a thread or block ended with something unfinished
};

const char* name_of(FaultKind kind);

class Fault : public std::runtime_error {
 public:
  Fault(FaultKind what_kind, const std::string& message)
      : std::runtime_error(message), kind(what_kind) {}
  FaultKind kind;
};

}  // namespace vcattn::emu
