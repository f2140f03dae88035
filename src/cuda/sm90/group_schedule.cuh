// E4M3 scores: codes are relative to the largest score of a row so far, so that the products of a
// few tiles add up in the matrix unit and are promoted together.
//
// One step, for tile t: issue Q.K(t + 1) and P.V(t); when the scores are there, turn them into
// codes while P.V runs; when P.V is there, and every kPromotedTiles-th time, add the product to the
// output in FP32. A row whose largest score has grown scales what has added up. Every eighth step
// also restores the eight block means before it by one tf32 product of the row sums with the
// stacked means.
#pragma once

#include "cuda/sm90/consumer.cuh"

namespace vcattn::cuda::sm90 {

template <class C, int kWarpgroup>
struct GroupSchedule {
  static_assert(C::kStages <= kMeanGroup);  // see TileSchedule
  using Factors = typename Consumer<C, kWarpgroup>::Factors;

  Consumer<C, kWarpgroup>& c;
  HalfSoftmax softmax;
  Factors factors{};                     ///< of c.product
  float before0 = 0.0f, before1 = 0.0f;  ///< row sums in c.product without its last tile

  VC_DEVICE GroupSchedule(Consumer<C, kWarpgroup>& consumer, const RowScale&, const RowScale&)
      : c(consumer) {}

  VC_DEVICE void run(int tiles) {
    HalfSoftmax::Scores scores;
    PackedScores codes;
    c.first_scores(scores);
    softmax.encode(scores, codes);
    factors = c.find_factors(HalfSoftmax::octaves(softmax.largest()));
    pack_codes(codes, c.p);
    const int last = tiles - 1;
    int t = 0, group_end = kMeanGroup;
    VC_NO_UNROLL
    while (true) {
      const int end = group_end < last ? group_end : last;
      VC_NO_UNROLL
      for (; t < end; ++t) step<false>(t);
      if (t >= last) break;
      step<true>(t++);
      group_end += kMeanGroup;
    }
    last_step(t);
  }

 private:
  /// Nothing is in flight before or after it. kRestore at the first tile of a group of means, for
  /// the one before it.
  template <bool kRestore>
  VC_DEVICE void step(int t) {
    HalfSoftmax::Scores scores;
    PackedScores codes;
    ptx::Fragment<std::uint32_t, 4> r;
    if constexpr (kRestore) c.take_row_sums(r);
    ptx::wgmma_fence();
    c.score_product(scores, c.stage_bytes);
    ptx::wgmma_commit();
    c.value_product(!kRestore && !starts_anew(t));
    if constexpr (kRestore) c.mean_product(r, t / kMeanGroup - 1);
    ptx::wgmma_commit();

    ptx::wgmma_wait<1>(scores);
    const std::uint32_t largest = softmax.largest();
    softmax.encode(scores, codes);
    const bool grown = ptx::vote_any(softmax.largest() != largest);
    ptx::register_fence(codes);
    const int used = c.stage;
    c.next_stage();
    ptx::mbarrier_wait(c.shared.full[c.stage], c.lap);

    ptx::wgmma_wait<0>(c.product, c.p);
    if constexpr (kRestore) {
      ptx::register_fence(c.output);
      ptx::register_fence(r);
    }
    c.hand_back(used);
    pack_codes(codes, c.p);
    keep_row_sums(t);
    if (starts_anew(t + 1)) promote();
    if (grown) follow(largest);
    ptx::register_fence(c.product);  // or ptxas keeps a copy
  }

  VC_DEVICE void last_step(int t) {
    if (t > 0 && t % kMeanGroup == 0) c.restore_means(t / kMeanGroup - 1);
    ptx::wgmma_fence();
    c.value_product(!starts_anew(t));
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(c.product, c.p);
    keep_row_sums(t);
    promote();
    c.restore_means(t / kMeanGroup);
  }

  /// Whether nothing has added up before tile t.
  VC_DEVICE static bool starts_anew(int t) { return t % C::kPromotedTiles == 0; }

  VC_DEVICE void keep_row_sums(int t) {
    const float first = c.first_sum(), second = c.second_sum();
    c.keep_row_sums(t, (first - before0) * factors.first, (second - before1) * factors.second);
    before0 = first;
    before1 = second;
  }

  VC_DEVICE void promote() {
    c.sum0 += c.first_sum() * factors.first;
    c.sum1 += c.second_sum() * factors.second;
    c.add_product(factors);
    before0 = before1 = 0.0f;
  }

  /// The largest score of a row was `largest` when the codes of c.product were made. Rare, once the
  /// first tiles have been seen. (After a promotion c.product does not matter.)
  VC_DEVICE void follow(std::uint32_t largest) {
    const TileOctaves from = HalfSoftmax::octaves(largest);
    const TileOctaves to = HalfSoftmax::octaves(softmax.largest());
    const Factors shrink{ptx::exp2_approx(from.first - to.first),
                         ptx::exp2_approx(from.second - to.second)};
    before0 *= shrink.first;
    before1 *= shrink.second;
    c.scale(c.product, shrink);
    factors = c.find_factors(to);
  }
};

}  // namespace vcattn::cuda::sm90
