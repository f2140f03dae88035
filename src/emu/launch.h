// Running a kernel under the emulator.
//
//   emu::GlobalMemory memory;
//   memory.add_input("q", q); memory.add_output("o", o);
//   emu::launch<Kernel>({.grid = {4, 1, 1}, .seed = 7, .memory = &memory}, params);
//
// Throws a Fault at the first error. The same seed replays the same run.
#pragma once

#include "global_memory.h"
#include "machine.h"

namespace vcattn::emu {

template <class Kernel>
constexpr int cluster_size_of() {
  if constexpr (requires { Kernel::kClusterSize; }) {
    return Kernel::kClusterSize;
  } else {
    return 1;
  }
}

template <class Kernel>
void launch(const Options& options, const typename Kernel::Params& params) {
  using Storage = typename Kernel::SharedStorage;
  static_assert(std::is_trivially_default_constructible_v<Storage> && alignof(Storage) <= 1024);
  Machine machine(options, {Kernel::kThreads, cluster_size_of<Kernel>(), sizeof(Storage)},
                  [&params](void* shared) { Kernel::run(params, *static_cast<Storage*>(shared)); });
  machine.run_grid();
}

}  // namespace vcattn::emu
