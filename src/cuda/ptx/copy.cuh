// Bulk asynchronous copies (PTX ISA 9.7.9.25) and 16-byte asynchronous copies (9.7.9.25.3).
// Addresses and sizes of bulk copies are multiples of 16 bytes.
#pragma once

#include "barrier.cuh"
#include "target.cuh"

VC_PTX_BEGIN

// L2 policies as createpolicy.fractional encodes them for the whole access.
enum class CacheHint : uint64_t {
  kEvictNormal = 0x1000000000000000u,
  kEvictFirst = 0x12F0000000000000u,
  kEvictLast = 0x14F0000000000000u,
};

// global -> this block's shared memory; `bytes` complete on `bar` when they have landed.
VC_DEVICE void bulk_load(void* shared, const void* global, uint32_t bytes, Mbarrier& bar VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(&bar))
      : "memory");
#else
  emu::bulk_load(shared, global, bytes, &bar, uint16_t{0}, where);
#endif
}

VC_DEVICE void bulk_load(void* shared, const void* global, uint32_t bytes, Mbarrier& bar,
                         CacheHint hint VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(&bar)),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
#else
  static_cast<void>(hint);
  emu::bulk_load(shared, global, bytes, &bar, uint16_t{0}, where);
#endif
}

// global -> the same place in every block of the cluster whose bit is set in `ranks`; each of them
// sees `bytes` complete on its own barrier at the place of `bar`.
VC_DEVICE void bulk_load_multicast(void* shared, const void* global, uint32_t bytes, Mbarrier& bar,
                                   uint16_t ranks VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(&bar)), "h"(ranks)
      : "memory");
#else
  emu::bulk_load(shared, global, bytes, &bar, ranks, where);
#endif
}

// shared -> global, completing in this thread's bulk groups (bulk_commit, bulk_wait).
VC_DEVICE void bulk_store(void* global, const void* shared, uint32_t bytes VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(global)),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
#else
  emu::bulk_store(global, shared, bytes, where);
#endif
}

VC_DEVICE void bulk_commit(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  emu::bulk_commit(where);
#endif
}

// At most kPending of this thread's bulk groups are unfinished.
template <int kPending>
VC_DEVICE void bulk_wait(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
#else
  emu::bulk_wait(kPending, /*read_only=*/false, where);
#endif
}

// At most kPending of them still read their source: shared memory may be written again.
template <int kPending>
VC_DEVICE void bulk_wait_read(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#else
  emu::bulk_wait(kPending, /*read_only=*/true, where);
#endif
}

// cp.async.cg: 16 bytes, global -> shared, in this thread's copy groups. When `valid` is false
// nothing is read and 16 zero bytes are written (src-size 0), which is how tails are filled.
VC_DEVICE void copy16_async(void* shared, const void* global, bool valid VC_WHERE) {
#if VC_ON_DEVICE
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
#else
  emu::copy16_async(shared, global, valid, where);
#endif
}

VC_DEVICE void copy_commit(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emu::copy_commit(where);
#endif
}

// At most kPending of this thread's copy groups are unfinished. Other threads see the bytes after a
// barrier.
template <int kPending>
VC_DEVICE void copy_wait(VC_WHERE0) {
#if VC_ON_DEVICE
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  emu::copy_wait(kPending, where);
#endif
}

VC_PTX_END
