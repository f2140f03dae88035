// Packed, DPX, byte and conversion instructions on triples of words.
#pragma once

#include "case.cuh"

namespace vcattn::crosscheck {

constexpr int kTriples = 4096;

// Calls Ops::apply(a, b, c, put) for 4,096 triples; put(i, word) is result i.
template <class Ops>
struct ScalarCase : OneBlock {
  static constexpr Input kInputs[3] = {
      {Ops::kData, kTriples * 4}, {Ops::kData, kTriples * 4}, {Ops::kData, kTriples * 4}};
  static constexpr int kOutputWords = Ops::kResults * kTriples;
  static constexpr double kRelative = Ops::kRelative;
  struct SharedStorage {
    uint32_t none;
  };
  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    for (int i = ptx::thread_index(); i < kTriples; i += kThreads) {
      const uint32_t a = word(p.in[0], i), b = word(p.in[1], i), c = word(p.in[2], i);
      Ops::apply(a, b, c, [&](int result, uint32_t v) { put(p.out, result * kTriples + i, v); });
    }
  }
};

struct PackedIntegers {
  static constexpr Data kData = Data::kBits;
  static constexpr double kRelative = 0;
  static constexpr int kResults = 22;
  template <class Put>
  VC_DEVICE static void apply(uint32_t a, uint32_t b, uint32_t c, Put&& out) {
    const auto x = static_cast<int32_t>(a), y = static_cast<int32_t>(b),
               z = static_cast<int32_t>(c);
    const auto u = [](int32_t v) { return static_cast<uint32_t>(v); };
    out(0, ptx::permute_bytes(a, b, c & 0xFFFF));
    out(1, ptx::max_s16x2(a, b));
    out(2, ptx::min_s16x2(a, b));
    out(3, ptx::add_s16x2(a, b));
    out(4, ptx::sub_s16x2(a, b));
    out(5, ptx::max_s16x2_relu(a, b));
    out(6, ptx::max3_s16x2(a, b, c));
    out(7, ptx::min3_s16x2(a, b, c));
    out(8, ptx::max3_s16x2_relu(a, b, c));
    out(9, ptx::add_max_s16x2(a, b, c));
    out(10, ptx::add_max_s16x2_relu(a, b, c));
    out(11, ptx::add_min_s16x2_relu(a, b, c));
    out(12, u(ptx::max3_s32(x, y, z)));
    out(13, u(ptx::min3_s32(x, y, z)));
    out(14, u(ptx::add_max_s32(x, y, z)));
    out(15, u(ptx::add_max_s32_relu(x, y, z)));
    out(16, u(ptx::add_min_s32_relu(x, y, z)));
    out(17, u(ptx::max_s32(x, y)) ^ u(ptx::min_s32(y, z)));
    out(18, ptx::count_bits(a));
    out(19, ptx::leading_zeros(a >> (b & 31)));
    out(20, ptx::pack_s8(x >> (c & 31), y >> (a & 31), c));
    out(21, ptx::pack_u8(x >> (c & 31), y >> (a & 31), c));
  }
};

struct PackedHalves {
  static constexpr Data kData = Data::kHalfPairs;
  static constexpr double kRelative = 0;
  static constexpr int kResults = 10;
  template <class Put>
  VC_DEVICE static void apply(uint32_t a, uint32_t b, uint32_t c, Put&& out) {
    out(0, ptx::add_f16x2(a, b));
    out(1, ptx::sub_f16x2(a, b));
    out(2, ptx::mul_f16x2(a, b));
    out(3, ptx::max_f16x2(a, b));
    out(4, ptx::min_f16x2(a, b));
    out(5, ptx::fma_f16x2(a, b, c));
    out(6, ptx::fma_sat_f16x2(a, b, c));
    out(7, ptx::fma_relu_f16x2(a, b, c));
    out(8, ptx::e4m3x2_from_f16x2(a));
    out(9, ptx::bits_as<uint32_t>(ptx::float_from_f16(static_cast<uint16_t>(a))));
  }
};

struct Conversions {
  static constexpr Data kData = Data::kF32;
  static constexpr double kRelative = 0;
  static constexpr int kResults = 11;
  template <class Put>
  VC_DEVICE static void apply(uint32_t a, uint32_t b, uint32_t c, Put&& out) {
    const auto x = ptx::bits_as<float>(a), y = ptx::bits_as<float>(b);
    out(0, ptx::f16x2_from_floats(x, y));
    out(1, ptx::f16x2_from_floats_relu(x, y));
    out(2, ptx::bf16x2_from_floats(x, y));
    out(3, ptx::e4m3x2_from_floats(x, y));
    out(4, ptx::f16x2_from_e4m3x2(static_cast<uint16_t>(c >> 8)));
    out(5, static_cast<uint32_t>(ptx::int_from_float(x)));
    out(6, ptx::bits_as<uint32_t>(ptx::float_from_int(static_cast<int32_t>(a))));
    out(7, ptx::tf32_from_float(x));
    out(8, ptx::f16_from_float(y));
    out(9, ptx::bf16_from_float(y));
    out(10, ptx::bits_as<uint32_t>(ptx::float_from_bf16(static_cast<uint16_t>(a >> 16))));
  }
};

// Bounded, not equal: the emulator returns the rounded exact value.
struct Approximations {
  static constexpr Data kData = Data::kF32;
  static constexpr double kRelative = 0x1p-21;
  static constexpr int kResults = 4;
  template <class Put>
  VC_DEVICE static void apply(uint32_t a, uint32_t b, uint32_t, Put&& out) {
    const float x = ptx::bits_as<float>(a);
    const float positive = ptx::bits_as<float>((b & 0x00FFFFFF) | 0x3F000000);  // 0.5 to 2
    out(0, ptx::bits_as<uint32_t>(
               ptx::exp2_approx(ptx::bits_as<float>((b & 0x81FFFFFF) | 0x40000000))));
    out(1, ptx::bits_as<uint32_t>(ptx::log2_approx(positive * 1024.0f)));
    out(2, ptx::bits_as<uint32_t>(ptx::reciprocal_approx(x)));
    out(3, ptx::bits_as<uint32_t>(ptx::rsqrt_approx(positive)));
  }
};

}  // namespace vcattn::crosscheck
