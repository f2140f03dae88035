#include "report.h"

#include <fmt/format.h>

#include <map>

#include "machine.h"

namespace vcattn::emu {

const char* name_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kUninitialized:
      return "uninitialized memory";
    case FaultKind::kInFlight:
      return "memory in flight";
    case FaultKind::kRace:
      return "race";
    case FaultKind::kProxyFence:
      return "missing proxy fence";
    case FaultKind::kRegister:
      return "register of an unfinished wgmma";
    case FaultKind::kWgmmaFence:
      return "missing wgmma.fence";
    case FaultKind::kTransaction:
      return "transaction count";
    case FaultKind::kBarrier:
      return "barrier misuse";
    case FaultKind::kDivergence:
      return "divergence";
    case FaultKind::kDeadlock:
      return "deadlock";
    case FaultKind::kBounds:
      return "out of bounds";
    case FaultKind::kAlignment:
      return "alignment";
    case FaultKind::kInvalid:
      return "invalid operand";
    case FaultKind::kExit:
      return "unfinished at exit";
  }
  return "?";
}

std::string short_file(const char* file) {
  const std::string s(file);
  const size_t last = s.rfind('/');
  if (last == std::string::npos || last == 0) return s;
  const size_t before = s.rfind('/', last - 1);
  return before == std::string::npos ? s : s.substr(before + 1);
}

uint32_t Machine::site(const char* instruction, Where where) {
  const int thread = running_ == nullptr ? -1 : running_->cluster_index;
  uint64_t key = reinterpret_cast<uintptr_t>(instruction) * 0x9E3779B97F4A7C15u;
  key = (key ^ reinterpret_cast<uintptr_t>(where.file)) * 0xBF58476D1CE4E5B9u;
  key = (key ^ static_cast<uint64_t>(where.line) << 16 ^ static_cast<uint64_t>(thread)) *
        0x94D049BB133111EBu;
  const auto [it, added] = site_index_.try_emplace(key, static_cast<uint32_t>(sites_.size()));
  if (added) sites_.push_back({instruction, where, thread});
  return it->second;
}

std::string Machine::describe_thread(const Thread& t) const {
  const Dim3 b = t.block->index;
  return fmt::format("block ({}, {}, {}) thread {} (warp {} lane {})", b.x, b.y, b.z, t.index,
                     t.index / 32, t.lane());
}

std::string Machine::describe_site(uint32_t site) const {
  const Site& s = sites_[site];
  std::string text =
      fmt::format("{} ({}:{})", s.instruction, short_file(s.where.file), s.where.line);
  if (s.thread >= 0) {
    const auto& block = blocks_[static_cast<size_t>(s.thread / shape_.threads)];
    text +=
        " by " + describe_thread(*block->threads[static_cast<size_t>(s.thread % shape_.threads)]);
  }
  return text;
}

void Machine::raise(Fault fault) {
  Fault named(fault.kind, fmt::format("{}: {} [seed {}, step {}]", name_of(fault.kind),
                                      fault.what(), options_.seed, time_ & 0xFFFFFFFFFF));
  record_fault(named);
  throw named;
}

void Machine::fail(FaultKind kind, const char* instruction, Where where,
                   const std::string& reason) {
  const std::string who = running_ == nullptr ? "" : " by " + describe_thread(*running_);
  raise({kind, fmt::format("{} ({}:{}){}: {}", instruction, short_file(where.file), where.line, who,
                           reason)});
}

std::string describe_mbarrier(const Mbarrier& bar) {
  return fmt::format(
      "mbarrier shared+0x{:x} of block rank {} (initialised at {}:{}): phase {}, {} of {} arrivals "
      "missing, "
      "{} bytes missing",
      bar.offset, bar.block->rank, short_file(bar.initialized.where.file),
      bar.initialized.where.line, bar.phase, bar.pending, bar.count, bar.tx);
}

// Who waits for what: threads with the same wait in one line.
void Machine::deadlock() {
  std::map<std::string, std::vector<const Thread*>> waits;
  std::map<const Mbarrier*, std::string> bars;
  for (const auto& b : blocks_) {
    for (const auto& t : b->threads) {
      if (t->done) continue;
      const Wait& w = t->wait;
      std::string text = fmt::format("block rank {}: {} ({}:{}) ", b->rank, w.instruction,
                                     short_file(w.where.file), w.where.line);
      text += fmt::format(fmt::runtime(w.detail), w.a, w.b);
      if (w.bar != nullptr) {
        text += fmt::format(", mbarrier shared+0x{:x}", w.bar->offset);
        bars[w.bar] = describe_mbarrier(*w.bar);
      }
      waits[text].push_back(t.get());
    }
  }
  std::string text = "nothing can run and nothing is in flight";
  for (const auto& [what, threads] : waits) {
    text += fmt::format("\n  {} thread(s), first {} last {}, at {}", threads.size(),
                        threads.front()->index, threads.back()->index, what);
  }
  for (const auto& [bar, state] : bars) text += "\n  " + state;
  raise({FaultKind::kDeadlock, text});
}

void Machine::at_thread_exit(Thread& t) {
  const Where here{"the end of the kernel", 0};
  const Collective& c = t.warp->collective;
  if (c.arrived != 0) {
    fail(FaultKind::kDivergence, "exit", here,
         fmt::format("lanes of its warp (mask 0x{:08x}) wait for it at {} ({}:{})", c.arrived,
                     c.name, short_file(c.where.file), c.where.line));
  }
  t.done = true;
  --live_;
  note_progress();
  if (--t.block->live == 0) check_block_exit(*t.block, here);
  try_complete_cluster_barrier();
}

// Nobody may leave while an asynchronous unit can still touch the block, and "can" must not depend
// on how fast it was in this run: what counts is what the threads have waited for.
void Machine::check_block_exit(Block& b, Where where) {
  for (const auto& w : b.warps) {
    const WgmmaUnit& u = w->wgmma;
    if (w->lanes[0]->waited < u.committed || u.outstanding.size() > u.committed - u.landed) {
      fail(FaultKind::kExit, "exit", where,
           fmt::format("warp {} leaves wgmma groups it has not waited for", w->index));
    }
  }
  for (const auto& [offset, bar] : b.mbarriers) {
    bool known = bar.last_copy == 0;
    for (const auto& t : b.threads) known = known || t->known.all.at(bar.agent) >= bar.last_copy;
    if (!known) {
      fail(FaultKind::kExit, "exit", where,
           "no thread has waited for a bulk copy into the block; " + describe_mbarrier(bar));
    }
  }
  for (const auto& t : b.threads) {
    if (t->bulk.agent != 0 && t->known.all.at(t->bulk.agent) < t->bulk.pending.size()) {
      fail(FaultKind::kExit, "exit", where,
           describe_thread(*t) + " has not waited for its bulk stores to read shared memory");
    }
    if (t->copy16.agent != 0 && t->known.all.at(t->copy16.agent) < t->copy16.pending.size()) {
      fail(FaultKind::kExit, "exit", where,
           describe_thread(*t) + " has not waited for its cp.async copies");
    }
  }
}

void Machine::check_at_end() {
  const Where here{"the end of the kernel", 0};
  for (const auto& b : blocks_) {
    for (const auto& [offset, bar] : b->mbarriers) {
      if (bar.tx != 0) {
        fail(FaultKind::kTransaction, "exit", here,
             "bytes expected and copied differ; " + describe_mbarrier(bar));
      }
    }
    for (const auto& w : b->warps) {
      const auto& sequence = b->wgmma_sequence[static_cast<size_t>(w->index / 4)];
      if (w->wgmma.issued != sequence.size()) {
        fail(FaultKind::kDivergence, "wgmma.mma_async", here,
             fmt::format("warp {} issued {} products, another warp of its warpgroup {}", w->index,
                         w->wgmma.issued, sequence.size()));
      }
    }
  }
}

}  // namespace vcattn::emu
