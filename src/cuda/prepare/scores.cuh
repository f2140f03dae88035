// Q and K to the images the attention kernel reads (sm90/layout.h).
#pragma once

#include "cuda/prepare/statistics.cuh"
#include "cuda/sm90/layout.h"
#include "vcattn/numerics/score_half.h"
#include "vcattn/numerics/score_window.h"

namespace vcattn::cuda::prepare {

/// Sixteen codes of a row, one access.
using Codes = ptx::Vec<std::uint32_t, 4>;

/// numerics::int8_quantize of four values. The sum with 1.5 * 2^23 rounds to an integer, ties to
/// even, and leaves it in the low byte; the scale keeps it within 127.
VC_DEVICE std::uint32_t int8_codes(const float (&x)[4], float inverse) {
  std::uint32_t bits[4];
  VC_UNROLL
  for (int i = 0; i < 4; ++i) {
    bits[i] = numerics::float_bits(numerics::add_rn(numerics::mul_rn(x[i], inverse), 12582912.0f));
  }
  return ptx::permute_bytes(ptx::permute_bytes(bits[0], bits[1], 0x0040),
                            ptx::permute_bytes(bits[2], bits[3], 0x0040), 0x5410);
}

/// numerics::e4m3_quantize of four values (a NaN gives the NaN code: its scale is NaN anyway).
VC_DEVICE std::uint32_t e4m3_codes(const float (&x)[4], float inverse) {
  const std::uint32_t lo =
      ptx::e4m3x2_from_floats(numerics::mul_rn(x[0], inverse), numerics::mul_rn(x[1], inverse));
  const std::uint32_t hi =
      ptx::e4m3x2_from_floats(numerics::mul_rn(x[2], inverse), numerics::mul_rn(x[3], inverse));
  return lo | hi << 16;
}

/// What the attention kernel is told of a query row (its RowScale), and the reciprocal of the row's
/// scale.
struct QueryScale {
  float multiplier, span, inverse;
};

/// How scores are represented, as far as preparation is concerned.
struct Int8Format {
  VC_DEVICE static numerics::QuantScale key_scale(float amax) { return numerics::int8_scale(amax); }
  VC_DEVICE static std::uint32_t encode(const float (&x)[4], float inverse) {
    return int8_codes(x, inverse);
  }
  VC_DEVICE static QueryScale query_scale(float amax, float codes_per_score, float k_scale) {
    const float unit =
        numerics::mul_rn(numerics::mul_rn(numerics::kWindowUnit, codes_per_score), k_scale);
    const float multiplier = numerics::window_multiplier(
        numerics::mul_rn(unit, numerics::div_rn(amax, numerics::kInt8Max)));
    if (numerics::is_nan(multiplier)) return {multiplier, 1.0f, 0.0f};
    return {multiplier, numerics::score_window(multiplier).top,
            numerics::window_q_inverse(multiplier, codes_per_score, k_scale)};
  }
};

struct E4m3Format {
  VC_DEVICE static numerics::QuantScale key_scale(float amax) {
    return numerics::score_half_key_scale(amax);
  }
  VC_DEVICE static std::uint32_t encode(const float (&x)[4], float inverse) {
    return e4m3_codes(x, inverse);
  }
  VC_DEVICE static QueryScale query_scale(float amax, float codes_per_score, float k_scale) {
    return {1.0f, 0.0f, numerics::score_half_query_factor(amax, codes_per_score, k_scale)};
  }
};

/// Writes this thread's channels of a row into the image of its tile.
template <class Format, class Split>
VC_DEVICE void store_codes(std::uint8_t* image, int row, const typename Split::Share& x,
                           float inverse) {
  VC_UNROLL
  for (int c = 0; c < Split::kCount; c += 16) {
    Codes codes;
    VC_UNROLL
    for (int w = 0; w < 4; ++w) {
      const int at = c + 4 * w;
      codes[w] = Format::encode({x[at], x[at + 1], x[at + 2], x[at + 3]}, inverse);
    }
    ptx::store_global(
        image + sm90::score_operand_offset<Split::kDim>(row, Split::first_channel() + c), codes);
  }
}

/// A tile of K: smoothed, permuted, quantized with the head's scale.
template <int kDim, class Format>
struct QuantizeKeysKernel {
  static constexpr int kThreads = prepare::kThreads, kBlocksPerSm = 4;
  struct Params {
    InputView k;
    const std::int32_t* lengths = nullptr;
    const std::int32_t* order = nullptr;  ///< (batch, kv heads, tokens) or nullptr: position -> key
    const float* mean = nullptr;
    const float* inverse_balance = nullptr;
    const std::uint32_t* maximum = nullptr;
    int tiles = 0;
    std::uint8_t* image = nullptr;
  };
  using Split = DeepSplit<kDim>;
  using SharedStorage = Smoother<kDim>;

  VC_DEVICE static void run(const Params& p, SharedStorage& smooth) {
    const ptx::Index3 block = ptx::block_index();
    const int count = key_count(p.lengths, block.z, p.k.tokens);
    const std::int64_t head = static_cast<std::int64_t>(block.z) * p.k.heads + block.y;
    const float amax = numerics::bits_float(ptx::load_global<std::uint32_t>(p.maximum + head));
    const float inverse = Format::key_scale(amax).inverse;
    std::uint8_t* image = p.image + (head * p.tiles + block.x) * (kTileRows * kDim);
    smooth.load(p.mean + head * kDim, p.inverse_balance + head * kDim);
    ptx::block_sync();
    for_each_row<Split>(
        p.k,
        [&](int row) {
          const int position = block.x * kTileRows + row;
          if (position >= count) return std::int64_t{-1};
          const int token =
              p.order == nullptr
                  ? position
                  : ptx::load_global_constant<std::int32_t>(p.order + head * p.k.tokens + position);
          return p.k.row_offset(block.z, block.y, token);
        },
        [&](int row, typename Split::Share x) {
          smooth(x);
          if (block.x * kTileRows + row >= count) x = {};
          store_codes<Format, Split>(image, row, x, inverse);
        });
  }
};

/// A tile of Q: balanced, rotated, quantized row by row.
template <int kDim, class Format>
struct QuantizeQueriesKernel {
  static constexpr int kThreads = prepare::kThreads, kBlocksPerSm = 4;
  struct Params {
    InputView q;
    const float* mean = nullptr;  ///< of K: for the LSE
    const float* balance = nullptr;
    const std::uint32_t* maximum = nullptr;  ///< of K
    float score_scale = 1.0f;
    int group = 1, tiles = 0;
    std::uint8_t* image = nullptr;
    float* row_scale = nullptr;
    float* lse_shift = nullptr;  ///< nullptr: no LSE wanted
  };
  using Split = DeepSplit<kDim>;
  struct SharedStorage {
    ChannelVector<kDim> mean, balance;
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const ptx::Index3 block = ptx::block_index();
    const std::int64_t head = static_cast<std::int64_t>(block.z) * p.q.heads + block.y;
    const std::int64_t kv_head = head / p.group;
    const float amax = numerics::bits_float(ptx::load_global<std::uint32_t>(p.maximum + kv_head));
    const float k_scale = Format::key_scale(amax).scale;
    const float codes_per_score = numerics::mul_rn(p.score_scale, numerics::kCodesPerNat);
    const std::int64_t tile = head * p.tiles + block.x;
    std::uint8_t* image = p.image + tile * (kTileRows * kDim);
    shared.mean.load(p.mean + kv_head * kDim);
    shared.balance.load(p.balance + kv_head * kDim);
    ptx::block_sync();
    for_each_row<Split>(
        p.q,
        [&](int row) {
          const int token = block.x * kTileRows + row;
          return token < p.q.tokens ? p.q.row_offset(block.z, block.y, token) : std::int64_t{-1};
        },
        [&](int row, typename Split::Share x) {
          if (p.lse_shift != nullptr) store_lse_shift(p, shared, x, tile * kTileRows + row);
          VC_UNROLL
          for (int c = 0; c < Split::kCount; c += 4) {
            const auto s = shared.balance.four(Split::first_channel() + c);
            VC_UNROLL
            for (int i = 0; i < 4; ++i) x[c + i] = numerics::mul_rn(x[c + i], s[i]);
          }
          hadamard<Split>(x);
          const QueryScale scale =
              Format::query_scale(row_abs_max<Split>(x), codes_per_score, k_scale);
          store_codes<Format, Split>(image, row, x, scale.inverse);
          if (Split::lane() == 0) {
            ptx::store_global(p.row_scale + (tile * kTileRows + row) * 2,
                              ptx::Vec<float, 2>{{scale.multiplier, scale.span}});
          }
        });
  }

 private:
  /// What the mean key took from the scores of this row.
  VC_DEVICE static void store_lse_shift(const Params& p, const SharedStorage& shared,
                                        const typename Split::Share& x, std::int64_t row) {
    float dot = 0.0f;
    VC_UNROLL
    for (int c = 0; c < Split::kCount; c += 4) {
      const auto mean = shared.mean.four(Split::first_channel() + c);
      VC_UNROLL
      for (int i = 0; i < 4; ++i) dot = numerics::fma_rn(x[c + i], mean[i], dot);
    }
    dot = row_sum<Split>(dot);
    if (Split::lane() == 0) ptx::store_global(p.lse_shift + row, dot * p.score_scale);
  }
};

}  // namespace vcattn::cuda::prepare
