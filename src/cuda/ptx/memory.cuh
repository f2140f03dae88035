// Ordinary (generic proxy) accesses to shared and global memory.
//
// A kernel reads and writes memory only through these functions, never through a plain pointer or a
// plain array element: on the device they are exactly that, in the emulator they are where
// uninitialised, in-flight, racing and out-of-bounds accesses are caught. Value types are trivially
// copyable of 1, 2, 4, 8 or 16 bytes; the address must be aligned to the size.
#pragma once

#include "target.cuh"

VC_PTX_BEGIN

#if VC_ON_DEVICE
namespace detail {
template <int kBytes>
struct Carrier;
template <>
struct Carrier<1> {
  using type = uint8_t;
};
template <>
struct Carrier<2> {
  using type = uint16_t;
};
template <>
struct Carrier<4> {
  using type = uint32_t;
};
template <>
struct Carrier<8> {
  using type = uint2;
};
template <>
struct Carrier<16> {
  using type = uint4;
};
template <class V>
using carrier_t = typename Carrier<sizeof(V)>::type;
}  // namespace detail
#endif

// 32-bit address in the shared window (PTX ISA 7.1.1: cvta.to.shared).
VC_DEVICE uint32_t shared_address(const void* p) {
#if VC_ON_DEVICE
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
#else
  return emu::shared_address(p);
#endif
}

// ---- Shared memory of this block: ld.shared / st.shared (PTX ISA 9.7.9.8, 9.7.9.11) ----

template <class V>
VC_DEVICE V load_shared(const void* p VC_WHERE) {
#if VC_ON_DEVICE
  return bits_as<V>(*static_cast<const detail::carrier_t<V>*>(p));
#else
  V v;
  emu::load_shared(&v, p, sizeof(V), where);
  return v;
#endif
}

template <class V>
VC_DEVICE void store_shared(void* p, const V& v VC_WHERE) {
#if VC_ON_DEVICE
  *static_cast<detail::carrier_t<V>*>(p) = bits_as<detail::carrier_t<V>>(v);
#else
  emu::store_shared(p, &v, sizeof(V), where);
#endif
}

// ---- Global memory ----

template <class V>
VC_DEVICE V load_global(const void* p VC_WHERE) {  // ld.global
#if VC_ON_DEVICE
  return bits_as<V>(*static_cast<const detail::carrier_t<V>*>(p));
#else
  V v;
  emu::load_global(&v, p, sizeof(V), where);
  return v;
#endif
}

// ld.global.nc: memory that no thread of the grid writes.
template <class V>
VC_DEVICE V load_global_constant(const void* p VC_WHERE) {
#if VC_ON_DEVICE
  return bits_as<V>(__ldg(static_cast<const detail::carrier_t<V>*>(p)));
#else
  V v;
  emu::load_global(&v, p, sizeof(V), where);
  return v;
#endif
}

// ld.global.cs: read once, first to be evicted.
template <class V>
VC_DEVICE V load_global_streaming(const void* p VC_WHERE) {
#if VC_ON_DEVICE
  return bits_as<V>(__ldcs(static_cast<const detail::carrier_t<V>*>(p)));
#else
  V v;
  emu::load_global(&v, p, sizeof(V), where);
  return v;
#endif
}

template <class V>
VC_DEVICE void store_global(void* p, const V& v VC_WHERE) {  // st.global
#if VC_ON_DEVICE
  *static_cast<detail::carrier_t<V>*>(p) = bits_as<detail::carrier_t<V>>(v);
#else
  emu::store_global(p, &v, sizeof(V), where);
#endif
}

template <class V>
VC_DEVICE void store_global_streaming(void* p, const V& v VC_WHERE) {  // st.global.cs
#if VC_ON_DEVICE
  __stcs(static_cast<detail::carrier_t<V>*>(p), bits_as<detail::carrier_t<V>>(v));
#else
  emu::store_global(p, &v, sizeof(V), where);
#endif
}

// ---- Shared memory of another block of the cluster (PTX ISA 9.7.9.23, mapa) ----

// Address of this block's object `p` in the block of rank `rank`, in the shared::cluster window.
VC_DEVICE uint32_t cluster_address(const void* p, uint32_t rank) {
#if VC_ON_DEVICE
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(rank));
  return address;
#else
  return emu::cluster_address(p, rank);
#endif
}

VC_DEVICE uint32_t load_cluster_u32(uint32_t address VC_WHERE) {  // ld.shared::cluster.u32
#if VC_ON_DEVICE
  uint32_t v;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
#else
  uint32_t v;
  emu::load_cluster(&v, address, sizeof(v), where);
  return v;
#endif
}

VC_DEVICE void store_cluster_u32(uint32_t address, uint32_t v VC_WHERE) {  // st.shared::cluster.u32
#if VC_ON_DEVICE
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
#else
  emu::store_cluster(address, &v, sizeof(v), where);
#endif
}

// ---- Atomics, relaxed, device scope (PTX ISA 9.7.13.5 atom, 9.7.13.6 red) ----
// Integer ones give the same bits in every order; the float one does not, so nothing that must
// repeat uses it.

#if VC_ON_DEVICE
#define VC_ATOMIC(name, type, device_call, host_op) \
  VC_DEVICE type name(type* p, type v VC_WHERE) { return device_call; }
#else
#define VC_ATOMIC(name, type, device_call, host_op) \
  VC_DEVICE type name(type* p, type v VC_WHERE) {   \
    type old;                                       \
    emu::atomic(                                    \
        #name, p, sizeof(type),                     \
        [&](void* at) {                             \
          __builtin_memcpy(&old, at, sizeof(type)); \
          const type now = host_op;                 \
          __builtin_memcpy(at, &now, sizeof(type)); \
        },                                          \
        where);                                     \
    return old;                                     \
  }
#endif
// `p` points to global or shared memory; each returns the old value.
VC_ATOMIC(atomic_add, uint32_t, atomicAdd(p, v), old + v)
VC_ATOMIC(atomic_add, int32_t, atomicAdd(p, v),
          static_cast<int32_t>(static_cast<uint32_t>(old) + static_cast<uint32_t>(v)))
VC_ATOMIC(atomic_add, unsigned long long, atomicAdd(p, v), old + v)
VC_ATOMIC(atomic_add, float, atomicAdd(p, v), old + v)
VC_ATOMIC(atomic_max, uint32_t, atomicMax(p, v), old > v ? old : v)
VC_ATOMIC(atomic_max, int32_t, atomicMax(p, v), old > v ? old : v)
VC_ATOMIC(atomic_min, uint32_t, atomicMin(p, v), old < v ? old : v)
VC_ATOMIC(atomic_min, int32_t, atomicMin(p, v), old < v ? old : v)
VC_ATOMIC(atomic_min, unsigned long long, atomicMin(p, v), old < v ? old : v)
#undef VC_ATOMIC

// membar.gl: this thread's writes before it are seen by any thread that sees its writes after it.
VC_DEVICE void thread_fence(VC_WHERE0) {
#if VC_ON_DEVICE
  __threadfence();
#else
  emu::thread_fence(where);
#endif
}

VC_PTX_END
