// ldmatrix and stmatrix: 8 x 8 matrices of 16-bit elements, one row address per lane.
#include <array>
#include <cstring>

#include "access.h"
#include "machine.h"

namespace vcattn::emu {
namespace {

struct Lane {
  uint32_t r[4];
  size_t offset;
};

size_t row_offset(const char* name, const void* row, int count, Where where) {
  Machine& m = machine();
  if (m.thread().lane() >= 8 * count) return 0;  // this lane's address is ignored
  return m.shared_offset(name, row, 16, 16, where);
}

// Element (row, column) of matrix `matrix` is half `half` of register `matrix` of lane `lane`.
struct Place {
  size_t lane;
  int half;
};

Place place_of(int row, int column, bool transpose) {
  if (transpose) std::swap(row, column);
  return {static_cast<size_t>(row * 4 + column / 2), column % 2};
}

uint64_t key_of(int count, bool transpose) { return static_cast<uint64_t>(count * 2 + transpose); }

}  // namespace

void ldmatrix(uint32_t* r, int count, bool transpose, const void* row, Where where) {
  Machine& m = machine();
  const char* name = "ldmatrix";
  Thread& t = m.thread();
  Lane mine{{}, row_offset(name, row, count, where)};
  if (t.lane() < 8 * count) {
    t.block->shadow->read(m, mine.offset, 16, ThreadObserver(t, m.site(name, where)).get());
  }
  m.converge(name, key_of(count, transpose), where, &mine,
             [&](Warp& w, const std::array<void*, 32>& args) {
               for (int matrix = 0; matrix < count; ++matrix) {
                 for (int i = 0; i < 8; ++i) {
                   const auto& from =
                       *static_cast<Lane*>(args[static_cast<size_t>(8 * matrix + i)]);
                   uint16_t elements[8];
                   std::memcpy(elements, w.block->shared + from.offset, 16);
                   for (int j = 0; j < 8; ++j) {
                     const Place p = place_of(i, j, transpose);
                     uint32_t& to = static_cast<Lane*>(args[p.lane])->r[matrix];
                     to = (to & ~(0xFFFFu << (16 * p.half))) | static_cast<uint32_t>(elements[j])
                                                                   << (16 * p.half);
                   }
                 }
               }
             });
  std::memcpy(r, mine.r, static_cast<size_t>(count) * 4);
}

void stmatrix(const uint32_t* r, int count, bool transpose, void* row, Where where) {
  Machine& m = machine();
  const char* name = "stmatrix";
  Thread& t = m.thread();
  Lane mine{{}, row_offset(name, row, count, where)};
  std::memcpy(mine.r, r, static_cast<size_t>(count) * 4);
  if (t.lane() < 8 * count) {
    t.block->shadow->write(m, mine.offset, 16, ThreadObserver(t, m.site(name, where)).get());
  }
  m.converge(name, key_of(count, transpose), where, &mine,
             [&](Warp& w, const std::array<void*, 32>& args) {
               for (int matrix = 0; matrix < count; ++matrix) {
                 for (int i = 0; i < 8; ++i) {
                   uint16_t elements[8];
                   for (int j = 0; j < 8; ++j) {
                     const Place p = place_of(i, j, transpose);
                     elements[j] = static_cast<uint16_t>(
                         static_cast<Lane*>(args[p.lane])->r[matrix] >> (16 * p.half));
                   }
                   const auto& to = *static_cast<Lane*>(args[static_cast<size_t>(8 * matrix + i)]);
                   std::memcpy(w.block->shared + to.offset, elements, 16);
                 }
               }
             });
}

}  // namespace vcattn::emu
