// A tile of rows in shared memory.
#pragma once

#include "cuda/prepare/rows.cuh"

namespace vcattn::cuda::prepare {

/// Rows begin 16 bytes apart in the banks, so that neither a thread that reads its own row nor a
/// warp that reads a column of 16-byte pieces meets another.
template <int kDim, class Source, int kRows = kTileRows>
struct Tile {
  using Element = typename Source::Element;
  static constexpr int kPitch = kDim + 16 / static_cast<int>(sizeof(Element));
  alignas(16) Element at[kRows][kPitch];

  /// By the whole block; `wait` must follow. Packed rows are copied meanwhile.
  template <int kThreads>
  VC_DEVICE void load(const Input& in, const TileRows& rows) {
    using Split = RowSplit<kDim, kThreads, kRows>;
    // Few threads have the registers for more, but tables take them.
    constexpr int kBatch = kThreads < 128 && !std::is_same_v<Source, Rotated> ? 8 : 4;
    if constexpr (kIsPacked<Source>) {
      int token[Split::kRows];
      rows.tokens<Split>(0, token);
      const std::byte* from = packed_rows(in, rows.batch, rows.head, Split::first_channel());
      VC_UNROLL
      for (int i = 0; i < Split::kRows; ++i) {
        ptx::copy16_async(&at[Split::row(i)][Split::first_channel()],
                          from + std::int64_t{token[i]} * in.row_bytes, token[i] >= 0);
      }
      ptx::copy_commit();
    } else {
      for_each_row<Split, Source, kBatch>(in, rows, [&](int row, const Channels& x) {
        VC_UNROLL
        for (int half = 0; half < kPacket; half += 4) {
          const ptx::Vec<float, 4> four{{x[half], x[half + 1], x[half + 2], x[half + 3]}};
          ptx::store_shared(&at[row][Split::first_channel() + half], four);
        }
      });
    }
  }

  /// Until the whole block has the tile.
  VC_DEVICE void wait() const {
    if constexpr (kIsPacked<Source>) ptx::copy_wait<0>();
    ptx::block_sync();
  }

  /// Eight channels of a row.
  VC_DEVICE Channels read(int row, int first) const {
    if constexpr (kIsPacked<Source>) {
      return unpack<Source>(ptx::load_shared<Words>(&at[row][first]));
    } else {
      Channels x;
      VC_UNROLL
      for (int half = 0; half < kPacket; half += 4) {
        const auto four = ptx::load_shared<ptx::Vec<float, 4>>(&at[row][first + half]);
        VC_UNROLL
        for (int i = 0; i < 4; ++i) x[half + i] = four[i];
      }
      return x;
    }
  }

  /// A whole row.
  VC_DEVICE void read_row(int row, float (&x)[kDim]) const {
    VC_UNROLL
    for (int c = 0; c < kDim; c += kPacket) {
      const Channels packet = read(row, c);
      VC_UNROLL
      for (int i = 0; i < kPacket; ++i) x[c + i] = packet[i];
    }
  }

  /// Of 32 rows and 8 channels, by a warp: lane 4g + t gets channel first_channel + g of rows
  /// first_row + 8i + 2t + {0, 1}, i = 0 .. 3.
  VC_DEVICE void read_columns(int first_row, int first_channel, float (&x)[8]) const {
    const int lane = ptx::lane_index();
    if constexpr (kIsPacked<Source>) {
      std::uint32_t words[4];
      ptx::ldmatrix<true>(words, &at[first_row + lane][first_channel]);
      VC_UNROLL
      for (int i = 0; i < 4; ++i) {
        x[2 * i] = Source::low(words[i]);
        x[2 * i + 1] = Source::high(words[i]);
      }
    } else {
      VC_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int row = first_row + 8 * (i / 2) + 2 * (lane % 4) + i % 2;
        x[i] = ptx::load_shared<float>(&at[row][first_channel + lane / 4]);
      }
    }
  }
};

/// Writes what the block has put into `shared` to global memory.
VC_DEVICE void store_image(std::uint8_t* global, const std::uint8_t* shared, int bytes) {
  ptx::fence_proxy_async();
  ptx::block_sync();
  if (ptx::thread_index() != 0) return;
  ptx::bulk_store(global, shared, static_cast<std::uint32_t>(bytes));
  ptx::bulk_commit();
  ptx::bulk_wait_read<0>();
}

}  // namespace vcattn::cuda::prepare
