// How rounding errors of Q and K are fed forward (numerics/noise_shaping.h): Gram matrices of a
// sample of their rows, and the factors from them. No sum depends on anything but the shape.
#pragma once

#include "cuda/prepare/feedback.h"
#include "cuda/prepare/rows.cuh"
#include "vcattn/numerics/noise_shaping.h"

namespace vcattn::cuda::prepare {

/// Sums of x x^T over the sampled rows of Q or K, smoothed as they are for quantization but not
/// rotated, and in bfloat16. Blocks of a KV head share its tiles of rows.
template <int kDim, class Source>
struct GramKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = kIsPacked<Source> ? 2 : 1;
  static constexpr bool kStartsEarly = true;
  static constexpr int kShares = 6;  ///< blocks of a KV head
  static constexpr int kRows = 64;   ///< of a tile
  struct Params {
    Input x;
    const std::int32_t* lengths = nullptr;
    const float* factor = nullptr;  ///< (batch, kv heads, kDim)
    const float* shift = nullptr;   ///< is added then; nullptr: nothing
    int group = 1;                  ///< heads of x to a KV head
    float* sums = nullptr;          ///< (batch, kv heads, kShares, kDim, kDim)
  };
  struct SharedStorage {
    alignas(16) std::uint16_t at[kRows][kDim + 8];  ///< rows begin 16 bytes apart in the banks
  };
  // Eight warps, 4 x 2 of them, each with m x n tiles of 16 x 8 channels.
  static constexpr int kM = kDim / 64, kN = kDim / 16;
  using Split = RowSplit<kDim, kThreads, kRows>;

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const ptx::Index3 block = ptx::block_index();
    const int kv_heads = p.x.view.heads / p.group;
    const std::int64_t kv_head = std::int64_t{block.z} * kv_heads + block.y;
    const int count = key_count(p.lengths, block.z, p.x.view.tokens);
    const auto sample = numerics::gram_sample(count, true);
    const int tiles = (sample.count + kRows - 1) / kRows;
    const int first_channel = Split::first_channel();
    const Channels factor = load_floats(p.factor + kv_head * kDim + first_channel);
    Channels shift = {};
    if (p.shift != nullptr) shift = load_floats(p.shift + kv_head * kDim + first_channel);

    float sum[kM][kN][4] = {};
    VC_NO_UNROLL
    for (int item = block.x; item < tiles * p.group; item += kShares) {
      const int first = item % tiles * kRows, left = sample.count - first;
      const int head = block.y * p.group + item / tiles;
      const TileRows rows{block.z, head, first, left, nullptr, sample};
      for_each_row<Split, Source, kIsPacked<Source> ? Split::kRows : 1>(
          p.x, rows, [&](int row, const Channels& x) {
            Words words = {};
            VC_UNROLL
            for (int i = 0; i < kPacket && row < left; i += 2) {
              words[i / 2] =
                  ptx::bf16x2_from_floats(numerics::fma_rn(x[i], factor[i], shift[i]),
                                          numerics::fma_rn(x[i + 1], factor[i + 1], shift[i + 1]));
            }
            ptx::store_shared(&shared.at[row][first_channel], words);
          });
      ptx::block_sync();
      add_tile(shared, sum);
      ptx::block_sync();
    }
    store(p.sums + (kv_head * kShares + block.x) * kDim * kDim, sum);
  }

 private:
  VC_DEVICE static int first_m() { return ptx::thread_index() / ptx::kWarpSize % 4 * 16 * kM; }
  VC_DEVICE static int first_n() { return ptx::thread_index() / ptx::kWarpSize / 4 * 8 * kN; }

  VC_DEVICE static void add_tile(const SharedStorage& shared, float (&sum)[kM][kN][4]) {
    // Both operands are the tile, transposed: matrix i of a fragment is 8 rows by 8 channels.
    const int matrix = ptx::lane_index() / 8, row = ptx::lane_index() % 8;
    VC_NO_UNROLL
    for (int k = 0; k < kRows; k += 16) {
      std::uint32_t a[kM][4];
      VC_UNROLL
      for (int m = 0; m < kM; ++m) {
        ptx::ldmatrix<true>(
            a[m], &shared.at[k + matrix / 2 * 8 + row][first_m() + 16 * m + matrix % 2 * 8]);
      }
      VC_UNROLL
      for (int n = 0; n < kN; n += 2) {
        std::uint32_t b[4];
        ptx::ldmatrix<true>(
            b, &shared.at[k + matrix % 2 * 8 + row][first_n() + 8 * n + matrix / 2 * 8]);
        VC_UNROLL
        for (int m = 0; m < kM; ++m) {
          ptx::mma_bf16(sum[m][n], a[m], {b[0], b[1]});
          ptx::mma_bf16(sum[m][n + 1], a[m], {b[2], b[3]});
        }
      }
    }
  }

  VC_DEVICE static void store(float* sums, const float (&sum)[kM][kN][4]) {
    const int row = first_m() + ptx::lane_index() / 4;
    const int column = first_n() + ptx::lane_index() % 4 * 2;
    VC_UNROLL
    for (int m = 0; m < kM; ++m) {
      VC_UNROLL
      for (int n = 0; n < kN; ++n) {
        VC_UNROLL
        for (int half = 0; half < 2; ++half) {
          ptx::store_global(sums + (row + 16 * m + 8 * half) * kDim + column + 8 * n,
                            ptx::Vec<float, 2>{{sum[m][n][2 * half], sum[m][n][2 * half + 1]}});
        }
      }
    }
  }
};

/// From the Gram matrix of one operand of a KV head to the feedback of the other: rotated, divided
/// by its trace, eliminated.
template <int kDim, int kShares>
struct FeedbackKernel {
  static constexpr int kThreads = 1024, kBlocksPerSm = 1, kWarps = kThreads / ptx::kWarpSize;
  static constexpr bool kStartsEarly = true;
  struct Params {
    const float* sums = nullptr;         ///< (heads, kShares, kDim, kDim)
    Feedback<kDim>* feedback = nullptr;  ///< (heads)
  };
  struct SharedStorage {
    alignas(16) float a[kDim][kDim + 4];
    alignas(16) float pivot[2][kDim];
    float inverse[kDim];
  };
  using Four = ptx::Vec<float, 4>;

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    const std::int64_t head = ptx::block_index().x;
    add_shares(p.sums + head * kShares * kDim * kDim, shared);
    ptx::block_sync();
    const float norm = trace(shared) * kDim;  // the rotation is scaled by 1 / kDim, once for both
    const float inverse = numerics::is_finite(norm) && norm >= FLT_MIN ? 1.0f / norm : 0.0f;
    ptx::block_sync();
    rotate<true>(shared);
    rotate<false>(shared);
    eliminate(shared, inverse);
    quantize(shared, p.feedback + head);
  }

 private:
  VC_DEVICE static void add_shares(const float* sums, SharedStorage& shared) {
    for (int at = 4 * ptx::thread_index(); at < kDim * kDim; at += 4 * kThreads) {
      Four total = {};
      VC_UNROLL
      for (int s = 0; s < kShares; ++s) {
        const auto x = ptx::load_global_constant<Four>(sums + s * kDim * kDim + at);
        VC_UNROLL
        for (int i = 0; i < 4; ++i) total[i] += x[i];
      }
      ptx::store_shared(&shared.a[at / kDim][at % kDim], total);
    }
  }

  VC_DEVICE static float trace(const SharedStorage& shared) {
    float sum = 0.0f;
    for (int c = 0; c < kDim; ++c) sum += ptx::load_shared<float>(&shared.a[c][c]);
    return sum;
  }

  /// The stages of a Hadamard transform of every row, or of every column.
  template <bool kRows>
  VC_DEVICE static void rotate(SharedStorage& shared) {
    VC_NO_UNROLL
    for (int h = 1; h < kDim; h *= 2) {
      for (int i = ptx::thread_index(); i < kDim * kDim / 2; i += kThreads) {
        const int line = kRows ? i / (kDim / 2) : i % kDim;
        const int pair = kRows ? i % (kDim / 2) : i / kDim;
        const int first = (pair & ~(h - 1)) * 2 + (pair & (h - 1)), second = first + h;
        float* x = kRows ? &shared.a[line][first] : &shared.a[first][line];
        float* y = kRows ? &shared.a[line][second] : &shared.a[second][line];
        const float a = ptx::load_shared<float>(x), b = ptx::load_shared<float>(y);
        ptx::store_shared(x, a + b);
        ptx::store_shared(y, a - b);
      }
      ptx::block_sync();
    }
  }

  /// The rows of this warp, first_row + kWarps * m, four channels to a lane, stay in registers; the
  /// pivot row goes round through shared memory.
  VC_DEVICE static void eliminate(SharedStorage& shared, float inverse) {
    constexpr int kRows = kDim / kWarps;
    const int warp = ptx::thread_index() / ptx::kWarpSize, channel = ptx::lane_index() * 4;
    const bool idle = channel >= kDim;
    Four a[kRows];
    VC_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const int row = warp + kWarps * m;
      a[m] = idle ? Four{} : ptx::load_shared<Four>(&shared.a[row][channel]);
      VC_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float g = inverse > 0.0f ? a[m][j] * inverse : 0.0f;
        const bool diagonal = row == channel + j;
        a[m][j] = diagonal ? numerics::add_rn(g, numerics::kShapingDamping / float{kDim}) : g;
      }
    }
    VC_NO_UNROLL
    for (int k0 = 0; k0 < kDim; k0 += 4) {
      VC_UNROLL
      for (int j = 0; j < 4; ++j) eliminate_step(shared, a, k0, j, warp, channel, idle);
    }
    VC_UNROLL
    for (int m = 0; m < kRows && !idle; ++m) {
      ptx::store_shared(&shared.a[warp + kWarps * m][channel], a[m]);
    }
    ptx::block_sync();
  }

  /// Step k = k0 + j; k0 is a multiple of 4.
  template <int kRows>
  VC_DEVICE static void eliminate_step(SharedStorage& shared, Four (&a)[kRows], int k0, int j,
                                       int warp, int channel, bool idle) {
    const int k = k0 + j;
    float(&pivot_row)[kDim] = shared.pivot[j % 2];
    VC_UNROLL
    for (int m = 0; m < kRows; ++m) {
      if (warp + kWarps * m == k && !idle) ptx::store_shared(&pivot_row[channel], a[m]);
    }
    ptx::block_sync();
    const auto pivot = idle ? Four{} : ptx::load_shared<Four>(&pivot_row[channel]);
    const float diagonal = ptx::load_shared<float>(&pivot_row[k]);
    VC_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const float l = numerics::div_rn(ptx::shuffle(a[m][j], k0 / 4), diagonal);
      if (warp + kWarps * m <= k) continue;
      VC_UNROLL
      for (int i = 0; i < 4; ++i) {
        a[m][i] = channel + i == k ? -l : numerics::fma_rn(-l, pivot[i], a[m][i]);
      }
    }
  }

  VC_DEVICE static void quantize(SharedStorage& shared, Feedback<kDim>* feedback) {
    const int thread = ptx::thread_index();
    if (thread < kDim) {
      float largest = 0.0f;
      for (int i = thread + 1; i < kDim; ++i) {
        largest = numerics::abs_max(largest, ptx::load_shared<float>(&shared.a[i][thread]));
      }
      const numerics::QuantScale scale = numerics::int8_scale(largest);
      ptx::store_global(&feedback->scale[thread], scale.scale);
      ptx::store_shared(&shared.inverse[thread], scale.inverse);
    }
    ptx::block_sync();
    constexpr int kWords = Feedback<kDim>::kWords;
    for (int at = thread; at < kDim * kWords; at += kThreads) {
      const int channel = at % kDim, word = at / kDim, group = channel / 4;
      if (word < group) continue;
      const float inverse = ptx::load_shared<float>(&shared.inverse[channel]);
      std::uint32_t bytes = 0;
      VC_UNROLL
      for (int b = 0; b < 4; ++b) {
        const int from = 4 * word + b;
        if (from <= channel) continue;
        const float a = ptx::load_shared<float>(&shared.a[from][channel]);
        const std::int8_t code = numerics::int8_quantize(-a, inverse);
        bytes |= std::uint32_t{static_cast<std::uint8_t>(code)} << (8 * b);
      }
      ptx::store_global(&feedback->factor[Feedback<kDim>::at(group, word)][channel % 4], bytes);
    }
  }
};

}  // namespace vcattn::cuda::prepare
