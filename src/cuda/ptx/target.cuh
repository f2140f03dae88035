// What a kernel source may write, whoever compiles it.
//
// The same .cuh is compiled by nvcc for the GPU and by g++ or clang++ for the emulator. The only
// file-level difference is hidden here and in the function bodies of this folder: no other folder
// tests a macro.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#define VC_ON_DEVICE 1
#define VC_DEVICE __device__ __forceinline__
#define VC_CONSTEXPR __host__ __device__ constexpr
#define VC_UNROLL _Pragma("unroll")
#define VC_NO_UNROLL _Pragma("unroll 1")
#define VC_TARGET device
// The emulator reports the line of the kernel that called an instruction; the device carries
// nothing.
#define VC_WHERE
#define VC_WHERE0
#else
#include "emu/api.h"
#define VC_ON_DEVICE 0
#define VC_DEVICE inline
#define VC_CONSTEXPR constexpr
#define VC_UNROLL
#define VC_NO_UNROLL
#define VC_TARGET host
#define VC_WHERE , ::vcattn::emu::Where where = ::vcattn::emu::Where::current()
#define VC_WHERE0 ::vcattn::emu::Where where = ::vcattn::emu::Where::current()
#endif

// The inline namespace keeps the two builds of one kernel apart when one program holds both.
#define VC_PTX_BEGIN      \
  namespace vcattn::ptx { \
  inline namespace VC_TARGET {
#define VC_PTX_END \
  }                \
  }

VC_PTX_BEGIN

inline constexpr int kWarpSize = 32;
inline constexpr int kWarpgroupSize = 128;
inline constexpr uint32_t kFullMask = 0xFFFFFFFFu;

// N elements moved by one vector access; N * sizeof(T) is 1, 2, 4, 8 or 16.
template <class T, int kN>
struct alignas(sizeof(T) * kN) Vec {
  T v[kN];
  VC_DEVICE T& operator[](int i) { return v[i]; }
  VC_DEVICE const T& operator[](int i) const { return v[i]; }
};

// The same bits as another type of the same size.
template <class To, class From>
VC_DEVICE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To>);
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

VC_PTX_END
