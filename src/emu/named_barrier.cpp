// bar.sync and bar.arrive: barriers of whole warps.
#include <fmt/format.h>

#include "machine.h"

namespace vcattn::emu {
namespace {

uint64_t key_of(int id, int threads) {
  return static_cast<uint64_t>(id) << 32 | static_cast<uint32_t>(threads);
}

void check_operands(const char* name, int id, int threads, Where where) {
  Machine& m = machine();
  if (id < 0 || id > 15 || threads <= 0 || threads % 32 != 0 || threads > m.shape().threads) {
    m.fail(
        FaultKind::kInvalid, name, where,
        fmt::format("barrier {} for {} threads of a block of {}", id, threads, m.shape().threads));
  }
}

// The warp of the running thread arrives; the barrier may complete.
void arrive(const char* name, int id, int threads, Where where) {
  Machine& m = machine();
  Warp& w = *m.thread().warp;
  Block& b = *w.block;
  NamedBarrier& bar = b.barriers[static_cast<size_t>(id)];
  if (bar.arrived == 0) bar.expected = threads, bar.warps = 0;
  if (bar.expected != threads) {
    m.fail(
        FaultKind::kBarrier, name, where,
        fmt::format("barrier {} is being used for {} threads, not {}", id, bar.expected, threads));
  }
  if ((bar.warps >> w.index & 1) != 0) {
    m.fail(FaultKind::kBarrier, name, where,
           fmt::format("warp {} arrives twice at barrier {} ({} of {} threads are there)", w.index,
                       id, bar.arrived, bar.expected));
  }
  bar.warps |= uint64_t{1} << w.index;
  bar.arrived += 32;
  for (Thread* t : w.lanes) {
    bar.released.join(t->known);
    t->advance();
  }
  m.note_progress();
  if (bar.arrived < bar.expected) return;
  std::swap(bar.completed, bar.released);
  bar.released.clear();
  bar.arrived = 0;
  ++bar.generation;
  m.wake_on(&bar);
}

}  // namespace

void named_barrier_sync(int id, int threads, Where where) {
  Machine& m = machine();
  check_operands("bar.sync", id, threads, where);
  Thread& t = m.thread();
  NamedBarrier& bar = t.block->barriers[static_cast<size_t>(id)];
  struct Arg {
    uint64_t generation;
  } mine{};
  m.converge("bar.sync", key_of(id, threads), where, &mine,
             [&](Warp&, const std::array<void*, 32>& args) {
               for (void* a : args) static_cast<Arg*>(a)->generation = bar.generation;
               arrive("bar.sync", id, threads, where);
             });
  m.wait_until({"bar.sync", where, "for barrier {} of {} threads", id, threads, &bar},
               [&] { return bar.generation != mine.generation; });
  t.known.join(bar.completed);
}

void named_barrier_arrive(int id, int threads, Where where) {
  Machine& m = machine();
  check_operands("bar.arrive", id, threads, where);
  m.converge(
      "bar.arrive", key_of(id, threads), where, nullptr,
      [&](Warp&, const std::array<void*, 32>&) { arrive("bar.arrive", id, threads, where); });
}

}  // namespace vcattn::emu
