// Random tensors made on the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vcattn::bench {

/// Fills `data` with `count` N(0, 1) bfloat16 values, the same for the same seed.
void fill_normal_bf16(void* data, std::size_t count, std::uint32_t seed);

}  // namespace vcattn::bench
