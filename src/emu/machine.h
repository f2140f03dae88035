// The machine that runs one cluster at a time: its threads as fibers, its time, its asynchronous
// units.
//
// Time counts resumed threads. Everything asynchronous is an Event with a seeded due time; events
// land when time passes them, or when nothing else can run. One operating-system thread runs
// everything, so a seed determines the run.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "api.h"
#include "clock.h"
#include "fiber.h"
#include "random.h"
#include "shadow.h"

namespace vcattn::emu {

class GlobalMemory;
class Machine;
struct Block;
struct Mbarrier;
struct Warp;

// Why a thread does not run. `detail` is a format string for a and b; it is only formatted by a
// report.
struct Wait {
  const char* instruction = nullptr;  // nullptr: it can run
  Where where;
  const char* detail = "";
  int64_t a = 0, b = 0;
  const void* on = nullptr;       // what wake_on wakes it by
  const Mbarrier* bar = nullptr;  // for the report
};

struct Thread : LaneView {
  int index = 0;          // in the block
  int cluster_index = 0;  // in the cluster: its agent number
  Block* block = nullptr;
  Warp* warp = nullptr;
  Knowledge known;
  Fiber fiber;
  Wait wait;
  bool done = false;
  Where last;  // of its last collective
  uint64_t cluster_arrivals = 0;

  // cp.async and cp.async.bulk groups of this thread; agents are given on first use.
  struct Groups {
    uint32_t agent = 0;
    uint32_t committed = 0;
    uint32_t open_ops = 0;
    std::vector<uint32_t> pending;       // operations of group i (1-based) not finished
    std::vector<uint32_t> pending_read;  // ... not finished reading
  };
  Groups bulk, copy16;

  int lane() const { return index % 32; }
  uint32_t agent() const { return static_cast<uint32_t>(cluster_index); }
  uint32_t now() const { return known.all.at(agent()); }
  void advance() { known.all.raise(agent(), now() + 1); }
};

// A rendezvous of the 32 lanes of a warp.
struct Collective {
  const char* name = nullptr;
  uint64_t key = 0;
  Where where;
  uint32_t arrived = 0;
  uint64_t generation = 0;
  std::array<void*, 32> args{};
};

struct WgmmaUnit {
  uint32_t agent = 0;
  uint32_t committed = 0;
  uint32_t landed = 0;               // groups completely landed
  std::deque<uint32_t> outstanding;  // unfinished operations of groups landed + 1, landed + 2, ...
  uint64_t last_due = 0;
  uint64_t issued = 0;
};

struct Warp {
  int index = 0;  // in the block
  Block* block = nullptr;
  std::array<Thread*, 32> lanes{};
  Collective collective;
  WgmmaUnit wgmma;
  int registers = 0;
};

struct NamedBarrier {
  int expected = 0;
  int arrived = 0;
  uint64_t generation = 0;
  uint64_t warps = 0;  // which have arrived in this generation
  Knowledge released;
  Knowledge completed;
  Where where;
};

struct Mbarrier {
  size_t offset = 0;
  Block* block = nullptr;
  int count = 0;
  int pending = 0;
  int64_t tx = 0;  // expected minus completed bytes
  uint32_t phase = 0;
  uint32_t agent = 0;
  int64_t in_flight = 0;   // bytes of copies issued and not landed
  uint32_t last_copy = 0;  // completed phases after which all copies so far have landed
  Knowledge arriving;      // what this phase's arrivals released
  Knowledge completed;     // what the last completed phase released
  Site initialized;
  uint32_t init_time = 0;
  bool fenced = false;
};

struct Block {
  Dim3 index;
  uint32_t rank = 0;
  unsigned char* shared = nullptr;  // aligned to 1024
  size_t shared_bytes = 0;
  std::unique_ptr<Shadow> shadow;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Warp>> warps;
  std::array<NamedBarrier, 16> barriers;
  std::map<size_t, Mbarrier> mbarriers;
  std::vector<std::vector<uint64_t>> wgmma_sequence;  // per warpgroup: signatures in order
  int free_registers = 0;
  int live = 0;
};

struct Event {
  uint64_t due;
  uint64_t order;
  std::function<void()> land;
  bool operator>(const Event& o) const { return due != o.due ? due > o.due : order > o.order; }
};

struct Options {
  Dim3 grid{1, 1, 1};
  uint64_t seed = 0;
  GlobalMemory* memory = nullptr;  // when given, every global access must lie inside it
  size_t stack_bytes = 256 * 1024;
  int registers_per_thread = 0;  // 0: what 64 K registers allow
};

struct KernelShape {
  int threads;
  int cluster;  // blocks along x
  size_t shared_bytes;
};

class Machine {
 public:
  using Entry = std::function<void(void* shared)>;

  Machine(const Options& options, const KernelShape& shape, Entry entry);
  ~Machine();

  void run_grid();

  // ---- the running thread ----
  Thread& thread() { return *running_; }
  // Suspends the running thread until `ready` is true.
  template <class Ready>
  void wait_until(const Wait& wait, Ready&& ready) {
    while (!ready()) suspend(wait);
  }
  void suspend(const Wait& wait);
  void yield();
  void wake(Thread& t);
  void wake_on(const void* object);

  // All 32 lanes of the running warp meet, with equal name and key; the last runs all(warp, args).
  // Each lane's arg outlives the call, so results may be written into it.
  template <class F>
  void converge(const char* name, uint64_t key, Where where, void* arg, F&& all) {
    std::array<void*, 32> args;
    if (meet(name, key, where, arg, args)) all(*running_->warp, args);
  }

  // ---- asynchrony ----
  Random& random() { return random_; }
  uint64_t random_due();
  void post(uint64_t due, std::function<void()> land);
  uint64_t time() const { return time_; }
  void note_progress() { idle_polls_ = 0; }
  // After a failed poll: true when everybody only polls and nothing is in flight.
  bool polling_is_hopeless();

  // ---- agents and sites ----
  uint32_t new_agent();
  void set_agent_done(uint32_t agent, uint32_t done) { agent_done_[agent] = done; }
  bool in_flight(const Access& a) const;
  uint32_t site(const char* instruction, Where where);
  std::string describe_site(uint32_t site) const;
  std::string describe_thread(const Thread& t) const;
  [[noreturn]] void raise(Fault fault);
  [[noreturn]] void fail(FaultKind kind, const char* instruction, Where where,
                         const std::string& reason);
  void record_fault(Fault fault);

  // ---- the cluster ----
  std::vector<std::unique_ptr<Block>>& blocks() { return blocks_; }
  const KernelShape& shape() const { return shape_; }
  const Options& options() const { return options_; }
  GlobalMemory* memory() { return options_.memory; }
  // Offset of a shared address of this block, checked to hold `bytes` aligned to `alignment`.
  size_t shared_offset(const char* instruction, const void* p, size_t bytes, size_t alignment,
                       Where where);
  // Number of the running thread's block in its grid.
  uint32_t block_number() const;
  bool unwinding() const { return unwinding_; }
  Knowledge cluster_arriving, cluster_completed;
  uint64_t cluster_generation = 0;
  int cluster_arrived = 0;
  void try_complete_cluster_barrier();

 private:
  bool meet(const char* name, uint64_t key, Where where, void* arg, std::array<void*, 32>& args);
  void run_cluster(Dim3 first);
  void build_blocks(Dim3 first);
  void build_threads(Block& b);
  void thread_main(Thread& t);
  void at_thread_exit(Thread& t);
  void schedule();
  bool land_due();
  Thread& pick();
  void check_at_end();
  void check_block_exit(Block& b, Where where);
  void teardown();
  [[noreturn]] void deadlock();

  Options options_;
  KernelShape shape_;
  Entry entry_;
  StackPool stacks_;
  Random random_;
  std::vector<unsigned char> storage_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Thread*> runnable_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<uint32_t> agent_done_;  // UINT32_MAX for threads, which are never in flight
  std::vector<Site> sites_;
  std::unordered_map<uint64_t, uint32_t>
      site_index_;  // by a hash: a collision only mislabels a report
  std::unique_ptr<Fault> fault_;
  Thread* running_ = nullptr;
  Warp* sticky_ = nullptr;
  uint64_t time_ = 0;
  uint64_t order_ = 0;
  uint64_t idle_polls_ = 0;
  int live_ = 0;
  int policy_ = 0;
  bool unwinding_ = false;
};

// The machine of the running kernel.
Machine& machine();
std::string describe_mbarrier(const Mbarrier& bar);

}  // namespace vcattn::emu
