// A small but complete attention-like kernel: a producer warp, two consumer warpgroups in
// ping-pong, bulk copies through a ring of stages, s8 scores, packed softmax-like codes, e4m3
// products with a block of ones, promotion in FP32, and the result written back by bulk stores.
//
// Scores s = q . k; per row and tile of 128 keys m = max (s >> 8); y = max((s >> 8) - m + 64, 0);
// the probability is 2 where y = 64, 1 where bit 5 of y is set, else 0. The output is the sum of
// probability times v, and in the last 8 columns the sum of probabilities. All of it is small
// integers, so the result is exact.
//
// A Mistake leaves out or moves one step: each must make the emulator stop.
#pragma once

#include "case.cuh"

namespace vcattn::crosscheck {

enum class Mistake {
  kNone,
  kNoFullWait,        // reads a K tile without waiting for it
  kNoEmptyWait,       // overwrites a stage without waiting for its readers
  kOneWarpArrives,    // one warp frees the stage for its whole warpgroup
  kEarlyRelease,      // frees the K stage before the products have been waited for
  kNoProxyFence,      // ones written by ordinary stores, no fence before wgmma reads them
  kNoInitFence,       // barriers not shown to the asynchronous units
  kExpectTooFew,      // 16 bytes less than are copied
  kExpectTooMany,     // 16 bytes more
  kNoWgmmaFence,      // products start on registers just written
  kNoWgmmaWait,       // scores read while the product runs
  kNoRegisterFence,   // waited, but the compiler may still move the reads up
  kCodesOverwritten,  // the A registers of a running product are rewritten
  kNoTurnArrive,      // the ping-pong partner is never called
  kDivergentBarrier,  // half a warp skips a barrier
  kNoStoreFence,      // bulk store of what ordinary stores wrote, no fence
  kExitInStore,       // the block ends while a bulk store reads its memory
  kPermutedCodes,     // two code registers swapped: no rule broken, wrong numbers
};

struct PipelineParams {
  const uint8_t* q;  // per block: 128 rows of 128 s8, two images of 64 rows, 128-byte swizzle
  const uint8_t* k;  // per tile: 128 keys of 128 s8, the same image
  const uint8_t* v;  // per tile: 128 channels of 128 e4m3 keys in slot order, the same image
  float* out;        // per block: 128 rows of 136
  int tiles;
};

template <Mistake kMistake>
struct Pipeline {
  static constexpr int kThreads = 384, kBlocksPerSm = 1;
  static constexpr int kStages = 2;
  static constexpr uint32_t kTile = 128 * 128;
  static constexpr int kColumns = 136;
  using Params = PipelineParams;

  struct SharedStorage {
    alignas(1024) uint8_t k[kStages][kTile];
    alignas(1024) uint8_t v[kStages][kTile + 8 * 128];  // the last 8 rows are ones
    alignas(1024) uint8_t q[2][64 * 128];
    alignas(128) float out[2][64 * kColumns];
    ptx::Mbarrier full_k[kStages], full_v[kStages], empty_k[kStages], empty_v[kStages], full_q;
  };

  VC_CONSTEXPR static bool with(Mistake m) { return kMistake == m; }

  VC_DEVICE static void run(const Params& p, SharedStorage& s) {
    const int warpgroup = ptx::warpgroup_index();
    set_up(s);
    if (warpgroup == 0) {
      ptx::registers_decrease<24>();
      if (ptx::thread_index() == 0) produce(p, s);
    } else {
      ptx::registers_increase<240>();
      consume(p, s, warpgroup - 1);
    }
  }

  VC_DEVICE static void set_up(SharedStorage& s) {
    const int t = ptx::thread_index();
    if (t == 0) {
      constexpr int kReaders = with(Mistake::kOneWarpArrives) ? 2 : 8;
      for (int i = 0; i < kStages; ++i) {
        ptx::mbarrier_init(s.full_k[i], 1);
        ptx::mbarrier_init(s.full_v[i], 1);
        ptx::mbarrier_init(s.empty_k[i], kReaders);
        ptx::mbarrier_init(s.empty_v[i], kReaders);
      }
      ptx::mbarrier_init(s.full_q, 1);
      if constexpr (!with(Mistake::kNoInitFence)) ptx::fence_mbarrier_init();
    }
    for (int i = t; i < kStages * 256; i += kThreads) {
      ptx::store_shared(&s.v[i / 256][kTile + i % 256 * 4], uint32_t{0x38383838});
    }
    // Thread 0 initialised the barriers: its fence would stand in for the one that is left out.
    const bool fence = !with(Mistake::kNoProxyFence) && !(with(Mistake::kNoInitFence) && t == 0);
    if (fence) ptx::fence_proxy_async();
    ptx::block_sync();
  }

  VC_DEVICE static void produce(const Params& p, SharedStorage& s) {
    ptx::mbarrier_arrive_expect_tx(s.full_q, 2 * 64 * 128);
    ptx::bulk_load(s.q, p.q + static_cast<size_t>(ptx::block_index().x) * 2 * 64 * 128,
                   2 * 64 * 128, s.full_q);
    constexpr uint32_t kExpected = with(Mistake::kExpectTooFew)    ? kTile - 16
                                   : with(Mistake::kExpectTooMany) ? kTile + 16
                                                                   : kTile;
    for (int j = 0; j < p.tiles; ++j) {
      const int stage = j % kStages;
      const uint32_t parity = static_cast<uint32_t>(j / kStages + 1) & 1;
      if constexpr (!with(Mistake::kNoEmptyWait)) ptx::mbarrier_wait(s.empty_k[stage], parity);
      ptx::mbarrier_arrive_expect_tx(s.full_k[stage], kExpected);
      ptx::bulk_load(s.k[stage], p.k + static_cast<size_t>(j) * kTile, kTile, s.full_k[stage]);
      ptx::mbarrier_wait(s.empty_v[stage], parity);
      ptx::mbarrier_arrive_expect_tx(s.full_v[stage], kTile);
      ptx::bulk_load(s.v[stage], p.v + static_cast<size_t>(j) * kTile, kTile, s.full_v[stage]);
    }
  }

  using Scores = ptx::Fragment<int32_t, 64>;
  using Codes = ptx::Fragment<uint32_t, 16>;
  using Product = ptx::Fragment<float, 68>;

  VC_DEVICE static void consume(const Params& p, SharedStorage& s, int w) {
    float sum[68];
    VC_UNROLL
    for (int i = 0; i < 68; ++i) sum[i] = 0.0f;
    ptx::mbarrier_wait(s.full_q, 0);
    if (w == 1) ptx::named_barrier_arrive(1, 256);
    Scores scores;
    Codes codes;
    Product product;
    VC_NO_UNROLL
    for (int j = 0; j < p.tiles; ++j) {
      const int stage = j % kStages;
      const uint32_t parity = static_cast<uint32_t>(j / kStages) & 1;
      ptx::named_barrier_sync(1 + w, 256);
      score(s, w, stage, parity, scores);
      if constexpr (!with(Mistake::kNoTurnArrive)) ptx::named_barrier_arrive(1 + (w ^ 1), 256);
      encode(scores, codes);
      multiply(s, stage, parity, codes, product);
      VC_UNROLL
      for (int i = 0; i < 68; ++i) sum[i] += product[i];
    }
    if (w == 0) ptx::named_barrier_sync(1, 256);  // takes the last call of the partner
    write(p, s, w, sum);
  }

  VC_DEVICE static void release(ptx::Mbarrier& bar) {
    if (with(Mistake::kOneWarpArrives) && ptx::thread_index() % 128 >= 32) return;
    if (ptx::lane_index() == 0) ptx::mbarrier_arrive(bar);
  }

  VC_DEVICE static void score(SharedStorage& s, int w, int stage, uint32_t parity, Scores& scores) {
    if constexpr (!with(Mistake::kNoFullWait)) ptx::mbarrier_wait(s.full_k[stage], parity);
    const auto q = ptx::make_descriptor(s.q[w], ptx::Swizzle::k128Bytes, 1024);
    const auto k = ptx::make_descriptor(s.k[stage], ptx::Swizzle::k128Bytes, 1024);
    if constexpr (!with(Mistake::kNoWgmmaFence)) ptx::wgmma_fence();
    VC_UNROLL
    for (int step = 0; step < 4; ++step) {
      const auto at = static_cast<uint32_t>(32 * step);
      ptx::wgmma_s8(scores, ptx::advance(q, at), ptx::advance(k, at), step != 0);
    }
    ptx::wgmma_commit();
    if constexpr (with(Mistake::kEarlyRelease)) release(s.empty_k[stage]);
    if constexpr (with(Mistake::kNoRegisterFence)) {
      ptx::wgmma_wait<0>();
    } else if constexpr (!with(Mistake::kNoWgmmaWait)) {
      ptx::wgmma_wait<0>(scores);
    }
    if constexpr (!with(Mistake::kEarlyRelease)) release(s.empty_k[stage]);
  }

  // Scores of row g (even) and row g + 8 (odd) in packed pairs, then one code per byte in slot
  // order.
  VC_DEVICE static void encode(const Scores& scores, Codes& codes) {
    uint32_t x[32];
    VC_UNROLL
    for (int i = 0; i < 32; ++i) {
      x[i] = ptx::permute_bytes(static_cast<uint32_t>(scores[2 * i]),
                                static_cast<uint32_t>(scores[2 * i + 1]), 0x6521);
    }
    uint32_t low = x[0], high = x[1];
    VC_UNROLL
    for (int i = 2; i < 30; i += 4) {
      low = ptx::max3_s16x2(low, x[i], x[i + 2]);
      high = ptx::max3_s16x2(high, x[i + 1], x[i + 3]);
    }
    low = ptx::max_s16x2(low, x[30]);
    high = ptx::max_s16x2(high, x[31]);
    uint32_t m = ptx::max_s16x2(ptx::permute_bytes(low, high, 0x5410),
                                ptx::permute_bytes(low, high, 0x7632));
    m = ptx::max_s16x2(m, ptx::shuffle_xor(m, 1));
    m = ptx::max_s16x2(m, ptx::shuffle_xor(m, 2));
    const uint32_t offset = ptx::sub_s16x2(0x00400040, m);
    const uint32_t rows[2] = {ptx::permute_bytes(offset, 0, 0x1010),
                              ptx::permute_bytes(offset, 0, 0x3232)};
    VC_UNROLL
    for (int i = 0; i < 32; ++i) {
      const uint32_t y = ptx::add_max_s16x2_relu(x[i], rows[i % 2], 0);
      const uint32_t one = y & 0x00200020;
      x[i] = (y & 0x00400040) | one | one >> 1 | one >> 2;
    }
    VC_UNROLL
    for (int i = 0; i < 16;
         ++i) {  // register i: row i % 2, slots of the half i / 2 % 2 of k-step i / 4
      const int pair = i / 2 * 4 + i % 2;
      codes[i] = ptx::permute_bytes(x[pair], x[pair + 2], 0x6420);
    }
    if constexpr (with(Mistake::kPermutedCodes)) {
      const uint32_t first = codes[0];
      codes[0] = codes[2];
      codes[2] = first;
    }
  }

  VC_DEVICE static void multiply(SharedStorage& s, int stage, uint32_t parity, Codes& codes,
                                 Product& product) {
    ptx::mbarrier_wait(s.full_v[stage], parity);
    const auto v = ptx::make_descriptor(s.v[stage], ptx::Swizzle::k128Bytes, 1024);
    ptx::wgmma_fence();
    VC_UNROLL
    for (int step = 0; step < 4; ++step) {
      ptx::wgmma_e4m3(product, codes, step, ptx::advance(v, static_cast<uint32_t>(32 * step)),
                      step != 0);
    }
    ptx::wgmma_commit();
    if constexpr (with(Mistake::kCodesOverwritten)) codes[5] = 0;
    ptx::wgmma_wait<0>(product, codes);
    release(s.empty_v[stage]);
  }

  VC_DEVICE static void write(const Params& p, SharedStorage& s, int w, const float (&sum)[68]) {
    const int thread = ptx::thread_index() % 128, row = thread / 32 * 16 + thread % 32 / 4,
              t = thread % 4;
    VC_UNROLL
    for (int i = 0; i < 34; ++i) {
      const int column = i / 2 * 8 + 2 * t, r = row + i % 2 * 8;
      ptx::store_shared(&s.out[w][r * kColumns + column],
                        ptx::Vec<float, 2>{{sum[2 * i], sum[2 * i + 1]}});
    }
    if constexpr (!with(Mistake::kNoStoreFence)) ptx::fence_proxy_async();
    if (!with(Mistake::kDivergentBarrier) || thread % 32 < 16) ptx::named_barrier_sync(3 + w, 128);
    if (thread == 0) {
      float* to = p.out + (static_cast<size_t>(ptx::block_index().x) * 2 + static_cast<size_t>(w)) *
                              64 * kColumns;
      ptx::bulk_store(to, s.out[w], sizeof(s.out[w]));
      ptx::bulk_commit();
      if constexpr (!with(Mistake::kExitInStore)) ptx::bulk_wait_read<0>();
    }
  }
};

}  // namespace vcattn::crosscheck
