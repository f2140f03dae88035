#include "machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "global_memory.h"
#include "report.h"

namespace vcattn::emu {
namespace {

thread_local Machine* current_machine = nullptr;
thread_local LaneView idle_lane;

constexpr unsigned char kPoison = 0xA5;
constexpr int kRegisterFile = 65536;
constexpr uint64_t kFarFuture = uint64_t{1} << 40;

}  // namespace

thread_local LaneView* current_lane = &idle_lane;

Machine& machine() { return *current_machine; }

Machine::Machine(const Options& options, const KernelShape& shape, Entry entry)
    : options_(options),
      shape_(shape),
      entry_(std::move(entry)),
      stacks_(options.stack_bytes),
      random_(options.seed) {
  if (shape.threads % 32 != 0 || shape.threads > 1024 || shape.cluster < 1 ||
      options.grid.x % shape.cluster != 0) {
    throw Fault(FaultKind::kInvalid,
                "launch: blocks are whole warps, at most 1,024 threads, and the grid "
                "is a multiple of the cluster along x");
  }
  if (options_.registers_per_thread == 0) {
    options_.registers_per_thread = std::min(255, kRegisterFile / shape.threads) / 8 * 8;
  }
  current_machine = this;
}

Machine::~Machine() {
  teardown();
  current_machine = nullptr;
  current_lane = &idle_lane;
}

void Machine::run_grid() {
  const Dim3 g = options_.grid;
  if (options_.memory != nullptr) options_.memory->begin_grid();
  const int per_row = g.x / shape_.cluster;
  std::vector<int> clusters(static_cast<size_t>(per_row * g.y * g.z));
  for (size_t i = 0; i < clusters.size(); ++i) clusters[i] = static_cast<int>(i);
  for (size_t i = clusters.size(); i > 1; --i) {
    std::swap(clusters[i - 1], clusters[random_.below(i)]);
  }
  for (const int c : clusters) {
    run_cluster({c % per_row * shape_.cluster, c / per_row % g.y, c / per_row / g.y});
  }
}

uint32_t Machine::block_number() const {
  const Dim3 b = running_->block->index, g = options_.grid;
  return static_cast<uint32_t>((b.z * g.y + b.y) * g.x + b.x);
}

void Machine::run_cluster(Dim3 first) {
  build_blocks(first);
  policy_ = static_cast<int>(random_.below(3));
  schedule();
  check_at_end();
  teardown();
}

void Machine::build_blocks(Dim3 first) {
  const size_t stride = (shape_.shared_bytes + 2047) / 1024 * 1024;
  storage_.assign(stride * static_cast<size_t>(shape_.cluster) + 1024, kPoison);
  unsigned char* base = storage_.data();
  base += (1024 - reinterpret_cast<uintptr_t>(base) % 1024) % 1024;
  agent_done_.assign(static_cast<size_t>(shape_.threads * shape_.cluster), UINT32_MAX);
  cluster_arriving.clear();
  cluster_completed.clear();
  cluster_generation = 0;
  cluster_arrived = 0;
  sticky_ = nullptr;
  idle_polls_ = 0;
  live_ = 0;
  for (int r = 0; r < shape_.cluster; ++r) {
    auto b = std::make_unique<Block>();
    b->index = {first.x + r, first.y, first.z};
    b->rank = static_cast<uint32_t>(r);
    b->shared = base + stride * static_cast<size_t>(r);
    b->shared_bytes = shape_.shared_bytes;
    b->shadow = std::make_unique<Shadow>(shape_.shared_bytes);
    b->wgmma_sequence.resize(static_cast<size_t>(shape_.threads + 127) / 128);
    build_threads(*b);
    blocks_.push_back(std::move(b));
  }
}

void Machine::build_threads(Block& b) {
  for (int i = 0; i < shape_.threads; ++i) {
    auto t = std::make_unique<Thread>();
    t->index = i;
    t->cluster_index = static_cast<int>(b.rank) * shape_.threads + i;
    t->block = &b;
    t->advance();
    if (i % 32 == 0) {
      auto w = std::make_unique<Warp>();
      w->index = i / 32;
      w->block = &b;
      w->registers = options_.registers_per_thread;
      w->wgmma.agent = new_agent();
      b.warps.push_back(std::move(w));
    }
    t->warp = b.warps.back().get();
    t->warp->lanes[static_cast<size_t>(i % 32)] = t.get();
    Thread* p = t.get();
    t->fiber.start(stacks_, [this, p] { thread_main(*p); });
    runnable_.push_back(p);
    b.threads.push_back(std::move(t));
  }
  b.live = shape_.threads;
  live_ += shape_.threads;
}

void Machine::thread_main(Thread& t) {
  try {
    entry_(t.block->shared);
    at_thread_exit(t);
  } catch (Fault& fault) {
    record_fault(std::move(fault));
  } catch (const std::exception& e) {
    record_fault({FaultKind::kInvalid, std::string("the kernel threw: ") + e.what()});
  }
}

void Machine::record_fault(Fault fault) {
  if (fault_ == nullptr && !unwinding_) fault_ = std::make_unique<Fault>(std::move(fault));
}

void Machine::schedule() {
  while (live_ > 0) {
    land_due();
    if (fault_ != nullptr) throw *fault_;
    if (runnable_.empty()) {
      if (events_.empty()) deadlock();
      time_ = std::max(time_, events_.top().due);
      continue;
    }
    Thread& t = pick();
    ++time_;
    running_ = &t;
    current_lane = &t;
    t.fiber.resume();
    running_ = nullptr;
    current_lane = &idle_lane;
    if (fault_ != nullptr) throw *fault_;
  }
  while (
      !events_.empty()) {  // the hardware finishes what threads left behind; check_at_end judges it
    time_ = std::max(time_, events_.top().due);
    land_due();
  }
}

// Threads in random order; one warp at a time; or a mixture, by seed: each finds other orders.
Thread& Machine::pick() {
  size_t i = random_.below(runnable_.size());
  const bool stick = policy_ == 1 || (policy_ == 2 && random_.below(8) != 0);
  if (stick && sticky_ != nullptr) {
    for (size_t back = 0; back < std::min<size_t>(runnable_.size(), 32); ++back) {
      const size_t j = runnable_.size() - 1 - back;
      if (runnable_[j]->warp == sticky_) {
        i = j;
        break;
      }
    }
  }
  Thread& t = *runnable_[i];
  runnable_[i] = runnable_.back();
  runnable_.pop_back();
  sticky_ = t.warp;
  return t;
}

bool Machine::land_due() {
  bool any = false;
  while (!events_.empty() && events_.top().due <= time_) {
    auto land = std::move(const_cast<Event&>(events_.top()).land);
    events_.pop();
    land();
    any = true;
  }
  if (any) note_progress();
  return any;
}

// A third at once, a third soon, a third as late as the program allows.
uint64_t Machine::random_due() {
  switch (random_.below(3)) {
    case 0:
      return time_;
    case 1:
      return time_ + random_.below(static_cast<uint64_t>(4 * shape_.threads));
    default:
      return time_ + kFarFuture + random_.below(1 << 20);
  }
}

void Machine::post(uint64_t due, std::function<void()> land) {
  events_.push({due, order_++, std::move(land)});
}

void Machine::suspend(const Wait& wait) {
  running_->wait = wait;
  running_->fiber.suspend();
}

void Machine::yield() {
  Thread& t = *running_;
  runnable_.push_back(&t);
  t.fiber.suspend();
}

void Machine::wake(Thread& t) {
  if (t.wait.instruction == nullptr || t.done) return;
  t.wait = {};
  runnable_.push_back(&t);
  note_progress();
}

void Machine::wake_on(const void* object) {
  for (auto& b : blocks_) {
    for (auto& t : b->threads) {
      if (t->wait.on == object) wake(*t);
    }
  }
}

bool Machine::meet(const char* name, uint64_t key, Where where, void* arg,
                   std::array<void*, 32>& args) {
  Thread& t = thread();
  Warp& w = *t.warp;
  Collective& c = w.collective;
  for (const Thread* lane : w.lanes) {
    if (lane->done) {
      fail(FaultKind::kDivergence, name, where,
           fmt::format("{} has already ended and will not take part", describe_thread(*lane)));
    }
  }
  if (c.arrived != 0 && (std::strcmp(c.name, name) != 0 || c.key != key)) {
    fail(FaultKind::kDivergence, name, where,
         fmt::format("other lanes of the warp (mask 0x{:08x}) are at {} ({}:{}){}", c.arrived,
                     c.name, short_file(c.where.file), c.where.line,
                     std::strcmp(c.name, name) == 0 ? " with other operands" : ""));
  }
  if (c.arrived == 0) c.name = name, c.key = key, c.where = where;
  c.args[static_cast<size_t>(t.lane())] = arg;
  c.arrived |= 1u << t.lane();
  t.last = where;
  if (c.arrived != 0xFFFFFFFFu) {
    const uint64_t generation = c.generation;
    wait_until({name, where, "for the other lanes of its warp"},
               [&] { return c.generation != generation; });
    return false;
  }
  c.arrived = 0;
  ++c.generation;
  args = c.args;
  for (Thread* lane : w.lanes) wake(*lane);
  return true;
}

uint32_t Machine::new_agent() {
  agent_done_.push_back(0);
  return static_cast<uint32_t>(agent_done_.size() - 1);
}

bool Machine::in_flight(const Access& a) const { return a.time > agent_done_[a.agent]; }

bool Machine::polling_is_hopeless() {
  if (++idle_polls_ <= static_cast<uint64_t>(64 * live_)) return false;
  if (events_.empty()) return true;
  time_ = std::max(time_, events_.top().due);  // only time can help them
  return false;
}

void Machine::teardown() {
  unwinding_ = true;
  while (!events_.empty()) events_.pop();
  runnable_.clear();
  for (auto& b : blocks_) {
    for (auto& t : b->threads) {
      current_lane = t.get();
      t->fiber.abandon();
    }
  }
  current_lane = &idle_lane;
  blocks_.clear();
  sites_.clear();
  site_index_.clear();
  unwinding_ = false;
}

int thread_index() { return machine().thread().index; }
int block_threads() { return machine().shape().threads; }
Dim3 block_index() { return machine().thread().block->index; }
Dim3 grid_size() { return machine().options().grid; }
uint32_t cluster_rank() { return machine().thread().block->rank; }
uint32_t cluster_size() { return static_cast<uint32_t>(machine().shape().cluster); }
uint64_t clock_ticks() { return machine().time(); }

}  // namespace vcattn::emu
