// setmaxnreg: registers move between warps through the block's pool.
#include <fmt/format.h>

#include "machine.h"

namespace vcattn::emu {

void set_max_registers(int count, bool increase, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  Warp& w = *t.warp;
  Block& b = *t.block;
  const char* name = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  const int start = w.registers;
  if (increase ? count < start : count > start) {
    m.fail(FaultKind::kInvalid, name, where,
           fmt::format("the warp has {} registers, {} was asked for", start, count));
  }
  const int amount = (count - start) * 32;
  // The lanes meet; the pool is taken from once, when it holds enough.
  m.converge(name, static_cast<uint64_t>(count), where, nullptr,
             [](Warp&, const std::array<void*, 32>&) {});
  m.wait_until({name, where, "for {} registers; {} per thread were there at the launch", amount,
                m.options().registers_per_thread, &b.free_registers},
               [&] { return w.registers == count || amount <= b.free_registers; });
  if (w.registers == count) return;
  w.registers = count;
  b.free_registers -= amount;
  m.wake_on(&b.free_registers);
}

}  // namespace vcattn::emu
