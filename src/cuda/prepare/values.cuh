// V to the image the attention kernel reads: permuted, block means removed, E4M3 with one scale per
// channel, transposed; and the means themselves.
#pragma once

#include "cuda/prepare/rows.cuh"
#include "cuda/sm90/layout.h"
#include "vcattn/numerics/quantizer.h"
#include "vcattn/numerics/tf32.h"
#include "vcattn/numerics/v_smooth.h"

namespace vcattn::cuda::prepare {

struct ValueParams {
  InputView v;
  const std::int32_t* lengths = nullptr;
  const std::int32_t* order = nullptr;  ///< as for K
  bool demean = true, refit = true;
  int tiles = 0, mean_groups = 0;
  std::uint32_t* maximum = nullptr;  ///< (batch, kv heads, kDim): bits of the largest |residual|
  std::uint8_t* image = nullptr;
  float* means = nullptr;
  float* scale = nullptr;        ///< (batch, kv heads, kDim)
  std::uint8_t* ones = nullptr;  ///< (batch): the column of ones of the last tile
};

template <int kDim>
struct ValueStorage {
  static constexpr int kPitch = kDim + 4;  ///< columns of 16 bytes fall into different banks
  alignas(16) float tile[kTileRows][kPitch];
  alignas(16) float partial[kThreads];
  alignas(16) float mean[kDim];
};

template <int kDim>
struct QuantizeStorage : ValueStorage<kDim> {
  alignas(16) std::uint8_t image[kDim * kTileRows];
  alignas(16) float inverse[kDim];
};

/// A tile of V in shared memory, and its block mean; what both passes share.
template <int kDim>
struct ValueTile {
  const ValueParams& p;
  ValueStorage<kDim>& shared;
  int batch, head, index, count, valid;
  std::int64_t kv_head;

  VC_DEVICE ValueTile(const ValueParams& params, ValueStorage<kDim>& storage)
      : p(params), shared(storage) {
    const ptx::Index3 block = ptx::block_index();
    index = block.x;
    head = block.y;
    batch = block.z;
    count = key_count(p.lengths, batch, p.v.tokens);
    const int left = count - index * kTileRows;
    valid = left < kTileRows ? (left < 0 ? 0 : left) : kTileRows;
    kv_head = static_cast<std::int64_t>(batch) * p.v.heads + head;
  }

  /// Rows in processing order; zeros behind the last.
  VC_DEVICE void load() {
    using Split = WideSplit<kDim>;
    for_each_row<Split>(
        p.v,
        [&](int row) {
          if (row >= valid) return std::int64_t{-1};
          const int position = index * kTileRows + row;
          const int token = p.order == nullptr ? position
                                               : ptx::load_global_constant<std::int32_t>(
                                                     p.order + kv_head * p.v.tokens + position);
          return p.v.row_offset(batch, head, token);
        },
        [&](int row, const typename Split::Share& x) {
          VC_UNROLL
          for (int half = 0; half < 2; ++half) {
            const ptx::Vec<float, 4> four{
                {x[4 * half], x[4 * half + 1], x[4 * half + 2], x[4 * half + 3]}};
            ptx::store_shared(&shared.tile[row][Split::first_channel() + 4 * half], four);
          }
        });
    ptx::block_sync();
  }

  /// Mean of every channel (zeros without demean).
  VC_DEVICE void find_means() {
    constexpr int kParts = kThreads / kDim, kPartRows = kTileRows / kParts;
    const int channel = ptx::thread_index() % kDim, part = ptx::thread_index() / kDim;
    float sum = 0.0f;
    if (p.demean) {
      for (int r = part * kPartRows; r < (part + 1) * kPartRows; ++r) {
        sum =
            numerics::block_mean_accumulate(sum, ptx::load_shared<float>(&shared.tile[r][channel]));
      }
    }
    ptx::store_shared(&shared.partial[ptx::thread_index()], sum);
    ptx::block_sync();
    if (part == 0) {
      for (int i = 1; i < kParts; ++i) {
        sum += ptx::load_shared<float>(&shared.partial[i * kDim + channel]);
      }
      ptx::store_shared(&shared.mean[channel],
                        numerics::bf16_to_float(numerics::block_mean_finish(sum, valid)));
    }
    ptx::block_sync();
  }
};

/// A residual this far below the mean is not worth a smaller scale.
inline constexpr float kLeastResidual = 5.9604644775390625e-8f;  // 2^-24

/// First pass: the largest residual of every channel.
template <int kDim>
struct ValueMaximumKernel {
  static constexpr int kThreads = prepare::kThreads, kBlocksPerSm = 3;
  using Params = ValueParams;
  using SharedStorage = ValueStorage<kDim>;

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    ValueTile<kDim> tile(p, shared);
    if (tile.valid == 0) return;
    tile.load();
    tile.find_means();
    constexpr int kParts = kThreads / kDim;
    const int channel = ptx::thread_index() % kDim, part = ptx::thread_index() / kDim;
    const float mean = ptx::load_shared<float>(&shared.mean[channel]);
    float most = 0.0f;
    for (int r = part; r < tile.valid; r += kParts) {
      const float x = ptx::load_shared<float>(&shared.tile[r][channel]);
      most = numerics::abs_max(most, numerics::block_residual(x, mean));
    }
    // The mean is restored in units of the scale: a channel of equal values must not overflow it.
    most = numerics::abs_max(most, numerics::mul_rn(mean, kLeastResidual));
    ptx::atomic_max(p.maximum + tile.kv_head * kDim + channel, numerics::float_bits(most));
  }
};

/// Second pass: codes and means.
template <int kDim>
struct QuantizeValuesKernel {
  static constexpr int kThreads = prepare::kThreads, kBlocksPerSm = 2;
  static constexpr int kMeanGroup = sm90::kMeanGroup;
  using Params = ValueParams;
  using SharedStorage = QuantizeStorage<kDim>;

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    ValueTile<kDim> tile(p, shared);
    if (tile.valid == 0) return;
    tile.load();
    tile.find_means();
    const int thread = ptx::thread_index();
    if (thread < kDim) {
      const std::int64_t at = tile.kv_head * kDim + thread;
      const auto bits = ptx::load_global<std::uint32_t>(p.maximum + at);
      const numerics::QuantScale scale = numerics::e4m3_scale(numerics::bits_float(bits));
      ptx::store_shared(&shared.inverse[thread], scale.inverse);
      if (tile.index == 0) ptx::store_global(p.scale + at, scale.scale);
    }
    ptx::block_sync();
    constexpr int kWarps = kThreads / ptx::kWarpSize;
    for (int first = thread / ptx::kWarpSize * kPacket; first < kDim; first += kWarps * kPacket) {
      quantize(tile, shared, first);
    }
    ptx::block_sync();
    std::uint8_t* image = p.image + (tile.kv_head * p.tiles + tile.index) * (kDim * kTileRows);
    for (int i = thread; i < kDim * kTileRows / 16; i += kThreads) {
      ptx::store_global(image + 16 * i,
                        ptx::load_shared<ptx::Vec<std::uint32_t, 4>>(&shared.image[16 * i]));
    }
    const bool last = (tile.index + 1) * kTileRows >= tile.count;
    store_means(tile, shared, last);
    if (last && tile.head == 0) store_ones(tile);
  }

 private:
  /// Eight channels of the whole tile by one warp: a lane takes the four tokens of one word.
  VC_DEVICE static void quantize(const ValueTile<kDim>& tile, SharedStorage& shared, int first) {
    const int lane = ptx::lane_index();
    // Slots 4 lane .. 4 lane + 3: tokens base + {0, 1, 8, 9}.
    const int base = (lane >> 3) * 32 + ((lane >> 2) & 1) * 16 + (lane & 3) * 2;
    float scaled[4][kPacket];
    VC_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int channel = first + 4 * half;
      const auto mean = ptx::load_shared<ptx::Vec<float, 4>>(&shared.mean[channel]);
      const auto inverse = ptx::load_shared<ptx::Vec<float, 4>>(&shared.inverse[channel]);
      VC_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int token = base + (i >> 1) * 8 + (i & 1);
        const auto x = ptx::load_shared<ptx::Vec<float, 4>>(&shared.tile[token][channel]);
        VC_UNROLL
        for (int c = 0; c < 4; ++c) {
          const float residual = numerics::block_residual(x[c], mean[c]);
          scaled[i][4 * half + c] = numerics::mul_rn(residual, inverse[c]);
        }
      }
    }
    if (tile.valid < kTileRows) clear_padding(scaled, base, tile.valid);
    float error[kPacket];
    VC_UNROLL
    for (int c = 0; c < kPacket; ++c) {
      const std::uint16_t lo = ptx::e4m3x2_from_floats(scaled[0][c], scaled[1][c]);
      const std::uint16_t hi = ptx::e4m3x2_from_floats(scaled[2][c], scaled[3][c]);
      const int channel = first + c, slot = 4 * lane;
      ptx::store_shared(
          &shared.image[channel * 128 + (((slot >> 4) ^ (channel & 7)) << 4) + (slot & 15)],
          static_cast<std::uint32_t>(lo) | static_cast<std::uint32_t>(hi) << 16);
      error[c] = rounding_error(scaled[0][c], scaled[1][c], lo) +
                 rounding_error(scaled[2][c], scaled[3][c], hi);
    }
    if (tile.p.demean && tile.p.refit) refit(tile, shared, first, error);
  }

  VC_DEVICE static void clear_padding(float (&scaled)[4][kPacket], int base, int valid) {
    VC_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (base + (i >> 1) * 8 + (i & 1) < valid) continue;
      VC_UNROLL
      for (int c = 0; c < kPacket; ++c) scaled[i][c] = 0.0f;
    }
  }

  /// What two codes are short of two values.
  VC_DEVICE static float rounding_error(float a, float b, std::uint16_t codes) {
    const std::uint32_t decoded = ptx::f16x2_from_e4m3x2(codes);
    return (a - ptx::float_from_f16(static_cast<std::uint16_t>(decoded & 0xFFFFu))) +
           (b - ptx::float_from_f16(static_cast<std::uint16_t>(decoded >> 16)));
  }

  /// Adds the mean rounding error of a block to its mean, in units of the channel's scale. Each
  /// exchange halves the channels a lane sums for, until four lanes share one.
  VC_DEVICE static void refit(const ValueTile<kDim>& tile, SharedStorage& shared, int first,
                              float (&error)[kPacket]) {
    const int lane = ptx::lane_index();
    VC_UNROLL
    for (int left = kPacket / 2, bit = 16; left > 0; left /= 2, bit /= 2) {
      const bool upper = (lane & bit) != 0;
      VC_UNROLL
      for (int c = 0; c < left; ++c) {
        const float kept = upper ? error[c + left] : error[c];
        const float sent = upper ? error[c] : error[c + left];
        error[c] = kept + ptx::shuffle_xor(sent, bit);
      }
    }
    float sum = error[0];
    sum += ptx::shuffle_xor(sum, 2);
    sum += ptx::shuffle_xor(sum, 1);
    if ((lane & 3) == 0) {
      ptx::store_shared(&shared.partial[first + (lane >> 2)], sum / static_cast<float>(tile.valid));
    }
  }

  /// Means in units of the channel's scale, as the tf32 product takes them; zero behind the last
  /// tile of a group that is not full.
  VC_DEVICE static void store_means(const ValueTile<kDim>& tile, SharedStorage& shared, bool last) {
    const int channel = ptx::thread_index();
    if (channel >= kDim) return;
    const int group = tile.index / kMeanGroup, slot = tile.index % kMeanGroup;
    float* means = tile.p.means +
                   (tile.kv_head * tile.p.mean_groups + group) * std::int64_t{kMeanGroup * kDim};
    float mean = 0.0f;
    if (tile.p.demean) {
      const float inverse = ptx::load_shared<float>(&shared.inverse[channel]);
      mean = numerics::mul_rn(ptx::load_shared<float>(&shared.mean[channel]), inverse);
      if (tile.p.refit) mean += ptx::load_shared<float>(&shared.partial[channel]);
    }
    const int end = last ? kMeanGroup : slot + 1;
    for (int s = slot; s < end; ++s) {
      ptx::store_global(means + sm90::mean_offset(channel, s),
                        s == slot ? numerics::tf32_round_away(mean) : 0.0f);
    }
  }

  VC_DEVICE static void store_ones(const ValueTile<kDim>& tile) {
    std::uint8_t* ones = tile.p.ones + std::int64_t{tile.batch} * sm90::kOnesBytes;
    for (int i = ptx::thread_index(); i < sm90::kOnesBytes; i += kThreads) {
      const int row = i / kTileRows, token = i % kTileRows;
      const std::uint8_t value = token < tile.valid ? sm90::kE4m3One : std::uint8_t{0};
      ptx::store_global(ones + sm90::ones_offset(row, token), value);
    }
  }
};

}  // namespace vcattn::cuda::prepare
