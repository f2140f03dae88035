// The 64-bit shared-memory matrix descriptor of wgmma (PTX ISA 9.7.15.5.1.2).
//
//   bits  0-13  start address >> 4          bits 16-29  leading byte offset >> 4
//   bits 32-45  stride byte offset >> 4     bits 49-51  base offset      bits 62-63  swizzle mode
//
// K-major operand (rows of the tile are contiguous along k), the only layout of 8-bit and tf32
// operands. One swizzle atom is 8 rows of 128, 64 or 32 bytes; row r of a tile of 128-byte rows:
//
//   byte (r, c)  ->  start + (r / 8) * stride_bytes + (r % 8) * 128 + c,
//                    then address ^= ((address >> 7) & 7) << 4
//
// that is, the 16-byte chunk c / 16 of row r lies at chunk (c / 16) ^ (r % 8). With 64-byte rows
// bits 7-8 of the address go into bits 4-5, with 32-byte rows bit 7 into bit 4. The pattern is a
// function of the address: tiles start at multiples of 1024, 512 or 256 bytes, and k-step j inside
// an atom starts 32 * j bytes later.
//
// Without swizzle a tile is made of 8 x 16-byte core matrices of 128 contiguous bytes:
// leading_bytes from one to the next along k, stride_bytes along the rows.
//
// MN-major operand (16-bit types only, k rows contiguous along the columns). An atom is 8 k-rows of
// 128, 64 or 32 bytes (64, 32, 16 columns), swizzled in the same way: stride_bytes to the next 8
// k-rows, leading_bytes to the next atom along the columns. Without swizzle, core matrices of 8
// k-rows of 8 columns: leading_bytes along k, stride_bytes along the columns.
#pragma once

#include "memory.cuh"
#include "target.cuh"

VC_PTX_BEGIN

enum class Swizzle : uint32_t { kNone = 0, k128Bytes = 1, k64Bytes = 2, k32Bytes = 3 };

struct MatrixDescriptor {
  uint64_t bits;
};

// `tile` in shared memory; stride_bytes from 8 rows to the next 8; leading_bytes is ignored by
// swizzled K-major.
VC_DEVICE MatrixDescriptor make_descriptor(const void* tile, Swizzle swizzle, uint32_t stride_bytes,
                                           uint32_t leading_bytes = 16) {
  const uint64_t start = (shared_address(tile) & 0x3FFFFu) >> 4;
  return {start | static_cast<uint64_t>((leading_bytes & 0x3FFFFu) >> 4) << 16 |
          static_cast<uint64_t>((stride_bytes & 0x3FFFFu) >> 4) << 32 |
          static_cast<uint64_t>(swizzle) << 62};
}

// The same tile starting `bytes` later (a multiple of 16): next k-step, next stage, next 8 * n
// rows.
VC_DEVICE MatrixDescriptor advance(MatrixDescriptor d, uint32_t bytes) {
  return {d.bits + (bytes >> 4)};
}

VC_PTX_END
