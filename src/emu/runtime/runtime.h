// The emulated device of cuda_runtime.h.
#pragma once

#include <cstdint>

#include "emu/global_memory.h"

namespace vcattn::emu {

struct Device {
  GlobalMemory memory;  // what has been allocated
  uint64_t seed = 1;    // of the next launch; VCATTN_EMU_SEED starts it elsewhere
};

Device& device();

}  // namespace vcattn::emu
