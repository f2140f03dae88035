// A case of the cross-check: one small kernel around one instruction, which runs on the GPU and
// under the emulator from the same source, on the same inputs, and writes what its registers hold.
#pragma once

#include "cuda/ptx/ptx.cuh"

namespace vcattn::crosscheck {

// What the bytes of an input are, so that inputs can be made (inputs.h).
enum class Data { kBits, kS8, kE4M3, kF16, kBF16, kTF32, kF32, kS32, kHalfPairs };

struct Input {
  Data data;
  int bytes;
};

// Every case has `static constexpr Input kInputs[3]`, `kOutputWords`, `kRelative` (0: equal bits;
// otherwise the largest relative difference of its float results), and takes these parameters.
struct Params {
  const uint8_t* in[3];
  uint32_t* out;
};

// The three inputs and one block of 128 threads unless a case says otherwise.
struct OneBlock {
  static constexpr int kThreads = 128;
  static constexpr int kBlocksPerSm = 1;
  using Params = crosscheck::Params;
};

VC_DEVICE uint32_t word(const uint8_t* in, int index) {
  return ptx::load_global<uint32_t>(in + 4 * static_cast<size_t>(index));
}

VC_DEVICE void put(uint32_t* out, int index, uint32_t value) {
  ptx::store_global(out + index, value);
}

}  // namespace vcattn::crosscheck
