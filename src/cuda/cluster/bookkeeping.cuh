// The small kernels around the grouping: token numbers, key lengths, what is kept.
#pragma once

#include "cuda/cluster/tokens.cuh"

namespace vcattn::cuda::cluster {

/// Grid: tiles of 1,024 positions, heads, entries. numbers[task][i] = i.
struct NumberKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = 4, kTile = 1024;
  struct Params {
    int tokens = 0;
    std::int32_t* numbers = nullptr;
  };
  struct SharedStorage {};

  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    const ptx::Index3 block = ptx::block_index(), grid = ptx::grid_size();
    const std::int64_t task = static_cast<std::int64_t>(block.z) * grid.y + block.y;
    for (int i = ptx::thread_index(); i < kTile; i += kThreads) {
      const int token = block.x * kTile + i;
      if (token < p.tokens) ptx::store_global(p.numbers + task * p.tokens + token, token);
    }
  }
};

/// One block. Whether the key lengths are others than those that were grouped.
struct CheckLengthsKernel {
  static constexpr int kThreads = 32, kBlocksPerSm = 1;
  struct Params {
    const std::int32_t* lengths = nullptr;
    const std::int32_t* grouped = nullptr;
    int batch = 0;
    std::int32_t* stale = nullptr;
  };
  struct SharedStorage {};

  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    bool differs = false;
    for (int b = ptx::lane_index(); b < p.batch; b += ptx::kWarpSize) {
      differs = differs || ptx::load_global<std::int32_t>(p.lengths + b) !=
                               ptx::load_global<std::int32_t>(p.grouped + b);
    }
    const bool stale = ptx::vote_any(differs);
    if (ptx::lane_index() == 0) ptx::store_global(p.stale, stale ? 1 : 0);
  }
};

/// Grid: tiles of 1,024 tokens, heads, entries. Keeps a new order and the lengths it is of.
struct KeepKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = 4, kTile = 1024;
  struct Params {
    Tokens tokens;
    const std::int32_t* sorted = nullptr;
    std::int32_t* order = nullptr;
    std::int32_t* grouped = nullptr;
  };
  struct SharedStorage {};

  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    if (p.tokens.idle()) return;
    const Head head(p.tokens);
    const int tile = ptx::block_index().x;
    for (int i = ptx::thread_index(); i < kTile; i += kThreads) {
      const int position = tile * kTile + i;
      if (position >= p.tokens.v.tokens) break;
      const std::int64_t at = head.first_position() + position;
      ptx::store_global(p.order + at, ptx::load_global_constant<std::int32_t>(p.sorted + at));
    }
    if (tile == 0 && head.head == 0 && ptx::thread_index() == 0) {
      ptx::store_global(p.grouped + head.batch, head.count);
    }
  }
};

/// Grid as KeepKernel's. The kept order, or that of the sequence where it is of other keys.
struct UsableOrderKernel {
  static constexpr int kThreads = 256, kBlocksPerSm = 4, kTile = 1024;
  struct Params {
    int tokens = 0;
    const std::int32_t* stale = nullptr;
    const std::int32_t* kept = nullptr;
    std::int32_t* order = nullptr;
  };
  struct SharedStorage {};

  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    const ptx::Index3 block = ptx::block_index(), grid = ptx::grid_size();
    const std::int64_t task = static_cast<std::int64_t>(block.z) * grid.y + block.y;
    const bool stale = ptx::load_global_constant<std::int32_t>(p.stale) != 0;
    for (int i = ptx::thread_index(); i < kTile; i += kThreads) {
      const int position = block.x * kTile + i;
      if (position >= p.tokens) break;
      const std::int64_t at = task * p.tokens + position;
      ptx::store_global(p.order + at,
                        stale ? position : ptx::load_global_constant<std::int32_t>(p.kept + at));
    }
  }
};

}  // namespace vcattn::cuda::cluster
