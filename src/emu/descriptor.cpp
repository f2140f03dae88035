#include "descriptor.h"

namespace vcattn::emu {

OperandLayout::OperandLayout(uint64_t d)
    : start_(static_cast<uint32_t>(d & 0x3FFF) << 4),
      leading_(static_cast<uint32_t>(d >> 16 & 0x3FFF) << 4),
      stride_(static_cast<uint32_t>(d >> 32 & 0x3FFF) << 4),
      swizzle_(static_cast<int>(d >> 62)) {}

// The bits that select the row within a swizzle atom are added, modulo 2, to those that select its
// 16-byte chunk.
uint32_t OperandLayout::swizzled(uint32_t a) const {
  switch (swizzle_) {
    case 1:
      return a ^ (a >> 7 & 7) << 4;
    case 2:
      return a ^ (a >> 7 & 3) << 4;
    case 3:
      return a ^ (a >> 7 & 1) << 4;
    default:
      return a;
  }
}

uint32_t OperandLayout::k_major_chunk(int row, int chunk) const {
  const auto r = static_cast<uint32_t>(row), c = static_cast<uint32_t>(chunk);
  if (swizzle_ == 0) return start_ + r / 8 * stride_ + r % 8 * 16 + c * leading_;
  const uint32_t row_bytes = 256u >> swizzle_;  // 128, 64, 32
  return swizzled(start_ + r / 8 * stride_ + r % 8 * row_bytes + c * 16);
}

uint32_t OperandLayout::mn_major_element(int mn, int k) const {
  const auto n = static_cast<uint32_t>(mn), kk = static_cast<uint32_t>(k);
  if (swizzle_ == 0) {
    // Core matrices of 8 columns (16 bytes) by 8 k-rows, 128 contiguous bytes.
    return start_ + n / 8 * stride_ + kk / 8 * leading_ + kk % 8 * 16 + n % 8 * 2;
  }
  const uint32_t row_bytes = 256u >> swizzle_;
  const uint32_t columns = row_bytes / 2;
  return swizzled(start_ + n / columns * leading_ + kk / 8 * stride_ + kk % 8 * row_bytes +
                  n % columns * 2);
}

}  // namespace vcattn::emu
