// The producer: one thread that keeps the stages filled with bulk copies. The two blocks of a
// cluster see the same keys, so each loads half of what a step needs (rank 0 keys and means, rank 1
// values) into both.
#pragma once

#include "cuda/sm90/storage.cuh"

namespace vcattn::cuda::sm90 {

template <class C>
struct Producer {
  const AttentionParams& p;
  AttentionStorage<C>& shared;
  const Work& work;

  static constexpr std::uint32_t kTileBytes = kTileKeys * C::kDim;
  static constexpr std::uint32_t kMeanBytes = kMeanGroup * C::kDim * sizeof(float);

  VC_DEVICE void run() {
    const std::int64_t first_tile = work.kv_head_index * p.k_tiles;
    const std::uint8_t* k = p.k + first_tile * kTileBytes;
    const std::uint8_t* v = p.v + first_tile * kTileBytes;
    const float* means =
        p.means + work.kv_head_index * p.mean_groups * std::int64_t{kMeanGroup * C::kDim};

    ptx::mbarrier_arrive_expect_tx(shared.start, 2 * kTileBytes);
    ptx::bulk_load(&shared.q[0][0], p.q + work.q_tile_index * kTileBytes, kTileBytes, shared.start);
    ptx::bulk_load(&shared.stage[C::kStages - 1].k[0], k, kTileBytes, shared.start);

    const std::uint32_t rank = ptx::cluster_rank();
    int stage = 0;
    std::uint32_t lap = 1;  // parity of the emptying that the next use waits for
    VC_NO_UNROLL
    for (int t = 0; t < work.tiles; ++t) {
      // The last stage has had a use before, the keys of tile 0.
      const std::uint32_t parity = stage == C::kStages - 1 ? lap ^ 1u : lap;
      ptx::mbarrier_wait(shared.empty[stage], parity);
      ptx::mbarrier_arrive_remote(shared.peer_empty[stage], rank ^ 1u);
      ptx::mbarrier_wait(shared.peer_empty[stage], lap ^ 1u);
      const bool next = t + 1 < work.tiles, group_starts = t % kMeanGroup == 0;
      ptx::mbarrier_arrive_expect_tx(
          shared.full[stage],
          kTileBytes + (next ? kTileBytes : kOnesBytes) + (group_starts ? kMeanBytes : 0u));
      auto& at = shared.stage[stage];
      if (rank == 1) {
        share(&at.v[0], v + std::int64_t{t} * kTileBytes, kTileBytes, stage);
      } else if (next) {
        share(&at.k[0], k + (std::int64_t{t} + 1) * kTileBytes, kTileBytes, stage);
      }
      if (!next) {
        ptx::bulk_load(&at.ones[0], p.ones + std::int64_t{work.batch} * kOnesBytes, kOnesBytes,
                       shared.full[stage]);
      }
      if (group_starts && rank == 0) {
        const int group = t / kMeanGroup;
        share(&shared.means[group & 1][0], means + std::int64_t{group} * kMeanGroup * C::kDim,
              kMeanBytes, stage);
      }
      if (++stage == C::kStages) {
        stage = 0;
        lap ^= 1u;
      }
    }
  }

  VC_DEVICE void share(void* to, const void* from, std::uint32_t bytes, int stage) {
    constexpr std::uint16_t kBothBlocks = 0b11;
    ptx::bulk_load_multicast(to, from, bytes, shared.full[stage], kBothBlocks);
  }
};

}  // namespace vcattn::cuda::sm90
