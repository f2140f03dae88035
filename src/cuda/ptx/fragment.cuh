// Registers that an asynchronous instruction reads or writes.
//
// A wgmma's accumulators and its A registers are Fragments. On the device a Fragment is an array
// that the compiler keeps in registers, so index it with constants only (loops under VC_UNROLL). In
// the emulator each register knows the wgmma that owns it, and every access is checked against it.
#pragma once

#include "target.cuh"

VC_PTX_BEGIN

template <class T, int kN>
struct Fragment {
  static_assert(sizeof(T) == 4, "one register each");
  static constexpr int kSize = kN;
  T r[kN];
#if VC_ON_DEVICE
  VC_DEVICE T& operator[](int i) { return r[i]; }
  VC_DEVICE const T& operator[](int i) const { return r[i]; }
#else
  mutable emu::RegisterState state[kN];

  Fragment() = default;
  Fragment(const Fragment& other) { copy_from(other); }
  Fragment& operator=(const Fragment& other) {
    copy_from(other);
    return *this;
  }
  ~Fragment() {
    for (int i = 0; i < kN; ++i) state[i].before_end_of_life(i);
  }
  T& operator[](int i) {
    state[i].before_write(i);
    return r[i];
  }
  const T& operator[](int i) const {
    state[i].before_read(i);
    return r[i];
  }

 private:
  void copy_from(const Fragment& other) {
    for (int i = 0; i < kN; ++i) (*this)[i] = other[i];
  }
#endif
};

template <class T, int kN>
VC_DEVICE void fill(Fragment<T, kN>& f, T value) {
  VC_UNROLL
  for (int i = 0; i < kN; ++i) f[i] = value;
}

// After a wait: the compiler must not move uses of these registers above it, for it does not know
// that a wgmma writes them later than its own place in the program (asm volatile with "+r", no
// instruction).
template <int kN>
VC_DEVICE void register_fence(Fragment<float, kN>& f) {
#if VC_ON_DEVICE
  VC_UNROLL
  for (int i = 0; i < kN; ++i) asm volatile("" : "+f"(f.r[i])::"memory");
#else
  for (int i = 0; i < kN; ++i) f.state[i].fence(i);
#endif
}

template <class T, int kN>
VC_DEVICE void register_fence(Fragment<T, kN>& f) {
#if VC_ON_DEVICE
  VC_UNROLL
  for (int i = 0; i < kN; ++i) asm volatile("" : "+r"(f.r[i])::"memory");
#else
  for (int i = 0; i < kN; ++i) f.state[i].fence(i);
#endif
}

VC_PTX_END
