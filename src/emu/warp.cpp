// Shuffles, votes, reductions, election, bar.warp.sync.
#include <fmt/format.h>

#include <array>

#include "machine.h"

namespace vcattn::emu {
namespace {

struct Lane {
  uint32_t in;
  uint32_t out;
};

// out[i] = f(all inputs, i)
template <class F>
uint32_t collect(const char* name, uint64_t key, uint32_t value, Where where, F f) {
  Lane mine{value, 0};
  machine().converge(name, key, where, &mine, [&](Warp&, const std::array<void*, 32>& args) {
    std::array<uint32_t, 32> in;
    for (size_t i = 0; i < 32; ++i) in[i] = static_cast<Lane*>(args[i])->in;
    for (size_t i = 0; i < 32; ++i) static_cast<Lane*>(args[i])->out = f(in, static_cast<int>(i));
  });
  return mine.out;
}

using Inputs = std::array<uint32_t, 32>;

int own_lane() { return machine().thread().lane(); }

}  // namespace

uint32_t warp_broadcast(const char* name, uint32_t v, Where where) {
  return collect(name, 0, v, where, [](const Inputs& in, int) { return in[0]; });
}

// Each lane chooses the lane it reads, so the choice is not part of the key.
uint32_t shuffle(uint32_t v, int source, Where where) {
  struct Read {
    uint32_t in, out;
    int source;
  } mine{v, 0, source & 31};
  machine().converge("shfl.sync", 0, where, &mine, [](Warp&, const std::array<void*, 32>& args) {
    for (void* lane : args) {
      auto& to = *static_cast<Read*>(lane);
      to.out = static_cast<Read*>(args[static_cast<size_t>(to.source)])->in;
    }
  });
  return mine.out;
}

uint32_t shuffle_xor(uint32_t v, int mask, Where where) {
  return shuffle(v, own_lane() ^ mask, where);
}

uint32_t shuffle_up(uint32_t v, int delta, Where where) {
  return shuffle(v, own_lane() < delta ? own_lane() : own_lane() - delta, where);
}

uint32_t shuffle_down(uint32_t v, int delta, Where where) {
  return shuffle(v, own_lane() + delta > 31 ? own_lane() : own_lane() + delta, where);
}

uint32_t vote_ballot(bool p, Where where) {
  return collect("vote.sync", 0, p ? 1 : 0, where, [](const Inputs& in, int) {
    uint32_t mask = 0;
    for (size_t i = 0; i < 32; ++i) mask |= in[i] << i;
    return mask;
  });
}

int32_t warp_reduce_add(int32_t v, Where where) {
  return static_cast<int32_t>(
      collect("redux.sync.add", 0, static_cast<uint32_t>(v), where, [](const Inputs& in, int) {
        uint32_t sum = 0;
        for (const uint32_t x : in) sum += x;
        return sum;
      }));
}

int32_t warp_reduce_max(int32_t v, Where where) {
  return static_cast<int32_t>(
      collect("redux.sync.max", 0, static_cast<uint32_t>(v), where, [](const Inputs& in, int) {
        int32_t best = static_cast<int32_t>(in[0]);
        for (const uint32_t x : in) best = std::max(best, static_cast<int32_t>(x));
        return static_cast<uint32_t>(best);
      }));
}

bool elect_one(Where where) {
  Machine& m = machine();
  // The same lane for the same warp all through a run, another one with another seed.
  Random pick(m.options().seed * 977 + static_cast<uint64_t>(m.thread().warp->index));
  const auto chosen = static_cast<int>(pick.below(32));
  return collect("elect.sync", 0, 0, where,
                 [&](const Inputs&, int i) { return static_cast<uint32_t>(i == chosen); }) != 0;
}

void warp_sync(Where where) {
  Machine& m = machine();
  m.converge("bar.warp.sync", 0, where, nullptr, [](Warp& w, const std::array<void*, 32>&) {
    Knowledge joined;
    for (const Thread* t : w.lanes) joined.join(t->known);
    for (Thread* t : w.lanes) {
      t->known = joined;
      t->advance();
    }
  });
}

}  // namespace vcattn::emu
