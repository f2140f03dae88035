// Vector clocks: what a thread knows of the others.
//
// Component i counts the releases of agent i. Agents are the threads of the cluster, the wgmma unit
// of each warp, each mbarrier (its count is its completed phases) and each thread's asynchronous
// copies. An access made by agent a at time e is ordered before whatever a thread with clock[a] >=
// e does next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace vcattn::emu {

class Clock {
 public:
  uint32_t at(uint32_t agent) const { return agent < time_.size() ? time_[agent] : 0; }

  void set(uint32_t agent, uint32_t time) {
    if (agent >= time_.size()) time_.resize(agent + 1, 0);
    time_[agent] = time;
  }

  void raise(uint32_t agent, uint32_t time) { set(agent, std::max(at(agent), time)); }

  void join(const Clock& other) {
    if (other.time_.size() > time_.size()) time_.resize(other.time_.size(), 0);
    const uint32_t* from = other.time_.data();
    uint32_t* to = time_.data();
    for (size_t i = 0, n = other.time_.size(); i < n; ++i) to[i] = std::max(to[i], from[i]);
  }

  void clear() { time_.assign(time_.size(), 0); }

 private:
  std::vector<uint32_t> time_;
};

// A thread's knowledge: of everything, and of those ordinary stores that a proxy fence has shown to
// the asynchronous units.
struct Knowledge {
  Clock all;
  Clock proxied;

  void join(const Knowledge& other) {
    all.join(other.all);
    proxied.join(other.proxied);
  }
  void clear() {
    all.clear();
    proxied.clear();
  }
};

}  // namespace vcattn::emu
