// cp.async.bulk: global to shared memory (of one or several blocks) and back.
//
// A load poisons its destination when it is issued and lands in up to four pieces, each at its own
// moment, each completing its own bytes on the barrier.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "access.h"
#include "machine.h"

namespace vcattn::emu {
namespace {

constexpr unsigned char kPoison = 0xA5;
constexpr const char* kLoad = "cp.async.bulk.shared.global";
constexpr const char* kStore = "cp.async.bulk.global.shared";

void check_size(const char* name, const void* global, uint32_t bytes, Where where) {
  Machine& m = machine();
  if (bytes == 0 || bytes % 16 != 0) {
    m.fail(FaultKind::kAlignment, name, where,
           fmt::format("{} bytes: not a positive multiple of 16", bytes));
  }
  if (reinterpret_cast<uintptr_t>(global) % 16 != 0) {
    m.fail(FaultKind::kAlignment, name, where,
           fmt::format("{} is not aligned to 16 bytes", global));
  }
  check_global_range(name, global, bytes, std::strcmp(name, kStore) == 0, where);
}

void load_into(Block& target, size_t offset, const unsigned char* global, uint32_t bytes,
               size_t bar_offset, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  Mbarrier& bar = find_mbarrier(kLoad, target, bar_offset, where);
  if (!bar.fenced) {
    m.fail(FaultKind::kProxyFence, kLoad, where,
           "the thread that initialised the mbarrier made no fence_mbarrier_init; " +
               describe_mbarrier(bar));
  }
  const Knowledge* known = &t.known;
  target.shadow->write(m, offset, bytes,
                       {&known, 1, true, bar.agent, bar.phase + 1, m.site(kLoad, where)});
  std::memset(target.shared + offset, kPoison, bytes);
  bar.in_flight += bytes;
  bar.last_copy = bar.phase + 1;
  for (uint32_t begin = 0; begin < bytes;) {
    const uint32_t left = (bytes - begin) / 16;
    uint32_t piece = left;
    if (left > 4 && m.random().below(3) != 0)
      piece = 1 + static_cast<uint32_t>(m.random().below(left));
    piece = std::max(piece, (bytes / 16 + 3) / 4);
    piece = std::min(piece, left) * 16;
    m.post(m.random_due(), [&m, &target, &bar, offset, begin, piece, global] {
      std::memcpy(target.shared + offset + begin, global + begin, piece);
      complete_tx(m, bar, piece);
    });
    begin += piece;
  }
}

// Agents of a thread's copy groups are given on first use.
void open_group(Machine& m, Thread::Groups& g) {
  if (g.agent == 0) g.agent = m.new_agent();
  if (g.pending.size() == g.committed) {
    g.pending.push_back(0);
    g.pending_read.push_back(0);
  }
}

bool finished(const std::vector<uint32_t>& pending, uint32_t groups) {
  for (uint32_t i = 0; i < groups; ++i) {
    if (pending[i] != 0) return false;
  }
  return true;
}

void note_reads(Machine& m, const Thread::Groups& g) {
  uint32_t done = 0;
  while (done < g.committed && g.pending_read[done] == 0) ++done;
  m.set_agent_done(g.agent, done);
}

}  // namespace

void bulk_load(void* shared, const void* global, uint32_t bytes, void* bar, uint16_t ranks,
               Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  check_size(kLoad, global, bytes, where);
  const size_t offset = m.shared_offset(kLoad, shared, bytes, 16, where);
  const size_t bar_offset = m.shared_offset(kLoad, bar, 8, 8, where);
  const auto* from = static_cast<const unsigned char*>(global);
  if (ranks == 0) {
    load_into(*t.block, offset, from, bytes, bar_offset, where);
    return;
  }
  for (uint32_t r = 0; r < 16; ++r) {
    if ((ranks >> r & 1) == 0) continue;
    if (r >= m.blocks().size()) {
      m.fail(FaultKind::kInvalid, kLoad, where,
             fmt::format("rank {} of {} blocks", r, m.blocks().size()));
    }
    require_alive(kLoad, *m.blocks()[r], where);
    load_into(*m.blocks()[r], offset, from, bytes, bar_offset, where);
  }
}

void bulk_store(void* global, const void* shared, uint32_t bytes, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  check_size(kStore, global, bytes, where);
  const size_t offset = m.shared_offset(kStore, shared, bytes, 16, where);
  Thread::Groups& g = t.bulk;
  open_group(m, g);
  const uint32_t group = g.committed;
  const Knowledge* known = &t.known;
  t.block->shadow->read(m, offset, bytes,
                        {&known, 1, true, g.agent, group + 1, m.site(kStore, where)});
  ++g.pending[group];
  ++g.pending_read[group];
  const uint64_t read_due = m.random_due();
  const auto* from = static_cast<const unsigned char*>(shared);
  m.post(read_due, [&m, &t, from, global, bytes, group, read_due] {
    auto copy = std::make_shared<std::vector<unsigned char>>(from, from + bytes);
    --t.bulk.pending_read[group];
    note_reads(m, t.bulk);
    m.wake_on(&t.bulk);
    m.post(std::max(read_due, m.random_due()), [&m, &t, copy, global, bytes, group] {
      std::memcpy(global, copy->data(), bytes);
      --t.bulk.pending[group];
      m.wake_on(&t.bulk);
    });
  });
}

void bulk_commit(Where) {
  Machine& m = machine();
  Thread::Groups& g = m.thread().bulk;
  open_group(m, g);
  ++g.committed;
  note_reads(m, g);
}

void bulk_wait(int pending, bool read_only, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  Thread::Groups& g = t.bulk;
  const uint32_t n = static_cast<uint32_t>(pending);
  const uint32_t groups = g.committed > n ? g.committed - n : 0;
  m.wait_until({"cp.async.bulk.wait_group", where, "for {} of its groups", groups, 0, &g},
               [&] { return finished(read_only ? g.pending_read : g.pending, groups); });
  if (groups != 0) t.known.all.raise(g.agent, groups);
}

}  // namespace vcattn::emu
