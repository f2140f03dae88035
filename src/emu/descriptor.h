// Where the elements of a wgmma operand lie, from its 64-bit descriptor (PTX ISA 9.7.15.5.1).
#pragma once

#include <cstddef>
#include <cstdint>

namespace vcattn::emu {

class OperandLayout {
 public:
  explicit OperandLayout(uint64_t descriptor);

  // Shared-window address of the 16-byte chunk `chunk` (0 or 1) of row `row`, K-major: a k-step is
  // 32 bytes.
  uint32_t k_major_chunk(int row, int chunk) const;
  // Shared-window address of the 16-bit element (column mn, row k), MN-major.
  uint32_t mn_major_element(int mn, int k) const;

  int swizzle() const { return swizzle_; }
  uint32_t start() const { return start_; }

 private:
  uint32_t swizzled(uint32_t address) const;

  uint32_t start_, leading_, stride_;
  int swizzle_;
};

}  // namespace vcattn::emu
