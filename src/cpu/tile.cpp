#include "cpu/tile.h"

#include <limits>

#include "vcattn/numerics/block_scale.h"
#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/score_half.h"
#include "vcattn/numerics/score_window.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile.cpp"
#include <hwy/foreach_target.h>  // compiles the rest of this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace vcattn::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// At most 16 lanes, so that a tile and kMatmulColumns are whole multiples of every step below.
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr D kD;
const hn::RebindToSigned<D> kI;

inline std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(kD)); }

/// numerics::f16_round, lane by lane.
V round_f16(V x) {
  const V magnitude = hn::Abs(x);
  const auto bits = hn::BitCast(kI, magnitude);
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(kI, 1));
  const auto rounded = hn::Add(bits, hn::Add(hn::Set(kI, 0xFFF), odd));
  const V normal = hn::BitCast(kD, hn::ShiftLeft<13>(hn::ShiftRight<13>(rounded)));
  // Below 2^-14 the unit is 2^-24, which is the ulp of 0.5.
  const V half = hn::Set(kD, 0.5F);
  const V subnormal = hn::Sub(hn::Add(magnitude, half), half);
  const V finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(kD, 0x1p-14F)), subnormal, normal);
  const V infinity = hn::Set(kD, std::numeric_limits<float>::infinity());
  const V value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(kD, 65520.0F)), finite,
                                 hn::Mul(magnitude, infinity));  // NaN stays NaN
  return hn::CopySign(value, x);
}

/// Channels of one step of the tensor core's E4M3 product.
constexpr std::int64_t kHalfStep = 32;

/// kRows x (kVectors * lanes) of c: the accumulators stay in registers over all of k. kHalf: they
/// are rounded to binary16 after every step.
template <int kRows, int kVectors, bool kHalf>
void matmul_block(const float* a, const float* b, float* c, std::int64_t k, std::int64_t n) {
  V sum[kRows][kVectors];
  for (auto& row : sum) {
    for (V& x : row) x = hn::Zero(kD);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    V right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(kD, b + i * n + v * lanes());
    for (int r = 0; r < kRows; ++r) {
      const V left = hn::Set(kD, a[r * k + i]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
    if (kHalf && (i + 1) % kHalfStep == 0) {
      for (auto& row : sum) {
        for (V& x : row) x = round_f16(x);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], kD, c + r * n + v * lanes());
  }
}

template <bool kHalf>
void matmul_by_blocks(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k,
                      std::int64_t n) {
  // 16 accumulators want 32 registers, which only the 512-bit instruction sets have.
  constexpr int kVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
  constexpr int kRows = 4;
  const std::int64_t step = kVectors * lanes();
  for (std::int64_t column = 0; column < n; column += step) {
    std::int64_t row = 0;
    for (; row + kRows <= m; row += kRows) {
      matmul_block<kRows, kVectors, kHalf>(a + row * k, b + column, c + row * n + column, k, n);
    }
    for (; row < m; ++row) {
      matmul_block<1, kVectors, kHalf>(a + row * k, b + column, c + row * n + column, k, n);
    }
  }
}

void matmul(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k,
            std::int64_t n) {
  matmul_by_blocks<false>(a, b, c, m, k, n);
}

void matmul_half(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k,
                 std::int64_t n) {
  matmul_by_blocks<true>(a, b, c, m, k, n);
}

void window_scores(float* scores) {
  const V unit = hn::Set(kD, 1.0F / numerics::kWindowUnit);
  for (std::int64_t j = 0; j < kTileKeys; j += lanes()) {
    hn::StoreU(hn::Floor(hn::Mul(hn::LoadU(kD, scores + j), unit)), kD, scores + j);
  }
}

RowMax scale_scores(float* scores, float alpha, const float* key_scales, const float* bias) {
  const V alpha_v = hn::Set(kD, alpha);
  V maximum = hn::Set(kD, -std::numeric_limits<float>::infinity());
  const V infinity = hn::Set(kD, std::numeric_limits<float>::infinity());
  auto bad = hn::Ne(infinity, infinity);  // nothing yet
  for (std::int64_t j = 0; j < kTileKeys; j += lanes()) {
    V s = hn::Mul(hn::LoadU(kD, scores + j), hn::Mul(alpha_v, hn::LoadU(kD, key_scales + j)));
    // Only a bias hides a key: an infinite product comes from an infinite input.
    bad = hn::Or(bad, hn::Not(hn::Lt(hn::Abs(s), infinity)));
    if (bias != nullptr) s = hn::Add(s, hn::LoadU(kD, bias + j));
    hn::StoreU(s, kD, scores + j);
    maximum = hn::Max(maximum, s);
    bad = hn::Or(bad, hn::Not(hn::Lt(s, infinity)));
  }
  return {hn::GetLane(hn::MaxOfLanes(kD, maximum)), !hn::AllFalse(kD, bad)};
}

/// numerics::exp2_f32, lane by lane with the same bits, for x <= 0, -infinity included; not for
/// NaN.
V exp2(V x) {
  const V clipped = hn::Max(x, hn::Set(kD, -151.0F));
  const V n = hn::Round(clipped);
  const V f = hn::Sub(clipped, n);
  V p = hn::Set(kD, 1.52527338e-5F);
  for (const float coefficient : {1.54035304e-4F, 1.33335581e-3F, 9.61812911e-3F, 5.55041087e-2F,
                                  2.40226507e-1F, 6.93147181e-1F, 1.0F}) {
    p = hn::MulAdd(p, f, hn::Set(kD, coefficient));
  }
  // Two factors, as scale_exp2 does: the result may be subnormal although neither factor is.
  const auto exponent = hn::ConvertTo(kI, n);
  const auto half = hn::Neg(hn::ShiftRight<1>(hn::Neg(exponent)));  // towards zero for n <= 0
  const auto power = [](auto e) {
    return hn::BitCast(kD, hn::ShiftLeft<23>(hn::Add(e, hn::Set(kI, 127))));
  };
  return hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(exponent, half)));
}

/// numerics::e4m3_round for 0 <= x <= 448.
V round_e4m3(V x) {
  const auto bits = hn::BitCast(kI, x);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(kI, 1));
  const auto rounded = hn::Add(bits, hn::Add(hn::Set(kI, 0x7FFFF), odd));
  const V normal = hn::BitCast(kD, hn::ShiftLeft<20>(hn::ShiftRight<20>(rounded)));
  const V subnormal =
      hn::Mul(hn::Round(hn::Mul(x, hn::Set(kD, 512.0F))), hn::Set(kD, numerics::kE4m3MinSubnormal));
  return hn::IfThenElse(hn::Lt(x, hn::Set(kD, numerics::kE4m3MinNormal)), subnormal, normal);
}

template <class Encode>
float encode_row(float* scores, const Encode& encode) {
  V sum = hn::Zero(kD);
  for (std::int64_t j = 0; j < kTileKeys; j += lanes()) {
    const V p = encode(hn::LoadU(kD, scores + j));
    hn::StoreU(p, kD, scores + j);
    sum = hn::Add(sum, p);
  }
  return hn::GetLane(hn::SumOfLanes(kD, sum));
}

V octaves_below(V s, float reference) {
  return hn::Mul(hn::Sub(s, hn::Set(kD, reference)), hn::Set(kD, numerics::kOctavesPerCode));
}

float exponentiate(float* scores, float reference) {
  return encode_row(scores, [&](V s) { return exp2(octaves_below(s, reference)); });
}

float exponentiate_e4m3(float* scores, float reference) {
  const V top = hn::Set(kD, 256.0F);
  return encode_row(
      scores, [&](V s) { return round_e4m3(hn::Mul(exp2(octaves_below(s, reference)), top)); });
}

/// The value of an ExpCast code, a whole number from 0 to 126.
V decode_code(V code) {
  const auto bits = hn::ShiftLeft<20>(hn::ConvertTo(kI, code));
  const V normal = hn::BitCast(kD, hn::Add(bits, hn::Set(kI, (127 - 7) << 23)));
  const V subnormal = hn::Mul(code, hn::Set(kD, numerics::kE4m3MinSubnormal));
  return hn::IfThenElse(hn::Lt(code, hn::Set(kD, 8.0F)), subnormal, normal);
}

float exp_cast(float* scores, float reference, float at_reference) {
  const V reference_v = hn::Set(kD, reference), offset = hn::Set(kD, at_reference);
  const V top = hn::Set(kD, static_cast<float>(numerics::kE4m3MaxCode));
  return encode_row(scores, [&](V s) {
    const V t = hn::Max(hn::Add(hn::Sub(s, reference_v), offset), hn::Zero(kD));
    return decode_code(hn::Min(hn::Round(t), top));
  });
}

float exp_cast_half(float* scores, float offset) {
  const V slope = hn::Set(kD, numerics::kScoreHalfSlope), offset_v = hn::Set(kD, offset);
  const V top = hn::Set(kD, static_cast<float>(numerics::kE4m3MaxCode));
  return encode_row(scores, [&](V s) {
    const V y = hn::Max(round_f16(hn::MulAdd(s, slope, offset_v)), hn::Zero(kD));
    return decode_code(hn::Min(hn::Round(hn::Mul(y, hn::Set(kD, 128.0F))), top));
  });
}

/// numerics::e2m1_decode(e2m1_encode(x)) for x >= 0.
V round_e2m1(V x) {
  const V one = hn::Set(kD, 1.0F), two = hn::Set(kD, 2.0F), half = hn::Set(kD, 0.5F);
  const auto below2 = hn::Lt(x, two), below4 = hn::Lt(x, hn::Set(kD, 4.0F));
  const V step = hn::IfThenElse(below2, half, hn::IfThenElse(below4, one, two));
  const V inverse = hn::IfThenElse(below2, two, hn::IfThenElse(below4, one, half));
  return hn::Min(hn::Mul(hn::Round(hn::Mul(x, inverse)), step), hn::Set(kD, numerics::kE2m1Max));
}

float exponentiate_nvfp4(float* scores, float reference, float tile_max) {
  exponentiate(scores, reference);
  const float largest = numerics::exp2_f32((tile_max - reference) * numerics::kOctavesPerCode);
  const float row_scale = numerics::nvfp4_tensor_scale(largest);
  V sum = hn::Zero(kD);
  for (float* block = scores; block != scores + kTileKeys; block += numerics::kNvfp4BlockSize) {
    V amax = hn::Zero(kD);
    for (std::int64_t i = 0; i < numerics::kNvfp4BlockSize; i += lanes()) {
      amax = hn::Max(amax, hn::LoadU(kD, block + i));
    }
    const float largest_of_block = hn::GetLane(hn::MaxOfLanes(kD, amax));
    const std::uint8_t byte = numerics::nvfp4_scale_byte(largest_of_block, row_scale);
    const V inverse = hn::Set(kD, numerics::nvfp4_inverse_scale(byte, row_scale));
    const V scale = hn::Set(kD, numerics::ue4m3_decode(byte) * row_scale);
    for (std::int64_t i = 0; i < numerics::kNvfp4BlockSize; i += lanes()) {
      const V p = hn::Mul(round_e2m1(hn::Mul(hn::LoadU(kD, block + i), inverse)), scale);
      hn::StoreU(p, kD, block + i);
      sum = hn::Add(sum, p);
    }
  }
  return hn::GetLane(hn::SumOfLanes(kD, sum));
}

void accumulate(float* acc, const float* pv, const float* mean, float row_sum, float keep,
                float add, std::int64_t n) {
  const V keep_v = hn::Set(kD, keep), add_v = hn::Set(kD, add), sum_v = hn::Set(kD, row_sum);
  for (std::int64_t c = 0; c < n; c += lanes()) {
    V tile = hn::LoadU(kD, pv + c);
    if (mean != nullptr) tile = hn::MulAdd(sum_v, hn::LoadU(kD, mean + c), tile);
    const V kept = hn::Mul(keep_v, hn::LoadU(kD, acc + c));
    hn::StoreU(hn::MulAdd(add_v, tile, kept), kD, acc + c);
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace vcattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vcattn::cpu {

HWY_EXPORT(matmul);
HWY_EXPORT(matmul_half);
HWY_EXPORT(window_scores);
HWY_EXPORT(scale_scores);
HWY_EXPORT(exponentiate);
HWY_EXPORT(exponentiate_e4m3);
HWY_EXPORT(exp_cast);
HWY_EXPORT(exp_cast_half);
HWY_EXPORT(exponentiate_nvfp4);
HWY_EXPORT(accumulate);
HWY_EXPORT(target_name);

void matmul(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k,
            std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(matmul)(a, b, c, m, k, n);
}

void matmul_half(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k,
                 std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(matmul_half)(a, b, c, m, k, n);
}

void window_scores(float* scores) { HWY_DYNAMIC_DISPATCH(window_scores)(scores); }

RowMax scale_scores(float* scores, float alpha, const float* key_scales, const float* bias) {
  return HWY_DYNAMIC_DISPATCH(scale_scores)(scores, alpha, key_scales, bias);
}

float exponentiate(float* scores, float reference) {
  return HWY_DYNAMIC_DISPATCH(exponentiate)(scores, reference);
}

float exponentiate_e4m3(float* scores, float reference) {
  return HWY_DYNAMIC_DISPATCH(exponentiate_e4m3)(scores, reference);
}

float exp_cast(float* scores, float reference, float at_reference) {
  return HWY_DYNAMIC_DISPATCH(exp_cast)(scores, reference, at_reference);
}

float exp_cast_half(float* scores, float offset) {
  return HWY_DYNAMIC_DISPATCH(exp_cast_half)(scores, offset);
}

float exponentiate_nvfp4(float* scores, float reference, float tile_max) {
  return HWY_DYNAMIC_DISPATCH(exponentiate_nvfp4)(scores, reference, tile_max);
}

void accumulate(float* acc, const float* pv, const float* mean, float row_sum, float keep,
                float add, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(accumulate)(acc, pv, mean, row_sum, keep, add, n);
}

std::string simd_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace vcattn::cpu
#endif  // HWY_ONCE
