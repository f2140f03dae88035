// mma.sync: one warp, synchronous.
#include <array>
#include <cstring>

#include "machine.h"
#include "matrix_math.h"

namespace vcattn::emu {
namespace {

struct Operands {
  uint32_t c[4];
  uint32_t a[4];
  uint32_t b[2];
};

void compute(Element element, const std::array<void*, 32>& args) {
  uint8_t a[16 * 32], b[8 * 32];
  uint32_t c[16 * 8];
  for (size_t i = 0; i < 32; ++i) {
    const auto& lane = *static_cast<Operands*>(args[i]);
    const size_t g = i / 4, t = i % 4;
    for (size_t r = 0; r < 4; ++r) {
      std::memcpy(a + (g + r % 2 * 8) * 32 + r / 2 * 16 + 4 * t, &lane.a[r], 4);
      c[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = lane.c[r];
    }
    for (size_t r = 0; r < 2; ++r) std::memcpy(b + g * 32 + r * 16 + 4 * t, &lane.b[r], 4);
  }
  if (element == Element::kE4M3) {
    multiply_e4m3_as_f16(a, 16, b, 8, c);
  } else {
    multiply(element, element == Element::kS8 ? Accumulate::kS32 : Accumulate::kF32, a, 16, b, 8, c,
             true);
  }
  for (size_t i = 0; i < 32; ++i) {
    auto& lane = *static_cast<Operands*>(args[i]);
    for (size_t r = 0; r < 4; ++r) lane.c[r] = c[(i / 4 + r / 2 * 8) * 8 + 2 * (i % 4) + r % 2];
  }
}

}  // namespace

void mma_sync(Element element, void* c, const uint32_t* a, const uint32_t* b, Where where) {
  Operands mine{};
  std::memcpy(mine.c, c, sizeof(mine.c));
  std::memcpy(mine.a, a, sizeof(mine.a));
  std::memcpy(mine.b, b, sizeof(mine.b));
  machine().converge("mma.sync", static_cast<uint64_t>(element), where, &mine,
                     [&](Warp&, const std::array<void*, 32>& args) { compute(element, args); });
  std::memcpy(c, mine.c, sizeof(mine.c));
}

}  // namespace vcattn::emu
