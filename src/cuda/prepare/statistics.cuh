// Channel statistics of Q and K: the mean key and the power-of-two balance of channels. Sums are
// taken in an order that depends on nothing but the shape, so that results repeat bit for bit.
#pragma once

#include "cuda/prepare/rows.cuh"

namespace vcattn::cuda::prepare {

/// Per 128 rows of the sample and channel: the sum, and the sum of squares.
template <int kDim, class Source>
struct TileSumsKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = kIsPacked<Source> ? 4 : 2;
  static constexpr bool kStartsEarly = true;
  struct Params {
    Input x;
    const std::int32_t* lengths = nullptr;
    int tiles = 0;          ///< per head, in `sums`
    float* sums = nullptr;  ///< (batch, heads, tiles, 2, kDim); those behind the sample are left
  };
  using Split = RowSplit<kDim, kThreads>;
  struct SharedStorage {
    alignas(16) float partial[2][Split::kBlockRows][kDim];
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const ptx::Index3 tile = ptx::block_index();
    const int first = tile.x * kTileRows;
    const auto sample = numerics::row_sample(key_count(p.lengths, tile.z, p.x.view.tokens), true);
    if (first >= sample.count) return;
    const TileRows rows{tile.z, tile.y, first, sample.count - first, nullptr, sample};
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

/// From the tile sums: mean key and balance of 32 channels of one KV head, in double precision.
template <int kDim>
struct ChannelStatisticsKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = 2;
  static constexpr bool kStartsEarly = true;
  static constexpr int kChannels = 32, kSlices = kDim / kChannels;
  static constexpr int kParts = kThreads / (kChannels / 4);  ///< that share the tiles of a channel
  struct Params {
    const float* k_sums = nullptr;
    const float* q_sums = nullptr;  ///< nullptr: no balance
    const std::int32_t* lengths = nullptr;
    int k_tiles = 0, q_tiles = 0;  ///< of a head, in the sums
    int group = 1, kv_heads = 0, sq = 0, skv = 0;
    float* mean = nullptr;             ///< (batch, kv heads, kDim), as all
    float* balance = nullptr;          ///< multiplies Q
    float* inverse_balance = nullptr;  ///< multiplies K
    float* shift = nullptr;            ///< is added to K then: -mean * inverse balance
    // Zeroed for the passes that follow: the largest magnitude of a head's keys, of a channel of V.
    std::uint32_t* key_maximum = nullptr;    ///< (batch, kv heads)
    std::uint32_t* value_maximum = nullptr;  ///< (batch, kv heads, kDim)
  };
  enum Quantity { kSum, kSquares, kQuerySquares, kQuantities };
  struct SharedStorage {
    double partial[kQuantities][kParts][kChannels];
    double total[kQuantities][kChannels];
  };
  struct Four {
    double v[4] = {};
    VC_DEVICE void add(const float* from) {
      const auto x = ptx::load_global_constant<ptx::Vec<float, 4>>(from);
      VC_UNROLL
      for (int i = 0; i < 4; ++i) v[i] += x[i];
    }
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const ptx::Index3 block = ptx::block_index();
    const std::int64_t head = static_cast<std::int64_t>(block.y) * p.kv_heads + block.x / kSlices;
    const int first = block.x % kSlices * kChannels, thread = ptx::thread_index();
    const int count = numerics::row_sample(key_count(p.lengths, block.y, p.skv), true).count;
    const auto tiles = [](int rows) { return (rows + kTileRows - 1) / kTileRows; };
    const int queries = numerics::row_sample(p.sq, true).count;
    add_tiles(p, shared, head, first, tiles(count), tiles(queries));
    ptx::block_sync();
    if (thread < kQuantities * kChannels) {
      const int quantity = thread / kChannels, channel = thread % kChannels;
      double sum = 0.0;
      for (int i = 0; i < kParts; ++i) {
        sum += ptx::load_shared<double>(&shared.partial[quantity][i][channel]);
      }
      ptx::store_shared(&shared.total[quantity][channel], sum);
    }
    ptx::block_sync();
    if (thread < kChannels) {
      finish(p, shared, head * kDim + first, thread, count, queries);
      ptx::store_global(p.value_maximum + head * kDim + first + thread, std::uint32_t{0});
    }
    if (first + thread == 0) ptx::store_global(p.key_maximum + head, std::uint32_t{0});
  }

 private:
  /// This thread's share of the tiles, four channels of it.
  VC_DEVICE static void add_tiles(const Params& p, SharedStorage& shared, std::int64_t head,
                                  int first, int k_tiles, int q_tiles) {
    const int part = ptx::thread_index() / (kChannels / 4);
    const int channel = ptx::thread_index() % (kChannels / 4) * 4;
    Four four[kQuantities];
    const float* sums = p.k_sums + head * p.k_tiles * 2 * kDim + first + channel;
    for (int t = part; t < k_tiles; t += kParts) {
      four[kSum].add(sums + std::int64_t{t} * 2 * kDim);
      four[kSquares].add(sums + std::int64_t{t} * 2 * kDim + kDim);
    }
    if (p.q_sums != nullptr) {
      const float* squares =
          p.q_sums + head * p.group * p.q_tiles * 2 * kDim + kDim + first + channel;
      for (int h = 0; h < p.group; ++h, squares += std::int64_t{p.q_tiles} * 2 * kDim) {
        for (int t = part; t < q_tiles; t += kParts) {
          four[kQuerySquares].add(squares + std::int64_t{t} * 2 * kDim);
        }
      }
    }
    for (int q = 0; q < kQuantities; ++q) {
      for (int i = 0; i < 4; ++i) {
        ptx::store_shared(&shared.partial[q][part][channel + i], four[q].v[i]);
      }
    }
  }

  VC_DEVICE static void finish(const Params& p, const SharedStorage& shared, std::int64_t at,
                               int channel, int count, int queries) {
    const auto total = [&](Quantity q) {
      return ptx::load_shared<double>(&shared.total[q][channel]);
    };
    const double n = count > 0 ? count : 1;
    const double mean = total(kSum) / n, energy = total(kSquares) / n - mean * mean;
    float factor = 1.0f;
    if (p.q_sums != nullptr) {
      const double rows = static_cast<double>(queries) * p.group;
      factor = power_of_two(energy * rows / total(kQuerySquares));
    }
    const float inverse = 1.0f / factor;
    ptx::store_global(p.mean + at + channel, static_cast<float>(mean));
    ptx::store_global(p.balance + at + channel, factor);
    ptx::store_global(p.inverse_balance + at + channel, inverse);
    ptx::store_global(p.shift + at + channel, -numerics::mul_rn(static_cast<float>(mean), inverse));
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
