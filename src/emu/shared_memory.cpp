// ld.shared, st.shared, atomics on shared memory, and other blocks' shared memory.
#include <fmt/format.h>

#include <cstring>

#include "access.h"
#include "machine.h"

namespace vcattn::emu {
namespace {

// The window begins where the hardware's own kilobyte ends; the block's rank is in the top byte.
constexpr uint32_t kWindowBase = 0x400;

struct ClusterPlace {
  Block* block;
  size_t offset;
};

ClusterPlace decode(const char* instruction, uint32_t address, size_t bytes, Where where) {
  Machine& m = machine();
  const uint32_t rank = address >> 24;
  const uint32_t low = address & 0xFFFFFF;
  if (rank >= m.blocks().size() || low < kWindowBase ||
      low - kWindowBase + bytes > m.shape().shared_bytes) {
    m.fail(FaultKind::kBounds, instruction, where,
           fmt::format("address 0x{:x} is outside the cluster", address));
  }
  if (low % bytes != 0) {
    m.fail(FaultKind::kAlignment, instruction, where,
           fmt::format("address 0x{:x}, {} bytes", address, bytes));
  }
  Block* b = m.blocks()[rank].get();
  require_alive(instruction, *b, where);
  return {b, low - kWindowBase};
}

}  // namespace

void require_alive(const char* instruction, const Block& b, Where where) {
  if (b.live != 0) return;
  machine().fail(FaultKind::kExit, instruction, where,
                 fmt::format("the block of rank {} has already ended", b.rank));
}

size_t Machine::shared_offset(const char* instruction, const void* p, size_t bytes,
                              size_t alignment, Where where) {
  const Block& b = *running_->block;
  const auto* byte = static_cast<const unsigned char*>(p);
  const auto address = reinterpret_cast<uintptr_t>(byte);
  const auto base = reinterpret_cast<uintptr_t>(b.shared);
  if (address < base || address + bytes > base + b.shared_bytes) {
    fail(FaultKind::kBounds, instruction, where,
         fmt::format("{} bytes at {} (shared+{}) are outside the block's {} bytes of shared memory",
                     bytes, p, static_cast<int64_t>(address - base), b.shared_bytes));
  }
  if (address % alignment != 0) {
    fail(FaultKind::kAlignment, instruction, where,
         fmt::format("shared+0x{:x} is not aligned to {} bytes", address - base, alignment));
  }
  return address - base;
}

uint32_t shared_address(const void* p) {
  Machine& m = machine();
  const size_t offset = m.shared_offset("cvta.to.shared", p, 0, 1, {});
  return (kWindowBase + static_cast<uint32_t>(offset)) | m.thread().block->rank << 24;
}

uint32_t cluster_address(const void* p, uint32_t rank) {
  Machine& m = machine();
  const size_t offset = m.shared_offset("mapa", p, 0, 1, {});
  if (rank >= m.blocks().size()) {
    m.fail(FaultKind::kInvalid, "mapa", {},
           fmt::format("rank {} of {} blocks", rank, m.blocks().size()));
  }
  return (kWindowBase + static_cast<uint32_t>(offset)) | rank << 24;
}

void load_shared(void* value, const void* p, size_t bytes, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  const size_t offset = m.shared_offset("ld.shared", p, bytes, bytes, where);
  t.block->shadow->read(m, offset, bytes, ThreadObserver(t, m.site("ld.shared", where)).get());
  std::memcpy(value, p, bytes);
}

void store_shared(void* p, const void* value, size_t bytes, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  const size_t offset = m.shared_offset("st.shared", p, bytes, bytes, where);
  t.block->shadow->write(m, offset, bytes, ThreadObserver(t, m.site("st.shared", where)).get());
  std::memcpy(p, value, bytes);
}

void load_cluster(void* value, uint32_t address, size_t bytes, Where where) {
  Machine& m = machine();
  const auto [b, offset] = decode("ld.shared::cluster", address, bytes, where);
  b->shadow->read(m, offset, bytes,
                  ThreadObserver(m.thread(), m.site("ld.shared::cluster", where)).get());
  std::memcpy(value, b->shared + offset, bytes);
}

void store_cluster(uint32_t address, const void* value, size_t bytes, Where where) {
  Machine& m = machine();
  const auto [b, offset] = decode("st.shared::cluster", address, bytes, where);
  b->shadow->write(m, offset, bytes,
                   ThreadObserver(m.thread(), m.site("st.shared::cluster", where)).get());
  std::memcpy(b->shared + offset, value, bytes);
}

void before_atomic(const char* name, void* p, size_t bytes, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  const auto* byte = static_cast<unsigned char*>(p);
  if (byte >= t.block->shared && byte < t.block->shared + t.block->shared_bytes) {
    const size_t offset = m.shared_offset(name, p, bytes, bytes, where);
    const ThreadObserver self(t, m.site(name, where));
    Observer by = self.get();
    by.atomic = true;
    t.block->shadow->read(m, offset, bytes, by);
    t.block->shadow->write(m, offset, bytes, by);
    return;
  }
  check_global(name, p, bytes, false, where, true);
  check_global(name, p, bytes, true, where, true);
}

}  // namespace vcattn::emu
