// V to the image the attention kernel reads: permuted, block means removed, E4M3 with one scale per
// channel, transposed; and the means themselves.
#pragma once

#include "cuda/prepare/tile.cuh"
#include "cuda/sm90/layout.h"
#include "vcattn/numerics/quantizer.h"
#include "vcattn/numerics/tf32.h"
#include "vcattn/numerics/v_smooth.h"

namespace vcattn::cuda::prepare {

struct ValueParams {
  Input v;
  const std::int32_t* lengths = nullptr;
  const std::int32_t* order = nullptr;  ///< as for K
  bool demean = true, refit = true;
  int tiles = 0, mean_groups = 0;
  float* block_mean = nullptr;       ///< (batch, kv heads, tiles, kDim), not rounded
  std::uint32_t* maximum = nullptr;  ///< (batch, kv heads, kDim): bits of the largest |residual|
  std::uint8_t* image = nullptr;
  float* means = nullptr;
  float* scale = nullptr;        ///< (batch, kv heads, kDim)
  std::uint8_t* ones = nullptr;  ///< (batch): the column of ones of the last tile
};

/// The rows of V a block works on.
struct ValueTile {
  TileRows rows;
  int index, valid;  ///< of the head's tiles; rows there are
  bool is_last;
  std::int64_t kv_head;

  VC_DEVICE explicit ValueTile(const ValueParams& p) {
    const ptx::Index3 tile = ptx::block_index();
    index = tile.x;
    kv_head = static_cast<std::int64_t>(tile.z) * p.v.view.heads + tile.y;
    const int first = index * kTileRows;
    const int left = key_count(p.lengths, tile.z, p.v.view.tokens) - first;
    rows = {tile.z, tile.y, first, left,
            p.order == nullptr ? nullptr : p.order + kv_head * p.v.view.tokens};
    valid = left < kTileRows ? (left < 0 ? 0 : left) : kTileRows;
    is_last = left <= kTileRows;
  }
};

/// A residual this far below the mean is not worth a smaller scale.
inline constexpr float kLeastResidual = 5.9604644775390625e-8f;  // 2^-24

/// First pass: block means, and the largest residual of every channel. It is that of the largest or
/// of the smallest value, rounding being monotone, so that a value is looked at once.
template <int kDim, class Source>
struct ValueStatisticsKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = kIsPacked<Source> ? 4 : 2;
  static constexpr bool kStartsEarly = true;
  using Params = ValueParams;
  using Split = RowSplit<kDim, kThreads>;
  struct SharedStorage {
    alignas(16) float sum[Split::kBlockRows][kDim];
    alignas(16) float most[Split::kBlockRows][kDim];
    alignas(16) float least[Split::kBlockRows][kDim];
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const ValueTile tile(p);
    if (tile.valid == 0) return;
    Channels sum = {}, most, least;
    VC_UNROLL
    for (int c = 0; c < kPacket; ++c) {
      most[c] = -numerics::infinity();
      least[c] = numerics::infinity();
    }
    for_each_row<Split, Source, kIsPacked<Source> ? kDim / 16 : 2>(
        p.v, tile.rows, [&](int row, const Channels& x) {
          if (row >= tile.valid) return;
          VC_UNROLL
          for (int c = 0; c < kPacket; ++c) {
            sum[c] = numerics::block_mean_accumulate(sum[c], x[c]);
            most[c] = numerics::max_nan(most[c], x[c]);
            least[c] = numerics::min_nan(least[c], x[c]);
          }
        });
    VC_UNROLL
    for (int half = 0; half < kPacket; half += 4) {
      store_four(&shared.sum[Split::row(0)][Split::first_channel() + half], sum, half);
      store_four(&shared.most[Split::row(0)][Split::first_channel() + half], most, half);
      store_four(&shared.least[Split::row(0)][Split::first_channel() + half], least, half);
    }
    ptx::block_sync();
    if (ptx::thread_index() < kDim) finish(p, tile, shared, ptx::thread_index());
  }

 private:
  VC_DEVICE static void store_four(float* to, const Channels& x, int first) {
    ptx::store_shared(to, ptx::Vec<float, 4>{{x[first], x[first + 1], x[first + 2], x[first + 3]}});
  }

  VC_DEVICE static void finish(const Params& p, const ValueTile& tile, const SharedStorage& shared,
                               int channel) {
    float sum = 0.0f, most = -numerics::infinity(), least = numerics::infinity();
    for (int r = 0; r < Split::kBlockRows; ++r) {
      sum += ptx::load_shared<float>(&shared.sum[r][channel]);
      most = numerics::max_nan(most, ptx::load_shared<float>(&shared.most[r][channel]));
      least = numerics::min_nan(least, ptx::load_shared<float>(&shared.least[r][channel]));
    }
    const float block_mean = p.demean ? numerics::block_mean_exact(sum, tile.valid) : 0.0f;
    ptx::store_global(p.block_mean + (tile.kv_head * p.tiles + tile.index) * kDim + channel,
                      block_mean);
    const float mean = numerics::bf16_to_float(numerics::block_mean_round(block_mean));
    // The mean is restored in units of the scale: a channel of equal values must not overflow it.
    float residual = numerics::abs_max(0.0f, numerics::mul_rn(mean, kLeastResidual));
    residual = numerics::abs_max(residual, numerics::block_residual(most, mean));
    residual = numerics::abs_max(residual, numerics::block_residual(least, mean));
    ptx::atomic_max(p.maximum + tile.kv_head * kDim + channel, numerics::float_bits(residual));
  }
};

/// Second pass: codes and means.
template <int kDim, class Source>
struct QuantizeValuesKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = kIsPacked<Source> ? 5 : 2;
  static constexpr bool kStartsEarly = true;
  static constexpr int kMeanGroup = sm90::kMeanGroup;
  static constexpr int kPart = kThreads / ptx::kWarpSize * kPacket;  ///< channels at a time
  static constexpr int kPartBytes = kPart * kTileRows;
  using Params = ValueParams;
  struct SharedStorage {
    Tile<kDim, Source> tile;
    alignas(16) std::uint8_t image[kPartBytes];  ///< of a part: more blocks fit
    float mean[kDim], inverse[kDim];
    float decoded[kDim];  ///< per channel, the sum of what its codes stand for
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const ValueTile tile(p);
    if (tile.valid == 0) return;
    shared.tile.template load<kThreads>(p.v, tile.rows);
    const int thread = ptx::thread_index();
    float block_mean = 0.0f;
    if (thread < kDim) {
      const std::int64_t at = tile.kv_head * kDim + thread;
      const auto bits = ptx::load_global<std::uint32_t>(p.maximum + at);
      const numerics::QuantScale scale = numerics::e4m3_scale(numerics::bits_float(bits));
      if (tile.index == 0) ptx::store_global(p.scale + at, scale.scale);
      block_mean = ptx::load_global_constant<float>(
          p.block_mean + (tile.kv_head * p.tiles + tile.index) * kDim + thread);
      ptx::store_shared(&shared.inverse[thread], scale.inverse);
      ptx::store_shared(&shared.mean[thread],
                        numerics::bf16_to_float(numerics::block_mean_round(block_mean)));
    }
    shared.tile.wait();
    std::uint8_t* image =
        p.image + (tile.kv_head * p.tiles + tile.index) * std::int64_t{kDim * kTileRows};
    VC_NO_UNROLL
    for (int part = 0; part < kDim; part += kPart) {
      if (part > 0) ptx::block_sync();  // the image of the part before has been read
      if (tile.valid == kTileRows) {
        quantize<false>(shared, part, kTileRows);
      } else {
        quantize<true>(shared, part, tile.valid);
      }
      store_image(image + part * kTileRows, shared.image, kPartBytes);
    }
    if (thread < kDim) store_means(p, tile, shared, block_mean);
    if (tile.is_last && tile.rows.head == 0) store_ones(p, tile);
  }

 private:
  /// kPart channels of the tile, eight by a warp, 32 tokens at a time: lane 4g + t has channel g.
  template <bool kPartial>
  VC_DEVICE static void quantize(SharedStorage& shared, int part, int valid) {
    const int lane = ptx::lane_index();
    const int row = ptx::thread_index() / ptx::kWarpSize * kPacket;  // of the image: warp's first
    const int first = part + row, channel = first + lane / 4;
    const float mean = ptx::load_shared<float>(&shared.mean[channel]);
    const float inverse = ptx::load_shared<float>(&shared.inverse[channel]);
    constexpr std::uint32_t kOnes[4] = {0x3C003C00u, 0x3C003C00u, 0x3C003C00u, 0x3C003C00u};
    float sums[4] = {};
    VC_UNROLL
    for (int token = 0; token < kTileRows; token += 32) {
      float x[8];
      shared.tile.read_columns(token, first, x);
      VC_UNROLL
      for (int i = 0; i < 8; ++i) {
        x[i] = numerics::mul_rn(numerics::block_residual(x[i], mean), inverse);
        if (kPartial && token + 8 * (i / 2) + 2 * (lane % 4) + i % 2 >= valid) x[i] = 0.0f;
      }
      VC_UNROLL
      for (int half = 0; half < 2; ++half) {
        const std::uint16_t lo = ptx::e4m3x2_from_floats(x[4 * half], x[4 * half + 1]);
        const std::uint16_t hi = ptx::e4m3x2_from_floats(x[4 * half + 2], x[4 * half + 3]);
        // The four tokens of a slot's word.
        const int at = sm90::value_offset(row + lane / 4, token + 16 * half + 2 * (lane % 4));
        ptx::store_shared(&shared.image[at],
                          static_cast<std::uint32_t>(lo) | static_cast<std::uint32_t>(hi) << 16);
        const std::uint32_t decoded[2] = {ptx::f16x2_from_e4m3x2(lo), ptx::f16x2_from_e4m3x2(hi)};
        ptx::mma_f16(sums, kOnes, decoded);
      }
    }
    if (lane < 4) {
      ptx::store_shared(&shared.decoded[first + 2 * lane], sums[0]);
      ptx::store_shared(&shared.decoded[first + 2 * lane + 1], sums[1]);
    }
  }

  /// This thread's channel of the means, in units of the channel's scale, as the tf32 product takes
  /// them; zero behind the last tile of a group that is not full. With refit, what the codes decode
  /// to has the mean that the values had.
  VC_DEVICE static void store_means(const Params& p, const ValueTile& tile,
                                    const SharedStorage& shared, float block_mean) {
    const int channel = ptx::thread_index();
    const int group = tile.index / kMeanGroup, slot = tile.index % kMeanGroup;
    float* means =
        p.means + (tile.kv_head * p.mean_groups + group) * std::int64_t{kMeanGroup * kDim};
    float mean = 0.0f;
    if (p.demean) {
      const float inverse = ptx::load_shared<float>(&shared.inverse[channel]);
      if (p.refit) {
        mean = numerics::mul_rn(block_mean, inverse) -
               ptx::load_shared<float>(&shared.decoded[channel]) / static_cast<float>(tile.valid);
      } else {
        mean = numerics::mul_rn(ptx::load_shared<float>(&shared.mean[channel]), inverse);
      }
    }
    const int end = tile.is_last ? kMeanGroup : slot + 1;
    for (int s = slot; s < end; ++s) {
      ptx::store_global(means + sm90::mean_offset(channel, s),
                        s == slot ? numerics::tf32_round_away(mean) : 0.0f);
    }
  }

  VC_DEVICE static void store_ones(const Params& p, const ValueTile& tile) {
    std::uint8_t* ones = p.ones + std::int64_t{tile.rows.batch} * sm90::kOnesBytes;
    for (int i = ptx::thread_index(); i < sm90::kOnesBytes; i += kThreads) {
      const int row = i / kTileRows, token = i % kTileRows;
      const std::uint8_t value = token < tile.valid ? sm90::kE4m3One : std::uint8_t{0};
      ptx::store_global(ones + sm90::ones_offset(row, token), value);
    }
  }
};

}  // namespace vcattn::cuda::prepare
