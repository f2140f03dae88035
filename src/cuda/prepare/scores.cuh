// Q and K to the images the attention kernel reads (sm90/layout.h). A thread owns a row: nothing is
// exchanged between lanes, and what belongs to a row is computed once.
#pragma once

#include "cuda/prepare/tile.cuh"
#include "cuda/sm90/layout.h"
#include "vcattn/numerics/hadamard.h"
#include "vcattn/numerics/noise_shaping.h"
#include "vcattn/numerics/score_half.h"
#include "vcattn/numerics/score_window.h"

namespace vcattn::cuda::prepare {

/// Stages kFrom, 2 kFrom .. below kTo of numerics::hadamard_in_place.
template <int kFrom, int kTo, int kDim>
VC_DEVICE void hadamard_stages(float (&x)[kDim]) {
  VC_UNROLL
  for (int h = kFrom; h < kTo; h *= 2) {
    VC_UNROLL
    for (int i = 0; i < kDim; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i], b = x[i + h];
      x[i] = numerics::add_rn(a, b);
      x[i + h] = numerics::sub_rn(a, b);
    }
  }
}

/// The largest magnitude of the transformed row, from the input of its last stage: of a + b and
/// a - b it is |a| + |b|. NaN wins.
template <int kDim>
VC_DEVICE float largest_before_last_stage(const float (&x)[kDim]) {
  std::int32_t most = 0;  // bits of floats that are not negative order as the floats do
  VC_UNROLL
  for (int i = 0; i < kDim / 2; i += 2) {
    std::int32_t sum[2];
    VC_UNROLL
    for (int j = 0; j < 2; ++j) {
      sum[j] = static_cast<std::int32_t>(numerics::float_bits(
          numerics::add_rn(std::fabs(x[i + j]), std::fabs(x[i + j + kDim / 2]))));
    }
    most = ptx::max3_s32(most, sum[0], sum[1]);
  }
  return numerics::mul_rn(numerics::bits_float(static_cast<std::uint32_t>(most)),
                          numerics::hadamard_scale(kDim));
}

/// x * factor + shift, rounded once; without shift if kShift is false.
template <bool kShift, int kDim>
VC_DEVICE void map_channels(float (&x)[kDim], const float (&factor)[kDim],
                            const float (&shift)[kDim]) {
  using Four = ptx::Vec<float, 4>;
  VC_UNROLL
  for (int c = 0; c < kDim; c += 4) {
    const auto s = ptx::load_shared<Four>(&factor[c]);
    const auto t = kShift ? ptx::load_shared<Four>(&shift[c]) : Four{};
    VC_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[c + i] = kShift ? numerics::fma_rn(x[c + i], s[i], t[i]) : numerics::mul_rn(x[c + i], s[i]);
    }
  }
}

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
  static constexpr float kLargest = numerics::kInt8Max;
  VC_DEVICE static numerics::QuantScale key_scale(float amax) { return numerics::int8_scale(amax); }
  VC_DEVICE static std::uint32_t encode(const float (&x)[4], float inverse) {
    return int8_codes(x, inverse);
  }
  /// In code units, |x| <= kLargest.
  VC_DEVICE static float round(float x) {
    return numerics::sub_rn(numerics::add_rn(x, 12582912.0f), 12582912.0f);
  }
  VC_DEVICE static float shaping_unit(float) { return numerics::kShapingUnitInt8; }
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
  static constexpr float kLargest = numerics::kE4m3Max;
  VC_DEVICE static numerics::QuantScale key_scale(float amax) {
    return numerics::score_half_key_scale(amax);
  }
  VC_DEVICE static std::uint32_t encode(const float (&x)[4], float inverse) {
    return e4m3_codes(x, inverse);
  }
  /// As for INT8, with a number whose unit in the last place is the spacing of codes around x.
  VC_DEVICE static float round(float x) {
    const auto power = static_cast<std::int32_t>(numerics::float_bits(x) & numerics::kFloatInfBits);
    const auto least = static_cast<std::uint32_t>(ptx::max_s32(power, (127 - 6) << 23));
    const float c = numerics::bits_float(least + (20u << 23 | 1u << 22));
    return numerics::sub_rn(numerics::add_rn(x, c), c);
  }
  VC_DEVICE static float shaping_unit(float largest) {
    return numerics::shaping_unit_e4m3(largest);
  }
  VC_DEVICE static QueryScale query_scale(float amax, float codes_per_score, float k_scale) {
    return {1.0f, 0.0f, numerics::score_half_query_factor(amax, codes_per_score, k_scale)};
  }
};

/// The last stage of the transform and its scale, then the row's codes into a tile's image.
template <class Format, int kDim>
VC_DEVICE void encode_row(float (&x)[kDim], float inverse, std::uint8_t* image, int row) {
  hadamard_stages<kDim / 2, kDim>(x);
  constexpr float kScale = numerics::hadamard_scale(kDim);
  VC_UNROLL
  for (int c = 0; c < kDim; c += 16) {
    Codes codes;
    VC_UNROLL
    for (int w = 0; w < 4; ++w) {
      const int at = c + 4 * w;
      codes[w] =
          Format::encode({numerics::mul_rn(x[at], kScale), numerics::mul_rn(x[at + 1], kScale),
                          numerics::mul_rn(x[at + 2], kScale), numerics::mul_rn(x[at + 3], kScale)},
                         inverse);
    }
    ptx::store_shared(image + sm90::score_operand_offset<kDim>(row, c), codes);
  }
}

template <int kDim>
VC_DEVICE void clear_row(std::uint8_t* image, int row) {
  VC_UNROLL
  for (int c = 0; c < kDim; c += 16) {
    ptx::store_shared(image + sm90::score_operand_offset<kDim>(row, c), Codes{});
  }
}

/// Rows of a block, one to a thread. Half a tile: six blocks on an SM fall out of step, so that
/// some compute while others wait for memory.
inline constexpr int kBlockRows = 64;

/// Blocks of an SM: what the registers of packed rows, and the tiles of others, allow.
template <int kDim, class Source>
inline constexpr int kRowBlocksPerSm = !kIsPacked<Source> ? 5
                                       : kDim == 128      ? 6
                                                          : 10;

template <int kDim, class Source>
using RowTile = Tile<kDim, Source, kBlockRows>;

/// How the channels of a row are rounded: each to nearest.
struct ToNearest {
  template <int kDim, class Source>
  static constexpr int kBlocksPerSm = kRowBlocksPerSm<kDim, Source>;
  template <int kDim>
  struct Shared {};
  template <int kDim>
  VC_DEVICE static void load(Shared<kDim>&, const std::byte*, std::uint32_t) {}
  template <class Format, int kDim>
  VC_DEVICE static void encode(float (&x)[kDim], float inverse, const Shared<kDim>&,
                               std::uint8_t* image, int row) {
    encode_row<Format>(x, inverse, image, row);
  }
};

/// The rows of a block.
struct RowBlock {
  ptx::Index3 at;  ///< (block, head, batch entry)
  int first;
  std::uint32_t head;  ///< among those of all batch entries; 65,535 of each at most

  VC_DEVICE explicit RowBlock(const InputView& view)
      : at(ptx::block_index()),
        first(at.x * kBlockRows),
        head(static_cast<std::uint32_t>(at.z) * static_cast<std::uint32_t>(view.heads) +
             static_cast<std::uint32_t>(at.y)) {}
  /// With `left` rows, counted from the first, before the end of the tensor.
  VC_DEVICE TileRows rows(int left, const std::int32_t* order = nullptr) const {
    return {at.z, at.y, first, left, order};
  }
  /// Where this thread's row is in an operand of `tiles` tiles a head.
  VC_DEVICE std::int64_t operand_row(int tiles) const {
    return std::int64_t{head} * tiles * kTileRows + first + ptx::thread_index();
  }
  template <int kDim>
  VC_DEVICE void store(std::uint8_t* image, int tiles, const std::uint8_t* shared) const {
    store_image(image + (std::int64_t{head} * tiles * kTileRows + first) * kDim, shared,
                kBlockRows * kDim);
  }
};

/// One float per channel, by the whole block; a block_sync must follow.
template <int kDim>
VC_DEVICE void load_channel_vector(float (&to)[kDim], const float* from, std::uint32_t head) {
  static_assert(kDim % kBlockRows == 0);
  VC_UNROLL
  for (int first = 0; first < kDim; first += kBlockRows) {
    const int c = first + ptx::thread_index();
    ptx::store_shared(&to[c],
                      ptx::load_global_constant<float>(from + std::int64_t{head} * kDim + c));
  }
}

/// The largest magnitude of a head's smoothed keys, as the bits of a float (numerics::abs_max).
template <int kDim, class Source>
struct KeyMaximumKernel {
  static constexpr int kThreads = kBlockRows, kBlocksPerSm = kRowBlocksPerSm<kDim, Source>;
  static constexpr bool kStartsEarly = true;
  struct Params {
    Input k;
    const std::int32_t* lengths = nullptr;
    const float* factor = nullptr;  ///< (batch, kv heads, kDim), as `shift`
    const float* shift = nullptr;
    std::uint32_t* maximum = nullptr;  ///< (batch, kv heads), zero before
  };
  struct SharedStorage {
    RowTile<kDim, Source> tile;
    alignas(16) float factor[kDim];
    alignas(16) float shift[kDim];
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const RowBlock block(p.k.view);
    const int left = key_count(p.lengths, block.at.z, p.k.view.tokens) - block.first;
    if (left <= 0) return;
    shared.tile.template load<kThreads>(p.k, block.rows(left));
    load_channel_vector(shared.factor, p.factor, block.head);
    load_channel_vector(shared.shift, p.shift, block.head);
    shared.tile.wait();
    float x[kDim];
    shared.tile.read_row(ptx::thread_index(), x);
    map_channels<true>(x, shared.factor, shared.shift);
    hadamard_stages<1, kDim / 2>(x);
    const float largest = ptx::thread_index() < left ? largest_before_last_stage(x) : 0.0f;
    const std::int32_t most =
        ptx::warp_max(static_cast<std::int32_t>(numerics::float_bits(largest)));
    if (ptx::lane_index() == 0) {
      ptx::atomic_max(p.maximum + block.head, static_cast<std::uint32_t>(most));
    }
  }
};

/// K: smoothed, permuted, quantized with the head's scale. (key - mean) * inverse balance is one
/// multiply-add: the balance is a power of two, so that one rounding is left.
template <int kDim, class Source, class Format, class Rounding>
struct QuantizeKeysKernel {
  static constexpr int kThreads = kBlockRows,
                       kBlocksPerSm = Rounding::template kBlocksPerSm<kDim, Source>;
  static constexpr bool kStartsEarly = true;
  struct Params {
    Input k;
    const std::int32_t* lengths = nullptr;
    const std::int32_t* order = nullptr;  ///< (batch, kv heads, tokens) or nullptr: position -> key
    const float* factor = nullptr;        ///< inverse balance
    const float* shift = nullptr;         ///< -mean * inverse balance
    const std::uint32_t* maximum = nullptr;
    const std::byte* feedback = nullptr;  ///< (batch, kv heads), if Rounding takes any
    int tiles = 0;
    std::uint8_t* image = nullptr;
  };
  struct SharedStorage : Rounding::template Shared<kDim> {
    RowTile<kDim, Source> tile;
    alignas(16) float factor[kDim];
    alignas(16) float shift[kDim];
    alignas(16) std::uint8_t image[kBlockRows * kDim];
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const RowBlock block(p.k.view);
    const int count = key_count(p.lengths, block.at.z, p.k.view.tokens);
    if (block.first / kTileRows * kTileRows >= count) return;  // a tile that is never read
    const int left = count - block.first, row = ptx::thread_index();
    shared.tile.template load<kThreads>(
        p.k, block.rows(left, p.order == nullptr
                                  ? nullptr
                                  : p.order + std::int64_t{block.head} * p.k.view.tokens));
    load_channel_vector(shared.factor, p.factor, block.head);
    load_channel_vector(shared.shift, p.shift, block.head);
    Rounding::template load<kDim>(shared, p.feedback, block.head);
    const auto bits = ptx::load_global<std::uint32_t>(p.maximum + block.head);
    const float inverse = Format::key_scale(numerics::bits_float(bits)).inverse;
    shared.tile.wait();
    if (row < left) {
      float x[kDim];
      shared.tile.read_row(row, x);
      map_channels<true>(x, shared.factor, shared.shift);
      hadamard_stages<1, kDim / 2>(x);
      Rounding::template encode<Format, kDim>(x, inverse, shared, shared.image, row);
    } else {
      clear_row<kDim>(shared.image, row);
    }
    block.store<kDim>(p.image, p.tiles, shared.image);
  }
};

/// Q: balanced, rotated, quantized row by row.
template <int kDim, class Source, class Format, class Rounding>
struct QuantizeQueriesKernel {
  static constexpr int kThreads = kBlockRows,
                       kBlocksPerSm = Rounding::template kBlocksPerSm<kDim, Source>;
  static constexpr bool kStartsEarly = true;
  struct Params {
    Input q;
    const float* mean = nullptr;             ///< of K: for the LSE
    const float* balance = nullptr;          ///< (batch, kv heads, kDim)
    const std::uint32_t* maximum = nullptr;  ///< of K
    const std::byte* feedback = nullptr;     ///< (batch, kv heads), if Rounding takes any
    float score_scale = 1.0f;
    int group = 1, tiles = 0;
    std::uint8_t* image = nullptr;
    float* row_scale = nullptr;
    float* lse_shift = nullptr;  ///< nullptr: no LSE wanted
  };
  struct SharedStorage : Rounding::template Shared<kDim> {
    RowTile<kDim, Source> tile;
    alignas(16) float balance[kDim];
    alignas(16) float mean[kDim];
    alignas(16) std::uint8_t image[kBlockRows * kDim];
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const RowBlock block(p.q.view);
    const std::uint32_t kv_head = block.head / static_cast<std::uint32_t>(p.group);
    shared.tile.template load<kThreads>(p.q, block.rows(p.q.view.tokens - block.first));
    load_channel_vector(shared.balance, p.balance, kv_head);
    if (p.lse_shift != nullptr) load_channel_vector(shared.mean, p.mean, kv_head);
    Rounding::template load<kDim>(shared, p.feedback, kv_head);
    const auto bits = ptx::load_global<std::uint32_t>(p.maximum + kv_head);
    const float k_scale = Format::key_scale(numerics::bits_float(bits)).scale;
    const int row = ptx::thread_index();
    shared.tile.wait();
    if (p.lse_shift != nullptr) {
      ptx::store_global(p.lse_shift + block.operand_row(p.tiles),
                        mean_score(shared, row) * p.score_scale);
    }
    float x[kDim];
    shared.tile.read_row(row, x);
    map_channels<false>(x, shared.balance, shared.balance);
    hadamard_stages<1, kDim / 2>(x);
    const QueryScale scale =
        Format::query_scale(largest_before_last_stage(x),
                            numerics::mul_rn(p.score_scale, numerics::kCodesPerNat), k_scale);
    ptx::store_global(p.row_scale + block.operand_row(p.tiles) * 2,
                      ptx::Vec<float, 2>{{scale.multiplier, scale.span}});
    Rounding::template encode<Format, kDim>(x, scale.inverse, shared, shared.image, row);
    block.store<kDim>(p.image, p.tiles, shared.image);
  }

 private:
  /// What the mean key took from the scores of a row.
  VC_DEVICE static float mean_score(const SharedStorage& shared, int row) {
    float sum[4] = {};
    VC_NO_UNROLL
    for (int c = 0; c < kDim; c += kPacket) {
      const Channels x = shared.tile.read(row, c);
      VC_UNROLL
      for (int half = 0; half < kPacket; half += 4) {
        const auto mean = ptx::load_shared<ptx::Vec<float, 4>>(&shared.mean[c + half]);
        VC_UNROLL
        for (int i = 0; i < 4; ++i) sum[i] = numerics::fma_rn(x[half + i], mean[i], sum[i]);
      }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
};

}  // namespace vcattn::cuda::prepare
