// From a tile of raw scores to E4M3 codes of weights, two rows per thread.
//
// A thread holds rows g and g + 8 of its warp's 16 (wgmma.cuh). Packed scores keep the pairs of the
// accumulator fragment: x[2i] row g, x[2i + 1] row g + 8, columns 8i + 2t and 8i + 2t + 1. The
// arithmetic is that of numerics/score_window.h and numerics/score_half.h.
#pragma once

#include "cuda/ptx/ptx.cuh"
#include "cuda/sm90/config.h"
#include "vcattn/numerics/score_half.h"
#include "vcattn/numerics/score_window.h"

namespace vcattn::cuda::sm90 {

using PackedScores = ptx::Fragment<std::uint32_t, 32>;

/// The first or second row's half of `pair`, in both halves.
VC_DEVICE std::uint32_t first_row(std::uint32_t pair) {
  return ptx::permute_bytes(pair, pair, 0x1010);
}
VC_DEVICE std::uint32_t second_row(std::uint32_t pair) {
  return ptx::permute_bytes(pair, pair, 0x3232);
}

/// max(0, largest score of the tile) of both rows, over the quad that shares them: low half row g,
/// high half row g + 8. The order of binary16 bits is that of integers where it matters: positive
/// numbers above negative ones. Four chains hide the latency of the three-input maximum.
VC_DEVICE std::uint32_t tile_maximum(const PackedScores& x) {
  std::uint32_t a = ptx::max3_s16x2(x[0], x[2], x[4]), b = ptx::max3_s16x2(x[1], x[3], x[5]);
  std::uint32_t c = ptx::max3_s16x2(x[6], x[8], x[10]), d = ptx::max3_s16x2(x[7], x[9], x[11]);
  a = ptx::max3_s16x2(a, x[12], x[14]);
  b = ptx::max3_s16x2(b, x[13], x[15]);
  c = ptx::max3_s16x2(c, x[16], x[18]);
  d = ptx::max3_s16x2(d, x[17], x[19]);
  a = ptx::max3_s16x2(a, x[20], x[22]);
  b = ptx::max3_s16x2(b, x[21], x[23]);
  c = ptx::max3_s16x2(c, x[24], x[26]);
  d = ptx::max3_s16x2(d, x[25], x[27]);
  a = ptx::max3_s16x2(a, x[28], x[30]);
  b = ptx::max3_s16x2(b, x[29], x[31]);
  a = ptx::max3_s16x2(a, c, 0);
  b = ptx::max3_s16x2(b, d, 0);
  std::uint32_t m =
      ptx::max_s16x2(ptx::permute_bytes(a, b, 0x5410), ptx::permute_bytes(a, b, 0x7632));
  m = ptx::max_s16x2(m, ptx::shuffle_xor(m, 1));
  return ptx::max_s16x2(m, ptx::shuffle_xor(m, 2));
}

/// Octaves by which decoded codes are to be scaled, per row.
struct TileOctaves {
  float first, second;
};

/// What preparation says of a query row with INT8 scores: codes per unit, and the units that all
/// codes span (numerics/score_window.h).
using RowScale = ptx::Vec<float, 2>;

/// Bytes 1 and 2 of every accumulator, floor(acc / 256), two by two.
VC_DEVICE void take_window(const ptx::Fragment<std::int32_t, 64>& scores, PackedScores& x) {
  VC_UNROLL
  for (int i = 0; i < 32; ++i) {
    x[i] = ptx::permute_bytes(static_cast<std::uint32_t>(scores[2 * i]),
                              static_cast<std::uint32_t>(scores[2 * i + 1]), 0x6521);
  }
}

/// INT8 scores: the score window.
struct WindowSoftmax {
  using Scores = ptx::Fragment<std::int32_t, 64>;
  static constexpr std::uint32_t kMagic = 0x6400;  // binary16 1024: its low bits count units
  static constexpr std::uint32_t kMagicPair = 0x64006400;
  /// The addend of the magic, 1024 - 1024 * slope, must be a binary16. Rows above have a span of
  /// one unit, so that the code of their maximum is a common factor: 64 does as well as 126.
  static constexpr std::uint32_t kMaxSlope = 0x54005400;  // 64
  float multiplier0, multiplier1;
  std::uint32_t origin;  // kMagic + span, both rows

  VC_DEVICE WindowSoftmax(const RowScale& first, const RowScale& second)
      : multiplier0(first[0]),
        multiplier1(second[0]),
        origin(kMagicPair + static_cast<std::uint32_t>(ptx::int_from_float(first[1])) +
               (static_cast<std::uint32_t>(ptx::int_from_float(second[1])) << 16)) {}

  /// What the sums of a row start relative to. A capped slope puts the code of a unit far below the
  /// weight of that unit, out of the range of a factor.
  VC_DEVICE static float reference(const RowScale& row) {
    const float octaves = numerics::mul_rn(row[0], numerics::kOctavesPerCode);
    return octaves > 8.0f ? static_cast<float>(-static_cast<int>(octaves)) : 0.0f;
  }

  /// Scores -> 1024 + code in every half of `codes`.
  VC_DEVICE TileOctaves encode(const Scores& scores, PackedScores& codes) const {
    PackedScores x;
    take_window(scores, x);
    const std::uint32_t to_unit = origin - tile_maximum(x);  // no borrow: 0 <= m < kMagic
    const std::uint32_t add0 = first_row(to_unit), add1 = second_row(to_unit);
    const std::uint32_t slope =
        ptx::min_f16x2(ptx::f16x2_from_floats(multiplier0, multiplier1), kMaxSlope);
    const std::uint32_t a0 = first_row(slope), a1 = second_row(slope);
    const std::uint32_t b0 = magic_offset(a0), b1 = magic_offset(a1);
    VC_UNROLL
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t u = ptx::add_max_s16x2(x[i], i % 2 == 0 ? add0 : add1, kMagicPair);
      codes[i] = ptx::fma_f16x2(u, i % 2 == 0 ? a0 : a1, i % 2 == 0 ? b0 : b1);
    }
    return {octaves(to_unit & 0xFFFFu, multiplier0), octaves(to_unit >> 16, multiplier1)};
  }

 private:
  VC_DEVICE static std::uint32_t magic_offset(std::uint32_t a) {  // 1024 - 1024 a, exact
    return ptx::fma_f16x2(a, 0xE400E400u, kMagicPair);
  }
  /// (m - span) * multiplier / 8.
  VC_DEVICE static float octaves(std::uint32_t to_unit, float multiplier) {
    const int m_minus_span = static_cast<int>(kMagic) - static_cast<int>(to_unit);
    return numerics::mul_rn(ptx::float_from_int(m_minus_span),
                            numerics::mul_rn(multiplier, numerics::kOctavesPerCode));
  }
};

/// The ablation: E4M3(2^(score - largest of the tile + 8 octaves)) of a window's scores, by the
/// exponential and the conversion that ExpCast does without.
struct ExpSoftmax {
  using Scores = WindowSoftmax::Scores;
  static constexpr float kTopOctaves = 8.0f;  ///< of the code of the largest score
  float octaves_per_unit0, octaves_per_unit1;

  VC_DEVICE ExpSoftmax(const RowScale& first, const RowScale& second)
      : octaves_per_unit0(numerics::mul_rn(first[0], numerics::kOctavesPerCode)),
        octaves_per_unit1(numerics::mul_rn(second[0], numerics::kOctavesPerCode)) {}

  /// Scores -> the code in the low byte of every half of `codes`.
  VC_DEVICE TileOctaves encode(const Scores& scores, PackedScores& codes) const {
    PackedScores x;
    take_window(scores, x);
    const std::uint32_t largest = tile_maximum(x);
    const TileOctaves octaves{
        numerics::fma_rn(low_half(largest), octaves_per_unit0, -kTopOctaves),
        numerics::fma_rn(high_half(largest), octaves_per_unit1, -kTopOctaves)};
    VC_UNROLL
    for (int i = 0; i < 32; ++i) {
      const float slope = i % 2 == 0 ? octaves_per_unit0 : octaves_per_unit1;
      const float below = i % 2 == 0 ? octaves.first : octaves.second;
      const std::uint16_t pair = ptx::e4m3x2_from_floats(
          ptx::exp2_approx(numerics::fma_rn(low_half(x[i]), slope, -below)),
          ptx::exp2_approx(numerics::fma_rn(high_half(x[i]), slope, -below)));
      codes[i] = ptx::permute_bytes(pair, 0, 0x4140);
    }
    return octaves;
  }

 private:
  VC_DEVICE static float low_half(std::uint32_t x) {
    return ptx::float_from_int(static_cast<std::int16_t>(x & 0xFFFFu));
  }
  VC_DEVICE static float high_half(std::uint32_t x) {
    return ptx::float_from_int(static_cast<std::int32_t>(x) >> 16);
  }
};

/// E4M3 scores in binary16, in codes.
class HalfSoftmax {
 public:
  using Scores = PackedScores;

  /// The largest scores so far of both rows, binary16, not below 0. A NaN stays.
  VC_DEVICE std::uint32_t largest() const { return largest_; }

  /// Scores -> 8 + code / 128 in every half of `codes`, relative to the largest score so far.
  VC_DEVICE void encode(const Scores& scores, PackedScores& codes) {
    largest_ = ptx::max_s16x2(largest_, tile_maximum(scores));
    const std::uint32_t offset = offset_under(largest_);
    const std::uint32_t add0 = first_row(offset), add1 = second_row(offset);
    VC_UNROLL
    for (int i = 0; i < 32; ++i) {
      codes[i] =
          ptx::add_f16x2(ptx::fma_sat_f16x2(scores[i], kSlope, i % 2 == 0 ? add0 : add1), kEight);
    }
  }

  /// Of codes relative to `largest`.
  VC_DEVICE static TileOctaves octaves(std::uint32_t largest) {
    const std::uint32_t offset = offset_under(largest);
    return {-16.0f * ptx::float_from_f16(static_cast<std::uint16_t>(offset & 0xFFFFu)),
            -16.0f * ptx::float_from_f16(static_cast<std::uint16_t>(offset >> 16))};
  }

 private:
  static constexpr std::uint32_t kSlope = 0x20002000;           // 1 / 128, an immediate operand
  static constexpr std::uint32_t kReferenceSlope = 0xA001A001;  // -(1 + 2^-10) / 128
  static constexpr std::uint32_t kTop = 0x3BE03BE0;             // 126 / 128
  static constexpr std::uint32_t kEight = 0x48004800;           // 8.0: its low bits count 1 / 128

  VC_DEVICE static std::uint32_t offset_under(std::uint32_t largest) {
    return ptx::fma_f16x2(largest, kReferenceSlope, kTop);
  }

  std::uint32_t largest_ = 0;
};

/// The low bytes of four codes to a register: the A fragment of P.V, thanks to the order of tokens
/// in V's image (layout.h).
VC_DEVICE void pack_codes(const PackedScores& codes, ptx::Fragment<std::uint32_t, 16>& p) {
  VC_UNROLL
  for (int i = 0; i < 16; ++i) {
    const int from = (i & ~1) * 2 + (i & 1);
    p[i] = ptx::permute_bytes(codes[from], codes[from + 2], 0x6420);
  }
}

}  // namespace vcattn::cuda::sm90
