// mbarrier objects: phases, arrivals, transaction counts.
//
// The object lives in this file's tables; its 8 bytes in shared memory are reserved, and any other
// access to them is an error.
#include <fmt/format.h>

#include "access.h"
#include "machine.h"
#include "report.h"

namespace vcattn::emu {
namespace {

constexpr int64_t kMaxTransaction = (1 << 20) - 1;

void complete_phase_if_done(Machine& m, Mbarrier& bar) {
  if (bar.pending != 0 || bar.tx != 0) return;
  if (bar.in_flight != 0) {
    m.raise({FaultKind::kTransaction, fmt::format("a phase completes while {} bytes copied on it "
                                                  "are still in flight: more bytes are copied "
                                                  "than expected; {}",
                                                  bar.in_flight, describe_mbarrier(bar))});
  }
  ++bar.phase;
  bar.pending = bar.count;
  std::swap(bar.completed, bar.arriving);
  bar.arriving.clear();
  bar.completed.all.raise(bar.agent, bar.phase);
  m.set_agent_done(bar.agent, bar.phase);
  m.note_progress();
  m.wake_on(&bar);
}

void arrive(const char* name, Mbarrier& bar, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  if (bar.pending == 0) {
    m.fail(FaultKind::kBarrier, name, where,
           "more arrivals than the barrier counts; " + describe_mbarrier(bar));
  }
  bar.arriving.join(t.known);
  t.advance();
  --bar.pending;
  m.note_progress();
  complete_phase_if_done(m, bar);
}

void expect(const char* name, Mbarrier& bar, uint32_t bytes, Where where) {
  bar.tx += bytes;
  if (bar.tx > kMaxTransaction) {
    machine().fail(FaultKind::kTransaction, name, where,
                   fmt::format("{} bytes expected, the limit is {}", bar.tx, kMaxTransaction));
  }
}

Mbarrier& own(const char* name, void* p, Where where) {
  Machine& m = machine();
  const size_t offset = m.shared_offset(name, p, 8, 8, where);
  return find_mbarrier(name, *m.thread().block, offset, where);
}

bool completed(const Mbarrier& bar, uint32_t parity) { return (bar.phase & 1) != (parity & 1); }

}  // namespace

Mbarrier& find_mbarrier(const char* instruction, Block& b, size_t offset, Where where) {
  Machine& m = machine();
  const auto it = b.mbarriers.find(offset);
  if (it == b.mbarriers.end()) {
    m.fail(FaultKind::kBarrier, instruction, where,
           fmt::format("no mbarrier has been initialised at shared+0x{:x} of block rank {}", offset,
                       b.rank));
  }
  Mbarrier& bar = it->second;
  if (m.thread().known.all.at(static_cast<uint32_t>(bar.initialized.thread)) < bar.init_time) {
    m.fail(FaultKind::kRace, instruction, where,
           fmt::format("nothing orders mbarrier.init ({}:{}) before this use; {}",
                       short_file(bar.initialized.where.file), bar.initialized.where.line,
                       describe_mbarrier(bar)));
  }
  return bar;
}

void complete_tx(Machine& m, Mbarrier& bar, int64_t bytes) {
  bar.tx -= bytes;
  bar.in_flight -= bytes;
  if (bar.pending == 0 && bar.tx < 0) {
    m.raise({FaultKind::kTransaction,
             "more bytes are copied than expected; " + describe_mbarrier(bar)});
  }
  complete_phase_if_done(m, bar);
}

void mbarrier_init(void* p, int arrivals, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  const size_t offset = m.shared_offset("mbarrier.init", p, 8, 8, where);
  if (arrivals < 1 || arrivals > kMaxTransaction) {
    m.fail(FaultKind::kInvalid, "mbarrier.init", where, fmt::format("{} arrivals", arrivals));
  }
  if (t.block->mbarriers.contains(offset)) {
    m.fail(FaultKind::kBarrier, "mbarrier.init", where,
           "a live mbarrier is there; mbarrier_invalidate it first");
  }
  const ThreadObserver self(t, m.site("mbarrier.init", where));
  t.block->shadow->write(m, offset, 8, self.get());
  t.block->shadow->reserve(offset, 8, true);
  Mbarrier& bar = t.block->mbarriers[offset];
  bar.offset = offset;
  bar.block = t.block;
  bar.count = bar.pending = arrivals;
  bar.agent = m.new_agent();
  bar.initialized = {"mbarrier.init", where, t.cluster_index};
  bar.init_time = t.now();
}

void mbarrier_invalidate(void* p, Where where) {
  Machine& m = machine();
  Mbarrier& bar = own("mbarrier.inval", p, where);
  if (bar.in_flight != 0) {
    m.fail(FaultKind::kInFlight, "mbarrier.inval", where,
           "copies are in flight; " + describe_mbarrier(bar));
  }
  Block& b = *bar.block;
  b.shadow->reserve(bar.offset, 8, false);
  b.mbarriers.erase(bar.offset);
}

void mbarrier_arrive(void* p, uint32_t expect_bytes, Where where) {
  const char* name = expect_bytes != 0 ? "mbarrier.arrive.expect_tx" : "mbarrier.arrive";
  Mbarrier& bar = own(name, p, where);
  expect(name, bar, expect_bytes, where);
  arrive(name, bar, where);
}

void mbarrier_expect_tx(void* p, uint32_t bytes, Where where) {
  Mbarrier& bar = own("mbarrier.expect_tx", p, where);
  expect("mbarrier.expect_tx", bar, bytes, where);
}

void mbarrier_arrive_remote(void* p, uint32_t rank, Where where) {
  Machine& m = machine();
  const char* name = "mbarrier.arrive.shared::cluster";
  const size_t offset = m.shared_offset(name, p, 8, 8, where);
  if (rank >= m.blocks().size()) {
    m.fail(FaultKind::kInvalid, name, where,
           fmt::format("rank {} of {} blocks", rank, m.blocks().size()));
  }
  Block& b = *m.blocks()[rank];
  require_alive(name, b, where);
  arrive(name, find_mbarrier(name, b, offset, where), where);
}

bool mbarrier_try_wait(void* p, uint32_t parity, Where where) {
  Machine& m = machine();
  Mbarrier& bar = own("mbarrier.try_wait", p, where);
  if (!completed(bar, parity)) {
    if (m.polling_is_hopeless()) {
      // Everybody only polls: block for good, so that the deadlock report names every poller.
      m.wait_until({"mbarrier.try_wait", where, "polling for parity {}", parity, 0, &bar, &bar},
                   [&] { return completed(bar, parity); });
    } else {
      m.yield();
    }
    if (!completed(bar, parity)) return false;
  }
  m.thread().known.join(bar.completed);
  return true;
}

void mbarrier_wait(void* p, uint32_t parity, Where where) {
  Machine& m = machine();
  Mbarrier& bar = own("mbarrier.wait", p, where);
  m.wait_until({"mbarrier.wait", where, "for parity {}", parity, 0, &bar, &bar},
               [&] { return completed(bar, parity); });
  m.thread().known.join(bar.completed);
}

}  // namespace vcattn::emu
