// barrier.cluster: every thread of every block of the cluster; threads that have ended count as
// arrived.
#include <fmt/format.h>

#include "machine.h"

namespace vcattn::emu {

void Machine::try_complete_cluster_barrier() {
  if (cluster_arrived == 0 || cluster_arrived < live_) return;
  cluster_arrived = 0;
  ++cluster_generation;
  std::swap(cluster_completed, cluster_arriving);
  cluster_arriving.clear();
  wake_on(&cluster_generation);
}

void cluster_arrive(Where where) {
  Machine& m = machine();
  m.converge("barrier.cluster.arrive", 0, where, nullptr,
             [&](Warp& w, const std::array<void*, 32>&) {
               for (Thread* t : w.lanes) {
                 if (t->cluster_arrivals != m.cluster_generation) {
                   m.fail(FaultKind::kBarrier, "barrier.cluster.arrive", where,
                          "a second arrival without a wait");
                 }
                 t->cluster_arrivals = m.cluster_generation + 1;
                 m.cluster_arriving.join(t->known);
                 t->advance();
                 ++m.cluster_arrived;
               }
               m.note_progress();
               m.try_complete_cluster_barrier();
             });
}

void cluster_wait(Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  m.converge("barrier.cluster.wait", 0, where, nullptr, [](Warp&, const std::array<void*, 32>&) {});
  if (t.cluster_arrivals == 0) {
    m.fail(FaultKind::kBarrier, "barrier.cluster.wait", where, "a wait without an arrival");
  }
  m.wait_until({"barrier.cluster.wait", where, "for every thread of the cluster", 0, 0,
                &m.cluster_generation},
               [&] { return m.cluster_generation >= t.cluster_arrivals; });
  t.known.join(m.cluster_completed);
}

}  // namespace vcattn::emu
