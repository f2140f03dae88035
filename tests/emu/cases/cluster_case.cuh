// Two blocks of a cluster: each multicasts one half of a tile to both, frees it in both, over
// several rounds; then each writes into the other's shared memory and reads it through the cluster
// window.
#pragma once

#include "case.cuh"

namespace vcattn::crosscheck {

struct ClusterCase {
  static constexpr int kThreads = 64, kBlocksPerSm = 1, kClusterSize = 2;
  static constexpr int kRounds = 5, kBlocks = 4;
  static constexpr Input kInputs[3] = {
      {Data::kBits, kRounds * 512}, {Data::kBits, 16}, {Data::kBits, 16}};
  static constexpr int kOutputWords = kBlocks * 64;
  static constexpr double kRelative = 0;
  using Params = crosscheck::Params;
  struct SharedStorage {
    alignas(16) uint32_t tile[128];
    uint32_t mailbox;
    ptx::Mbarrier full, empty;
  };

  VC_DEVICE static void run(const Params& p, SharedStorage& s) {
    const int t = ptx::thread_index();
    const uint32_t rank = ptx::cluster_rank();
    if (t == 0) {
      ptx::mbarrier_init(s.full, 1);
      ptx::mbarrier_init(s.empty, 2 * 2);  // both warps of both blocks
      ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();
    uint32_t sum = 0;
    for (int round = 0; round < kRounds; ++round) {
      const uint32_t parity = static_cast<uint32_t>(round) & 1;
      if (t == 0) {
        ptx::mbarrier_wait(s.empty, parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(s.full, 512);
        ptx::bulk_load_multicast(&s.tile[64 * rank], p.in[0] + round * 512 + 256 * rank, 256,
                                 s.full, 3);
      }
      ptx::mbarrier_wait(s.full, parity);
      sum += ptx::load_shared<uint32_t>(&s.tile[t]) +
             1000 * ptx::load_shared<uint32_t>(&s.tile[127 - t]);
      ptx::warp_sync();
      const int lane = ptx::lane_index();
      if (lane < 2) ptx::mbarrier_arrive_remote(s.empty, static_cast<uint32_t>(lane));
    }
    if (t == 5) ptx::store_cluster_u32(ptx::cluster_address(&s.mailbox, rank ^ 1), sum + rank);
    ptx::cluster_sync();
    const uint32_t mail = ptx::load_shared<uint32_t>(&s.mailbox);
    const uint32_t own = ptx::load_cluster_u32(ptx::cluster_address(&s.mailbox, rank));
    put(p.out, ptx::block_index().x * 64 + t, t == 5 ? mail + own : sum);
    ptx::cluster_sync();  // nobody leaves while its memory may be read
  }
};

}  // namespace vcattn::crosscheck
