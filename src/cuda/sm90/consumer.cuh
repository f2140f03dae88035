// A consumer warpgroup: 64 query rows against every tile of keys.
//
// One step of the main loop, for tile t: issue Q.K(t + 1) and P.V(t); when the scores are there,
// turn them into codes while P.V runs; when P.V is there, add it to the output in FP32 under the
// tile's own scale. Every eighth step also restores eight block means by one tf32 product of the
// scaled row sums with the stacked means.
//
// The two warpgroups are not ordered against each other: measured, a ping-pong gains nothing here
// (docs/kernels/sm90.md).
#pragma once

#include "cuda/sm90/softmax.cuh"
#include "cuda/sm90/storage.cuh"
#include "vcattn/numerics/online_softmax.h"

namespace vcattn::cuda::sm90 {

/// Sums are kept relative to 2^reference; it moves when a tile would come within reach of overflow,
/// which ordinary data never does.
inline constexpr float kReferenceHeadroom = 60.0f, kReferenceStep = 40.0f;

template <class C, int kWarpgroup>
struct Consumer {
  using Softmax = std::conditional_t<C::kInt8Scores, WindowSoftmax, HalfSoftmax>;
  using Scores = typename Softmax::Scores;
  using Product = ptx::Fragment<float, C::kProductRegisters>;
  static constexpr ptx::Swizzle kScoreSwizzle =
      C::kDim == 128 ? ptx::Swizzle::k128Bytes : ptx::Swizzle::k64Bytes;
  static constexpr std::uint32_t kStageBytes = sizeof(Stage<C>);

  AttentionStorage<C>& shared;
  const int lane, quad_lane;
  std::uint32_t* row_sums;
  Softmax softmax;
  ptx::MatrixDescriptor q_descriptor, k_descriptor, v_descriptor, mean_descriptor;
  ptx::Fragment<std::uint32_t, C::kQueriesInRegisters ? 4 * C::kScoreSteps : 4> q;
  ptx::Fragment<std::uint32_t, 16> p;  ///< codes of the tile whose product is next
  ptx::Fragment<float, C::kOutputRegisters> output;
  TileOctaves octaves;  ///< of the tile whose product is next, and 2^(octaves - reference)
  float f0 = 0.0f, f1 = 0.0f;
  float sum0 = 0.0f, sum1 = 0.0f, reference = 0.0f;
  int stage = 0;
  std::uint32_t stage_bytes = 0;  ///< stage * kStageBytes
  std::uint32_t lap = 0;

  VC_DEVICE Consumer(AttentionStorage<C>& storage, const RowScale& first, const RowScale& second)
      : shared(storage),
        lane(ptx::lane_index()),
        quad_lane(lane & 3),
        row_sums(storage.row_sums[ptx::thread_index() - ptx::kWarpgroupSize]),
        softmax(first, second),
        q_descriptor(ptx::make_descriptor(&storage.q[kWarpgroup][0], kScoreSwizzle, 8 * C::kDim)),
        k_descriptor(ptx::make_descriptor(&storage.stage[0].k[0], kScoreSwizzle, 8 * C::kDim)),
        v_descriptor(ptx::make_descriptor(&storage.stage[0].v[0], ptx::Swizzle::k128Bytes, 1024)),
        mean_descriptor(ptx::make_descriptor(&storage.means[0][0], ptx::Swizzle::k32Bytes, 256)) {}

  VC_DEVICE void run(int tiles) {
    clear_row_sums();
    ptx::fill(output, 0.0f);
    ptx::mbarrier_wait(shared.start, 0);
    if constexpr (C::kQueriesInRegisters) load_queries();
    first_scores();
    ptx::mbarrier_wait(shared.full[0], 0);
    const int last = tiles - 1;
    int t = 0, group_end = kMeanGroup;
    VC_NO_UNROLL
    while (true) {
      const int end = group_end < last ? group_end : last;
      VC_NO_UNROLL
      for (; t < end; ++t) step<false>(t);
      if (t >= last) break;
      step<true>(t);
      ++t;
      group_end += kMeanGroup;
    }
    last_step(t);
  }

  /// Tile t's product and tile t + 1's scores; kRestore at the first tile of a group of means, for
  /// the group before it.
  template <bool kRestore>
  VC_DEVICE void step(int t) {
    Scores scores;
    Product product;
    PackedScores codes;
    ptx::Fragment<std::uint32_t, 4> r;
    constexpr bool kOutputInFlight = kRestore && !C::kInt8Scores;
    if constexpr (kOutputInFlight) check_reference();
    if constexpr (kRestore) {
      take_row_sums(r);
      // INT8 scores leave no registers to keep r while everything else is in flight.
      if constexpr (C::kInt8Scores) restore_means(r, t / kMeanGroup - 1);
    }
    ptx::wgmma_fence();
    score_product(scores, stage_bytes);
    ptx::wgmma_commit();
    value_product(product, stage_bytes);
    if constexpr (kOutputInFlight) mean_product(r, t / kMeanGroup - 1);
    ptx::wgmma_commit();
    if constexpr (!kOutputInFlight) check_reference();
    find_factors();

    ptx::wgmma_wait<1>(scores);
    const TileOctaves next_octaves = softmax.encode(scores, codes);
    ptx::register_fence(codes);
    const int used = stage;
    next_stage();
    ptx::mbarrier_wait(shared.full[stage], lap);

    ptx::wgmma_wait<0>(product, p);
    if constexpr (kOutputInFlight) {
      ptx::register_fence(output);
      ptx::register_fence(r);
    }
    hand_back(used);
    pack_codes(codes, p);
    promote(product, t);
    octaves = next_octaves;
  }

  VC_DEVICE void first_scores() {
    Scores scores;
    PackedScores codes;
    ptx::wgmma_fence();
    score_product(scores, (C::kStages - 1) * kStageBytes);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(scores);
    hand_back(C::kStages - 1);
    octaves = softmax.encode(scores, codes);
    pack_codes(codes, p);
  }

  VC_DEVICE void last_step(int t) {
    ptx::Fragment<std::uint32_t, 4> r;
    check_reference();
    find_factors();
    if (t > 0 && t % kMeanGroup == 0) {
      take_row_sums(r);
      restore_means(r, t / kMeanGroup - 1);
    }
    Product product;
    ptx::wgmma_fence();
    value_product(product, stage_bytes);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(product, p);
    promote(product, t);
    take_row_sums(r);
    restore_means(r, t / kMeanGroup);
  }

  // ---- matrix products ----

  VC_DEVICE void score_product(Scores& scores, std::uint32_t stage_offset) {
    const ptx::MatrixDescriptor k = ptx::advance(k_descriptor, stage_offset);
    VC_UNROLL
    for (int i = 0; i < C::kScoreSteps; ++i) {
      const ptx::MatrixDescriptor k_step = ptx::advance(k, 32 * i);
      if constexpr (C::kInt8Scores) {
        ptx::wgmma_s8(scores, ptx::advance(q_descriptor, 32 * i), k_step, i != 0);
      } else {
        ptx::wgmma_e4m3_f16(scores, q, i, k_step, i != 0);
      }
    }
  }

  VC_DEVICE void value_product(Product& product, std::uint32_t stage_offset) {
    const ptx::MatrixDescriptor v = ptx::advance(v_descriptor, stage_offset);
    VC_UNROLL
    for (int i = 0; i < C::kProductSteps; ++i) {
      ptx::wgmma_e4m3(product, p, i, ptx::advance(v, 32 * i), i != 0);
    }
  }

  VC_DEVICE void mean_product(const ptx::Fragment<std::uint32_t, 4>& r, int group) {
    ptx::wgmma_tf32(output, r, 0,
                    ptx::advance(mean_descriptor, (group & 1) * sizeof(shared.means[0])), true);
  }

  VC_DEVICE void restore_means(ptx::Fragment<std::uint32_t, 4>& r, int group) {
    ptx::wgmma_fence();
    mean_product(r, group);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(output, r);
  }

  // ---- sums ----

  VC_DEVICE void find_factors() {
    f0 = ptx::exp2_approx(octaves.first - reference);
    f1 = ptx::exp2_approx(octaves.second - reference);
  }

  /// output += product * 2^(octaves - reference), and the same for the row sums, of tile t.
  VC_DEVICE void promote(const Product& product, int t) {
    const float r0 = product[C::kOutputRegisters] * f0;
    const float r1 = product[C::kOutputRegisters + 2] * f1;
    sum0 += r0;
    sum1 += r1;
    if (t % 4 == quad_lane) {  // column t of the A fragment belongs to this lane
      const ptx::Vec<std::uint32_t, 2> r{{to_tf32(r0), to_tf32(r1)}};
      ptx::store_shared(row_sums + (t & 4) / 2, r);
    }
    VC_UNROLL
    for (int i = 0; i < C::kOutputRegisters; ++i) {
      output[i] = numerics::fma_rn(product[i], i % 4 < 2 ? f0 : f1, output[i]);
    }
  }

  /// Before a tile is added, and while the output is not in flight: one far above everything before
  /// it moves the reference. Rare. Powers of two, so nothing is rounded. The whole warp takes the
  /// branch, so that it costs a vote.
  VC_DEVICE void check_reference() {
    const float most = octaves.first > octaves.second ? octaves.first : octaves.second;
    const bool move = most - reference > kReferenceHeadroom;
    if (!ptx::vote_any(move)) return;
    const float moved =
        move ? static_cast<float>(static_cast<int>(most)) - kReferenceStep : reference;
    const float factor = ptx::exp2_approx(reference - moved);
    reference = moved;
    sum0 *= factor;
    sum1 *= factor;
    VC_UNROLL
    for (int i = 0; i < C::kOutputRegisters; ++i) output[i] *= factor;
    auto r = ptx::load_shared<ptx::Vec<float, 4>>(row_sums);
    VC_UNROLL
    for (int i = 0; i < 4; ++i) r[i] *= factor;
    ptx::store_shared(row_sums, r);
  }

  /// Nearest tf32, ties away from zero: the matrix unit drops the low 13 bits. (A NaN may turn into
  /// a number here; it reaches the output through the row's factor.)
  VC_DEVICE static std::uint32_t to_tf32(float x) { return numerics::float_bits(x) + 0x1000u; }

  // ---- the rest ----

  VC_DEVICE void clear_row_sums() {
    ptx::store_shared(row_sums, ptx::Vec<std::uint32_t, 4>{{0, 0, 0, 0}});
  }

  VC_DEVICE void take_row_sums(ptx::Fragment<std::uint32_t, 4>& r) {
    const auto stored = ptx::load_shared<ptx::Vec<std::uint32_t, 4>>(row_sums);
    VC_UNROLL
    for (int i = 0; i < 4; ++i) r[i] = stored[i];
    ptx::register_fence(r);
    clear_row_sums();
  }

  /// Q's A fragments, from its image.
  VC_DEVICE void load_queries() {
    const int row = ptx::thread_index() % ptx::kWarpgroupSize / ptx::kWarpSize * 16 + lane / 4;
    VC_UNROLL
    for (int i = 0; i < C::kScoreSteps; ++i) {
      VC_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int at = score_operand_offset<C::kDim>(row + (j & 1) * 8,
                                                     i * 32 + (j >> 1) * 16 + quad_lane * 4);
        q[4 * i + j] = ptx::load_shared<std::uint32_t>(&shared.q[kWarpgroup][at]);
      }
    }
    ptx::register_fence(q);
  }

  VC_DEVICE void next_stage() {
    ++stage;
    stage_bytes += kStageBytes;
    if (stage == C::kStages) {
      stage = 0;
      stage_bytes = 0;
      lap ^= 1u;
    }
  }

  VC_DEVICE void hand_back(int used) {
    if (lane == 0) ptx::mbarrier_arrive(shared.empty[used]);
  }
};

}  // namespace vcattn::cuda::sm90
