// What the instruction layer (src/cuda/ptx) calls when a kernel is compiled for the host. One
// section per instruction family; the meaning of each function is documented where the layer
// declares it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "convert.h"
#include "error.h"
#include "packed.h"
#include "registers.h"

namespace vcattn::emu {

struct Dim3 {
  int x = 1, y = 1, z = 1;
};

// ---- indices (machine.cpp) ----
int thread_index();
int block_threads();
Dim3 block_index();
Dim3 grid_size();
uint32_t cluster_rank();
uint32_t cluster_size();
uint64_t clock_ticks();

// ---- memory (shared_memory.cpp, global_memory.cpp) ----
uint32_t shared_address(const void* p);
void load_shared(void* value, const void* p, size_t bytes, Where where);
void store_shared(void* p, const void* value, size_t bytes, Where where);
uint32_t cluster_address(const void* p, uint32_t rank);
void load_cluster(void* value, uint32_t address, size_t bytes, Where where);
void store_cluster(uint32_t address, const void* value, size_t bytes, Where where);
void load_global(void* value, const void* p, size_t bytes, Where where);
void store_global(void* p, const void* value, size_t bytes, Where where);
void before_atomic(const char* name, void* p, size_t bytes, Where where);
void thread_fence(Where where);

template <class F>
void atomic(const char* name, void* p, size_t bytes, F&& update, Where where) {
  before_atomic(name, p, bytes, where);
  update(p);
}

// ---- warp collectives (warp.cpp) ----
uint32_t warp_broadcast(const char* name, uint32_t v, Where where);
void warp_sync(Where where);
uint32_t shuffle_xor(uint32_t v, int mask, Where where);
uint32_t shuffle(uint32_t v, int source, Where where);
uint32_t shuffle_up(uint32_t v, int delta, Where where);
uint32_t shuffle_down(uint32_t v, int delta, Where where);
uint32_t vote_ballot(bool p, Where where);
int32_t warp_reduce_add(int32_t v, Where where);
int32_t warp_reduce_max(int32_t v, Where where);
bool elect_one(Where where);

// ---- barriers (named_barrier.cpp, mbarrier.cpp, cluster.cpp) and fences (fence.cpp) ----
void named_barrier_sync(int id, int threads, Where where);
void named_barrier_arrive(int id, int threads, Where where);
void mbarrier_init(void* bar, int arrivals, Where where);
void mbarrier_invalidate(void* bar, Where where);
void mbarrier_arrive(void* bar, uint32_t expect_bytes, Where where);
void mbarrier_expect_tx(void* bar, uint32_t bytes, Where where);
void mbarrier_arrive_remote(void* bar, uint32_t rank, Where where);
bool mbarrier_try_wait(void* bar, uint32_t parity, Where where);
void mbarrier_wait(void* bar, uint32_t parity, Where where);
void cluster_arrive(Where where);
void cluster_wait(Where where);
void fence_mbarrier_init(Where where);
void fence_proxy_async(Where where);

// ---- asynchronous copies (bulk_copy.cpp, copy16.cpp) ----
// ranks: blocks of the cluster to write to; 0 is this block alone.
void bulk_load(void* shared, const void* global, uint32_t bytes, void* bar, uint16_t ranks,
               Where where);
void bulk_store(void* global, const void* shared, uint32_t bytes, Where where);
void bulk_commit(Where where);
void bulk_wait(int pending, bool read_only, Where where);
void copy16_async(void* shared, const void* global, bool valid, Where where);
void copy_commit(Where where);
void copy_wait(int pending, Where where);

// ---- matrices (wgmma.cpp, mma_sync.cpp, matrix_move.cpp) ----
enum class Element { kS8, kE4M3, kF16, kBF16, kTF32 };
enum class Accumulate { kS32, kF32, kF16 };

struct WgmmaOp {
  const char* name;  // shape and types as PTX writes them
  Element element;
  Accumulate out;
  int registers;  // accumulator registers per thread
  bool transpose_b;
};

void wgmma_fence(Where where);
void wgmma_commit(Where where);
void wgmma_wait(int pending);
void wgmma_ss(const WgmmaOp& op, void* d, RegisterState* d_state, uint64_t a, uint64_t b,
              bool accumulate, Where where);
void wgmma_rs(const WgmmaOp& op, void* d, RegisterState* d_state, const uint32_t* a,
              RegisterState* a_state, uint64_t b, bool accumulate, Where where);
void mma_sync(Element element, void* c, const uint32_t* a, const uint32_t* b, Where where);
void ldmatrix(uint32_t* r, int count, bool transpose, const void* row, Where where);
void stmatrix(const uint32_t* r, int count, bool transpose, void* row, Where where);

// ---- register redistribution (set_registers.cpp) ----
void set_max_registers(int count, bool increase, Where where);

}  // namespace vcattn::emu
