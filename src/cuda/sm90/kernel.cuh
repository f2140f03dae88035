// The Hopper attention kernel: a producer warpgroup (one thread of it copies) and two consumer
// warpgroups of 64 query rows, in clusters of two blocks.
#pragma once

#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/group_schedule.cuh"
#include "cuda/sm90/load.cuh"
#include "cuda/sm90/storage.cuh"
#include "cuda/sm90/tile_schedule.cuh"

namespace vcattn::cuda::sm90 {

template <int kId>
struct AttentionKernel {
  using C = Config<kId>;
  using Params = AttentionParams;
  using SharedStorage = AttentionStorage<C>;
  static constexpr int kThreads = (1 + kConsumers) * ptx::kWarpgroupSize;
  static constexpr int kBlocksPerSm = 1;
  static constexpr int kClusterSize = kCluster;

  VC_DEVICE static void run(const Params& p, SharedStorage& shared) {
    start(shared);
    const Work work = find_work(p);
    const int role = ptx::warpgroup_index();
    if (role == 0) {
      ptx::registers_decrease<C::kProducerRegisters>();
      if (ptx::thread_index() == 0 && work.tiles > 0) Producer<C>{p, shared, work}.run();
    } else {
      ptx::registers_increase<C::kConsumerRegisters>();
      if (role == 1) {
        consume<0>(p, shared, work);
      } else {
        consume<1>(p, shared, work);
      }
    }
    ptx::warp_sync();
    ptx::cluster_sync();  // the other block may still be sending to this one
  }

 private:
  /// Barriers, and the columns of ones, which stay (the last tile brings its own).
  VC_DEVICE static void start(SharedStorage& shared) {
    const int thread = ptx::thread_index();
    constexpr int kWords = kOnesBytes / 4;
    for (int i = thread; i < C::kStages * kWords; i += kThreads) {
      ptx::store_shared(&shared.stage[i / kWords].ones[i % kWords * 4], kE4m3One * 0x01010101u);
    }
    if (thread == 0) {
      for (int s = 0; s < C::kStages; ++s) {
        ptx::mbarrier_init(shared.full[s], 1);
        ptx::mbarrier_init(shared.empty[s], kConsumerWarps);
        ptx::mbarrier_init(shared.peer_empty[s], 1);
      }
      ptx::mbarrier_init(shared.start, 1);
      ptx::fence_mbarrier_init();
    }
    ptx::fence_proxy_async();
    ptx::cluster_sync();
  }

  template <int kWarpgroup>
  VC_DEVICE static void consume(const Params& p, SharedStorage& shared, const Work& work) {
    const int warp = ptx::thread_index() % ptx::kWarpgroupSize / ptx::kWarpSize;
    const int row = kWarpgroup * 64 + warp * 16 + ptx::lane_index() / 4;
    if (work.tiles == 0) {
      Epilogue<C>{p, work}.store_empty_row(row);
      Epilogue<C>{p, work}.store_empty_row(row + 8);
      return;
    }
    const float* scale = p.row_scale + (work.q_tile_index * kTileQueries + row) * 2;
    Consumer<C, kWarpgroup> consumer(shared);
    using Schedule = std::conditional_t<C::kInt8Scores, TileSchedule<C, kWarpgroup>,
                                        GroupSchedule<C, kWarpgroup>>;
    Schedule(consumer, ptx::load_global_constant<RowScale>(scale),
             ptx::load_global_constant<RowScale>(scale + 16))
        .run(work.tiles);
    Epilogue<C>{p, work}.store(row, consumer.output, {consumer.sum0, consumer.reference0},
                               {consumer.sum1, consumer.reference1});
  }
};

}  // namespace vcattn::cuda::sm90
