// Barriers and fences: block, named, mbarrier, cluster (PTX ISA 9.7.13).
//
// What each orders. bar.sync, mbarrier and cluster barriers: everything a thread did before it
// arrived is seen by every thread that waited. That covers ordinary accesses only; before an
// asynchronous unit (bulk copy, wgmma) touches memory that ordinary stores wrote, a
// fence_proxy_async must lie between.
#pragma once

#include "memory.cuh"
#include "target.cuh"

VC_PTX_BEGIN

// ---- Whole block and named barriers (PTX ISA 9.7.13.1: barrier, bar = barrier.aligned) ----

// __syncthreads(): barrier 0, every thread of the block, whole warps.
VC_DEVICE void block_sync(VC_WHERE0) {
#if VC_ON_DEVICE
  __syncthreads();
#else
  emu::named_barrier_sync(0, emu::block_threads(), where);
#endif
}

// bar.sync id, threads: wait until `threads` threads (whole warps) have arrived at barrier `id` (0
// to 15; 0 is block_sync's).
VC_DEVICE void named_barrier_sync(int id, int threads VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  emu::named_barrier_sync(id, threads, where);
#endif
}

// bar.arrive id, threads: count this warp without waiting.
VC_DEVICE void named_barrier_arrive(int id, int threads VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  emu::named_barrier_arrive(id, threads, where);
#endif
}

// ---- mbarrier: phases counted by arrivals and by transaction bytes (PTX ISA 9.7.13.15) ----
//
// A phase completes when its pending arrivals and its pending bytes are both zero; the next phase
// then begins with the same arrival count. Waiting on parity p returns once the phase of parity p
// has completed: a fresh barrier is in phase 0, so wait(bar, 1) returns at once and wait(bar, 0)
// waits for the first phase.

struct alignas(8) Mbarrier {
  uint64_t opaque;
};

// One thread, then fence_mbarrier_init by the same thread and a block or cluster barrier.
VC_DEVICE void mbarrier_init(Mbarrier& bar, int arrivals VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&bar)), "r"(arrivals)
               : "memory");
#else
  emu::mbarrier_init(&bar, arrivals, where);
#endif
}

// Ends the barrier's life so that its bytes may be used again.
VC_DEVICE void mbarrier_invalidate(Mbarrier& bar VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&bar)) : "memory");
#else
  emu::mbarrier_invalidate(&bar, where);
#endif
}

VC_DEVICE void mbarrier_arrive(Mbarrier& bar VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&bar)) : "memory");
#else
  emu::mbarrier_arrive(&bar, 0, where);
#endif
}

// Expect `bytes` more in this phase, then arrive once.
VC_DEVICE void mbarrier_arrive_expect_tx(Mbarrier& bar, uint32_t bytes VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&bar)),
               "r"(bytes)
               : "memory");
#else
  emu::mbarrier_arrive(&bar, bytes, where);
#endif
}

// Expect `bytes` more in this phase, without arriving.
VC_DEVICE void mbarrier_expect_tx(Mbarrier& bar, uint32_t bytes VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&bar)),
      "r"(bytes)
      : "memory");
#else
  emu::mbarrier_expect_tx(&bar, bytes, where);
#endif
}

// Arrive at the barrier at the same place in the block of rank `rank`. The default scope is the
// block's: it orders what the asynchronous units of this block read (a stage handed back to a
// multicast), not ordinary stores meant for the other block, which need a cluster barrier
// (release.cluster would cost a MEMBAR.ALL.GPU).
VC_DEVICE void mbarrier_arrive_remote(Mbarrier& bar, uint32_t rank VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(&bar)),
      "r"(rank)
      : "memory");
#else
  emu::mbarrier_arrive_remote(&bar, rank, where);
#endif
}

// Whether the phase of this parity has completed; may suspend the thread for a while (try_wait).
VC_DEVICE bool mbarrier_try_wait(Mbarrier& bar, uint32_t parity VC_WHERE) {
#if VC_ON_DEVICE
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(shared_address(&bar)), "r"(parity)
      : "memory");
  return done != 0;
#else
  return emu::mbarrier_try_wait(&bar, parity, where);
#endif
}

VC_DEVICE void mbarrier_wait(Mbarrier& bar, uint32_t parity VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again;\n}" ::"r"(shared_address(&bar)),
      "r"(parity)
      : "memory");
#else
  emu::mbarrier_wait(&bar, parity, where);
#endif
}

// ---- Cluster barrier (PTX ISA 9.7.13.3): every thread of every block of the cluster ----

VC_DEVICE void cluster_arrive(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  emu::cluster_arrive(where);
#endif
}

VC_DEVICE void cluster_wait(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  emu::cluster_wait(where);
#endif
}

VC_DEVICE void cluster_sync(VC_WHERE0) {
#if VC_ON_DEVICE
  cluster_arrive();
  cluster_wait();
#else
  emu::cluster_arrive(where);
  emu::cluster_wait(where);
#endif
}

// ---- Fences (PTX ISA 9.7.13.4) ----

// fence.mbarrier_init: this thread's mbarrier_init calls, to the cluster and to the asynchronous
// units.
VC_DEVICE void fence_mbarrier_init(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  emu::fence_mbarrier_init(where);
#endif
}

// fence.proxy.async.shared::cta: the ordinary stores to shared memory that this thread made or
// knows of, to the asynchronous units. By the writer before the barrier, or by the issuer after it.
VC_DEVICE void fence_proxy_async(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  emu::fence_proxy_async(where);
#endif
}

// fence.proxy.async.global: the same for global memory (a kernel that bulk-copies what it stored
// itself).
VC_DEVICE void fence_proxy_async_global(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("fence.proxy.async.global;" ::: "memory");
#else
  emu::fence_proxy_async(where);
#endif
}

// ---- Dependent launch (PTX ISA 9.7.13.13: griddepcontrol) ----

// Wait until the grids this one depends on have finished and their memory is visible.
VC_DEVICE void grid_dependency_wait() {
#if VC_ON_DEVICE
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allow the next grid to start.
VC_DEVICE void grid_dependency_launch() {
#if VC_ON_DEVICE
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

VC_PTX_END
