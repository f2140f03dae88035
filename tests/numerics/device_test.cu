// On a GPU: the formats against the hardware's own conversions over all 2^32 floats, and host
// against device bits for everything that claims to give the same ones. Skips where there is no
// GPU.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>
#include <mma.h>

#include <cstdint>
#include <string>
#include <vector>

#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/block_scale.h"
#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/f16.h"
#include "vcattn/numerics/hadamard.h"
#include "vcattn/numerics/online_softmax.h"
#include "vcattn/numerics/quantizer.h"
#include "vcattn/numerics/tf32.h"
#include "vcattn/numerics/v_smooth.h"

namespace vcattn::numerics {

// --- Hardware conversions ----------------------------------------------------

// A slot per conversion; each counts the floats for which the two differ.
enum Conversion {
  kE4m3Encode,
  kBf16,
  kF16,
  kE2m1,
  kUe8m0Down,
  kUe8m0Up,
  kTf32Away,
  kToInt,
  kConversions
};
constexpr const char* kConversionNames[kConversions] = {
    "e4m3", "bf16", "f16", "e2m1", "ue8m0 down", "ue8m0 up", "tf32 away", "int32"};

struct Mismatches {
  unsigned long long count[kConversions];
  std::uint32_t example[kConversions];
  unsigned long long floats;  // visited
};

__device__ void compare(Mismatches* found, Conversion which, std::uint32_t bits, std::uint32_t ours,
                        std::uint32_t theirs) {
  if (ours == theirs) return;
  atomicAdd(&found->count[which], 1ull);
  found->example[which] = bits;
}

__global__ void compare_conversions(Mismatches* found) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  unsigned long long floats = 0;
  for (; i < (std::uint64_t{1} << 32); i += stride) {
    const auto bits = static_cast<std::uint32_t>(i);
    const float x = bits_float(bits);
    compare(found, kE4m3Encode, bits, e4m3_encode(x),
            __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
    compare(found, kBf16, bits, bf16_from_float(x), __bfloat16_as_ushort(__float2bfloat16_rn(x)));
    compare(found, kF16, bits, f16_from_float(x), __half_as_ushort(__float2half_rn(x)));
    compare(found, kE2m1, bits, e2m1_encode(x),
            __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest) & 0xFu);
    compare(found, kUe8m0Down, bits, ue8m0_encode_down(x),
            __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundZero));
    compare(found, kUe8m0Up, bits, ue8m0_encode_up(x),
            __nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf));
    // The instruction leaves the unread low bits as they fall; the matrix unit drops them.
    const float tf32 = tf32_truncate(nvcuda::wmma::__float_to_tf32(x));
    if (!is_nan(x))
      compare(found, kTf32Away, bits, float_bits(tf32_round_away(x)), float_bits(tf32));
    const float rounded = is_nan(x) ? 0.0f : rne(x);
    if (abs_bits(rounded) < 2147483648.0f) {
      compare(found, kToInt, bits, static_cast<std::uint32_t>(static_cast<std::int32_t>(rounded)),
              static_cast<std::uint32_t>(rne_i32(x)));
    }
    ++floats;
  }
  atomicAdd(&found->floats, floats);
}

// --- Host against device -----------------------------------------------------

// Results of one index: everything documented as equal on both sides, folded from a float and a
// short vector.
constexpr int kResultWords = 40;
struct Results {
  std::uint32_t word[kResultWords];
};

VCATTN_HD std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB'352Du;
  x = (x ^ (x >> 15)) * 0x846C'A68Bu;
  return x ^ (x >> 16);
}

// Any bit pattern for even indices, values of everyday magnitude for odd ones.
VCATTN_HD float input(std::uint32_t index, std::uint32_t lane) {
  const std::uint32_t r = mixed(index * 131u + lane);
  if (index % 2 == 0) return bits_float(r);
  return mul_rn(sub_rn(static_cast<float>(r >> 8), 8388608.0f), 1e-6f);
}

VCATTN_HD void compute_scalars(std::uint32_t index, Results& out) {
  const float x = input(index, 0);
  const float y = input(index, 1);
  int n = 0;
  const float floats[] = {fma_rn(x, y, x),
                          mul_rn(x, y),
                          add_rn(x, y),
                          sub_rn(x, y),
                          div_rn(x, y),
                          rne(x),
                          exp2_f32(x),
                          exp_f32(x),
                          rescale_factor(x, y),
                          max_nan(x, y),
                          f16_round(x),
                          bf16_round(x),
                          tf32_round(x),
                          tf32_round_away(x),
                          e4m3_round(x),
                          int8_scale(abs_bits(x)).scale,
                          int8_scale(abs_bits(x)).inverse,
                          e4m3_scale(abs_bits(x)).scale,
                          nvfp4_tensor_scale(abs_bits(x)),
                          restore_mean(x, y, x),
                          softmax_merge(SoftmaxState{x, 1.5f}, SoftmaxState{y, 1.25f}).l};
  for (const float f : floats) out.word[n++] = is_nan(f) ? kFloatNanBits : float_bits(f);
  out.word[n++] = static_cast<std::uint32_t>(rne_i32(x));
  out.word[n++] = static_cast<std::uint8_t>(int8_quantize(x, 12.7f));
  out.word[n++] = e4m3_quantize(x, 3.3f);
  out.word[n++] = exp_cast_code(x, exp_cast_bias(kExpCastPaper, y));
  out.word[n++] = exp_cast_code_fma(x, kCodesPerNat, exp_cast_bias(kExpCastTileLocal, 2.0f));
  out.word[n++] = exp_exact_code(x);
}

// One index in 64 also does the vector functions; the rest of the words stay zero.
VCATTN_HD void compute_vectors(std::uint32_t index, float* scratch, Results& out) {
  int n = 28;
  for (std::uint32_t i = 0; i < 256; ++i) scratch[i] = input(index | 1u, i);
  const Nvfp4Block block = quantize_nvfp4_block(scratch, 0.01f);
  out.word[n++] = block.scale;
  for (int i = 0; i < 8; ++i) out.word[n] = out.word[n] * 31u + block.packed[i];
  ++n;
  out.word[n++] = block_mean(scratch, 1 + static_cast<int>(index % 128), 1);
  hadamard_in_place<64>(scratch);
  hadamard_in_place<128>(scratch);
  hadamard_in_place<256>(scratch);
  for (int i = 0; i < 256; ++i) out.word[n] = out.word[n] * 31u + float_bits(scratch[i]);
}

constexpr std::uint32_t kIndices = 1u << 20;

__global__ void compute_results(Results* out) {
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= kIndices) return;
  Results results{};
  compute_scalars(index, results);
  float scratch[256];
  if (index % 64 == 0) compute_vectors(index, scratch, results);
  out[index] = results;
}

namespace {

class Device : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(Device, ConversionsAgreeWithTheHardwareOnAllFloats) {
  Mismatches* found = nullptr;
  ASSERT_EQ(cudaMallocManaged(&found, sizeof *found), cudaSuccess);
  *found = Mismatches{};
  compare_conversions<<<1024, 256>>>(found);
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(found->floats, 1ull << 32);
  for (int i = 0; i < kConversions; ++i) {
    EXPECT_EQ(found->count[i], 0u)
        << kConversionNames[i] << ", for example bits 0x" << std::hex << found->example[i];
  }
  cudaFree(found);
}

TEST_F(Device, SameBitsAsTheHost) {
  Results* device = nullptr;
  ASSERT_EQ(cudaMallocManaged(&device, kIndices * sizeof(Results)), cudaSuccess);
  compute_results<<<kIndices / 256, 256>>>(device);
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::vector<unsigned> differing(kResultWords, 0);
  for (std::uint32_t index = 0; index < kIndices; ++index) {
    Results host{};
    compute_scalars(index, host);
    float scratch[256];
    if (index % 64 == 0) compute_vectors(index, scratch, host);
    for (int w = 0; w < kResultWords; ++w) {
      differing[static_cast<std::size_t>(w)] += host.word[w] != device[index].word[w] ? 1u : 0u;
    }
  }
  for (int w = 0; w < kResultWords; ++w) {
    EXPECT_EQ(differing[static_cast<std::size_t>(w)], 0u) << "result " << w;
  }
  cudaFree(device);
}

}  // namespace
}  // namespace vcattn::numerics
