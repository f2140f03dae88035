// Channel statistics of Q and K: the mean key and the power-of-two balance of channels. Sums are
// taken in an order that depends on nothing but the shape, so that results repeat bit for bit.
#pragma once

#include "cuda/prepare/rows.cuh"

namespace vcattn::cuda::prepare {

/// Per tile of 128 rows and channel: the sum, and the sum of squares.
template <int kDim, class Source>
struct TileSumsKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = kIsPacked<Source> ? 4 : 2;
  struct Params {
    Input x;
    const std::int32_t* lengths = nullptr;
    int tiles = 0;          ///< per head, in `sums`
    int stride = 1;         ///< every stride-th tile is summed: a sample
    float* sums = nullptr;  ///< (batch, heads, tiles, 2, kDim)
  };
  using Split = RowSplit<kDim, kThreads>;
  struct SharedStorage {
    alignas(16) float partial[2][Split::kBlockRows][kDim];
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const ptx::Index3 tile = tile_index(/*backwards=*/false);
    const int first = tile.x * p.stride * kTileRows;
    const TileRows rows{tile.z, tile.y, first,
                        key_count(p.lengths, tile.z, p.x.view.tokens) - first};
    Channels sum = {}, squares = {};
    for_each_row<Split, Source, kIsPacked<Source> ? kDim / 16 : 2>(
        p.x, rows, [&](int, const Channels& x) {
          VC_UNROLL
          for (int c = 0; c < kPacket; ++c) {
            sum[c] += x[c];
            squares[c] = numerics::fma_rn(x[c], x[c], squares[c]);
          }
        });
    VC_UNROLL
    for (int c = 0; c < kPacket; ++c) {
      const int row = Split::row(0), channel = Split::first_channel() + c;
      ptx::store_shared(&shared.partial[0][row][channel], sum[c]);
      ptx::store_shared(&shared.partial[1][row][channel], squares[c]);
    }
    ptx::block_sync();
    if (ptx::thread_index() >= 2 * kDim) return;
    const int which = ptx::thread_index() / kDim, channel = ptx::thread_index() % kDim;
    float total = 0.0f;
    for (int r = 0; r < Split::kBlockRows; ++r) {
      total += ptx::load_shared<float>(&shared.partial[which][r][channel]);
    }
    const std::int64_t at =
        (static_cast<std::int64_t>(tile.z) * p.x.view.heads + tile.y) * p.tiles + tile.x;
    ptx::store_global(p.sums + at * 2 * kDim + ptx::thread_index(), total);
  }
};

/// From the tile sums: the mean key and the balance of one KV head, in double precision. Several
/// threads share the tiles of a channel.
template <int kDim>
struct ChannelStatisticsKernel {
  static constexpr int kThreads = 1024, kBlocksPerSm = 1, kParts = kThreads / kDim;
  struct Params {
    const float* k_sums = nullptr;
    const float* q_sums = nullptr;  ///< nullptr: no balance
    const std::int32_t* lengths = nullptr;
    int k_tiles = 0, q_tiles = 0, q_sampled = 0, group = 1, kv_heads = 0, skv = 0;
    float* mean = nullptr;             ///< (batch, kv heads, kDim)
    float* balance = nullptr;          ///< multiplies Q; the same shape
    float* inverse_balance = nullptr;  ///< multiplies K
  };
  struct SharedStorage {
    double partial[3][kParts][kDim];
  };

  /// This part's share of a sum over tiles.
  VC_DEVICE static double share(const float* sums, int tiles) {
    const int channel = ptx::thread_index() % kDim, part = ptx::thread_index() / kDim;
    double sum = 0.0;
    for (int t = part; t < tiles; t += kParts) {
      sum += ptx::load_global<float>(sums + std::int64_t{t} * 2 * kDim + channel);
    }
    return sum;
  }

  VC_DEVICE static double total(const double (&partial)[kParts][kDim], int channel) {
    double sum = 0.0;
    for (int i = 0; i < kParts; ++i) sum += ptx::load_shared<double>(&partial[i][channel]);
    return sum;
  }

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const ptx::Index3 block = ptx::block_index();
    const std::int64_t head = static_cast<std::int64_t>(block.y) * p.kv_heads + block.x;
    const int count = key_count(p.lengths, block.y, p.skv);
    const int tiles = (count + kTileRows - 1) / kTileRows;
    const int channel = ptx::thread_index() % kDim, part = ptx::thread_index() / kDim;
    const float* sums = p.k_sums + head * p.k_tiles * 2 * kDim;
    ptx::store_shared(&shared.partial[0][part][channel], share(sums, tiles));
    ptx::store_shared(&shared.partial[1][part][channel], share(sums + kDim, tiles));
    double q_energy = 0.0;
    if (p.q_sums != nullptr) {
      for (int h = 0; h < p.group; ++h) {
        const std::int64_t q_head = head * p.group + h;
        q_energy += share(p.q_sums + q_head * p.q_tiles * 2 * kDim + kDim, p.q_tiles);
      }
    }
    ptx::store_shared(&shared.partial[2][part][channel], q_energy);
    ptx::block_sync();
    if (part != 0) return;
    const double n = count > 0 ? count : 1;
    const double mean = total(shared.partial[0], channel) / n;
    const double energy = total(shared.partial[1], channel) / n - mean * mean;
    const std::int64_t at = head * kDim + channel;
    ptx::store_global(p.mean + at, static_cast<float>(mean));
    float factor = 1.0f;
    if (p.q_sums != nullptr) {
      const double rows = static_cast<double>(p.q_sampled) * p.group;
      factor = power_of_two(energy * rows / total(shared.partial[2], channel));
    }
    ptx::store_global(p.balance + at, factor);
    ptx::store_global(p.inverse_balance + at, 1.0f / factor);
  }

  /// The power of two nearest to ratio^(1/4): sqrt(rms(k) / rms(q)) of a ratio of energies.
  VC_DEVICE static float power_of_two(double ratio) {
    const float r = static_cast<float>(ratio);
    if (!numerics::is_finite(r) || !(r > 0.0f)) return 1.0f;
    const float exponent = numerics::rne(0.25f * ptx::log2_approx(r));
    return numerics::exp2_int(static_cast<int>(numerics::clip(exponent, -60.0f, 60.0f)));
  }
};

}  // namespace vcattn::cuda::prepare
