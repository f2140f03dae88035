// INT8 scores: every tile has its own reference and is promoted on its own.
//
// One step, for tile t: issue Q.K(t + 1); behind it, while it runs, add the product of tile t - 1
// to the output in FP32 under that tile's scale; issue P.V(t); when the scores are there, turn them
// into codes while P.V runs. At d = 64 Q.K is too short to hide that addition: there P.V(t) is
// issued at once, and added at the end of the step. Every eighth step also restores the eight block
// means before it by one tf32 product of the scaled row sums with the stacked means.
#pragma once

#include "cuda/sm90/consumer.cuh"

namespace vcattn::cuda::sm90 {

template <class C, int kWarpgroup>
struct TileSchedule {
  static constexpr bool kPromoteBehindScores = C::kDim == 128;
  // The copy of group g + 2's means waits for the step kStages before its first, which has to come
  // after the step that reads group g's.
  static_assert(C::kStages + (kPromoteBehindScores ? 1 : 0) <= kMeanGroup);

  using Softmax = std::conditional_t<C::kExpCast, WindowSoftmax, ExpSoftmax>;

  Consumer<C, kWarpgroup>& c;
  const Softmax softmax;
  TileOctaves octaves{};       ///< of the tile in c.product
  TileOctaves next_octaves{};  ///< of the tile whose codes are in c.p

  VC_DEVICE TileSchedule(Consumer<C, kWarpgroup>& consumer, const RowScale& first,
                         const RowScale& second)
      : c(consumer), softmax(first, second) {
    if constexpr (C::kExpCast) {
      c.reference0 = Softmax::reference(first);
      c.reference1 = Softmax::reference(second);
    }
  }

  VC_DEVICE void run(int tiles) {
    typename Softmax::Scores scores;
    PackedScores codes;
    c.first_scores(scores);
    next_octaves = softmax.encode(scores, codes);
    pack_codes(codes, c.p);
    const int last = tiles - 1;
    int t = 0;
    if (last > 0) {
      step<Before::kNothing>(t++);
      int group_end = kMeanGroup + (kPromoteBehindScores ? 1 : 0);
      VC_NO_UNROLL
      while (true) {
        const int end = group_end < last ? group_end : last;
        VC_NO_UNROLL
        for (; t < end; ++t) step<Before::kTile>(t);
        if (t >= last) break;
        step<Before::kGroup>(t++);
        group_end += kMeanGroup;
      }
    }
    last_step(t);
  }

 private:
  /// What precedes the tile to be promoted: nothing, for there is none yet, a tile of its group, or
  /// a whole group, whose means are due.
  enum class Before { kNothing, kTile, kGroup };

  /// Nothing is in flight before or after it.
  template <Before kBefore>
  VC_DEVICE void step(int t) {
    typename Softmax::Scores scores;
    PackedScores codes;
    // There are no registers to keep the row sums while everything else is in flight.
    if constexpr (kBefore == Before::kGroup) c.restore_means(t / kMeanGroup - 1);
    ptx::wgmma_fence();
    c.score_product(scores, c.stage_bytes);
    ptx::wgmma_commit();
    if constexpr (kPromoteBehindScores && kBefore != Before::kNothing) promote(t - 1);
    ptx::wgmma_fence();
    c.value_product(false);
    ptx::wgmma_commit();
    octaves = next_octaves;

    ptx::wgmma_wait<1>(scores);
    next_octaves = softmax.encode(scores, codes);
    ptx::register_fence(codes);
    const int used = c.stage;
    c.next_stage();
    ptx::mbarrier_wait(c.shared.full[c.stage], c.lap);

    ptx::wgmma_wait<0>(c.product, c.p);
    c.hand_back(used);
    pack_codes(codes, c.p);
    if constexpr (!kPromoteBehindScores) promote(t);
  }

  VC_DEVICE void last_step(int t) {
    if (kPromoteBehindScores && t > 0) promote_after_means(t - 1);
    ptx::wgmma_fence();
    c.value_product(false);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(c.product, c.p);
    octaves = next_octaves;
    promote_after_means(t);
    c.restore_means(t / kMeanGroup);
  }

  VC_DEVICE void promote_after_means(int t) {
    if (t > 0 && t % kMeanGroup == 0) c.restore_means(t / kMeanGroup - 1);
    promote(t);
  }

  VC_DEVICE void promote(int t) {
    const auto factors = c.find_factors(octaves);
    const float r0 = c.first_sum() * factors.first, r1 = c.second_sum() * factors.second;
    c.sum0 += r0;
    c.sum1 += r1;
    c.keep_row_sums(t, r0, r1);
    c.add_product(factors);
  }
};

}  // namespace vcattn::cuda::sm90
