// Warp collectives with all 32 lanes: shuffles, votes, reductions, election (PTX
// ISA 9.7.9.6, 9.7.13). Every lane of the warp must call the same function together.
#pragma once

#include "target.cuh"

VC_PTX_BEGIN

// bar.warp.sync: lanes meet, and each sees what the others wrote before (PTX ISA 9.7.13.2).
// No other function of this file orders memory.
VC_DEVICE void warp_sync(VC_WHERE0) {
#if VC_ON_DEVICE
  __syncwarp();
#else
  emu::warp_sync(where);
#endif
}

// The value of lane `lane ^ mask`. 32-bit types.
template <class T>
VC_DEVICE T shuffle_xor(T v, int mask VC_WHERE) {
  static_assert(sizeof(T) == 4);
#if VC_ON_DEVICE
  return __shfl_xor_sync(kFullMask, v, mask);
#else
  return bits_as<T>(emu::shuffle_xor(bits_as<uint32_t>(v), mask, where));
#endif
}

// The value of lane `source` (mod 32).
template <class T>
VC_DEVICE T shuffle(T v, int source VC_WHERE) {
  static_assert(sizeof(T) == 4);
#if VC_ON_DEVICE
  return __shfl_sync(kFullMask, v, source);
#else
  return bits_as<T>(emu::shuffle(bits_as<uint32_t>(v), source, where));
#endif
}

// The value `delta` lanes below; lanes under delta keep their own.
template <class T>
VC_DEVICE T shuffle_up(T v, int delta VC_WHERE) {
  static_assert(sizeof(T) == 4);
#if VC_ON_DEVICE
  return __shfl_up_sync(kFullMask, v, static_cast<unsigned>(delta));
#else
  return bits_as<T>(emu::shuffle_up(bits_as<uint32_t>(v), delta, where));
#endif
}

// The value `delta` lanes above; the top lanes keep their own.
template <class T>
VC_DEVICE T shuffle_down(T v, int delta VC_WHERE) {
  static_assert(sizeof(T) == 4);
#if VC_ON_DEVICE
  return __shfl_down_sync(kFullMask, v, static_cast<unsigned>(delta));
#else
  return bits_as<T>(emu::shuffle_down(bits_as<uint32_t>(v), delta, where));
#endif
}

VC_DEVICE uint32_t vote_ballot(bool p VC_WHERE) {  // bit i: lane i's predicate
#if VC_ON_DEVICE
  return __ballot_sync(kFullMask, p);
#else
  return emu::vote_ballot(p, where);
#endif
}

VC_DEVICE bool vote_any(bool p VC_WHERE) {
#if VC_ON_DEVICE
  return __any_sync(kFullMask, p) != 0;
#else
  return emu::vote_ballot(p, where) != 0;
#endif
}

VC_DEVICE bool vote_all(bool p VC_WHERE) {
#if VC_ON_DEVICE
  return __all_sync(kFullMask, p) != 0;
#else
  return emu::vote_ballot(p, where) == kFullMask;
#endif
}

// redux.sync: sum or extreme over the warp, in every lane.
VC_DEVICE int32_t warp_add(int32_t v VC_WHERE) {
#if VC_ON_DEVICE
  return __reduce_add_sync(kFullMask, v);
#else
  return emu::warp_reduce_add(v, where);
#endif
}

VC_DEVICE int32_t warp_max(int32_t v VC_WHERE) {
#if VC_ON_DEVICE
  return __reduce_max_sync(kFullMask, v);
#else
  return emu::warp_reduce_max(v, where);
#endif
}

// elect.sync: true in exactly one lane. Which one is not promised; the emulator picks it by seed.
VC_DEVICE bool elect_one(VC_WHERE0) {
#if VC_ON_DEVICE
  uint32_t chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(chosen));
  return chosen != 0;
#else
  return emu::elect_one(where);
#endif
}

VC_PTX_END
