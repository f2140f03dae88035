// A consumer warpgroup, 64 query rows against every tile of keys: its registers, and the parts of a
// step. tile_schedule.cuh and group_schedule.cuh put them in order.
//
// The two warpgroups are not ordered against each other: measured, a ping-pong gains nothing here
// (docs/kernels/sm90.md).
#pragma once

#include "cuda/sm90/softmax.cuh"
#include "cuda/sm90/storage.cuh"

namespace vcattn::cuda::sm90 {

/// Sums are kept relative to 2^reference, per row; it moves when a tile would come within reach of
/// overflow, which ordinary data never does.
inline constexpr float kReferenceHeadroom = 60.0f, kReferenceStep = 40.0f;

template <class C, int kWarpgroup>
struct Consumer {
  using Product = ptx::Fragment<float, C::kProductRegisters>;
  static constexpr ptx::Swizzle kScoreSwizzle =
      C::kDim == 128 ? ptx::Swizzle::k128Bytes : ptx::Swizzle::k64Bytes;
  static constexpr std::uint32_t kStageBytes = sizeof(Stage<C>);

  AttentionStorage<C>& shared;
  const int lane, quad_lane;
  std::uint32_t* row_sums;
  ptx::MatrixDescriptor q_descriptor, k_descriptor, v_descriptor, mean_descriptor;
  ptx::Fragment<std::uint32_t, C::kQueriesInRegisters ? 4 * C::kScoreSteps : 4> q;
  ptx::Fragment<std::uint32_t, 16> p;  ///< codes of the tile whose product is next
  Product product;                     ///< P.V, and the row sums, that are not yet in the output
  ptx::Fragment<float, C::kOutputRegisters> output;
  /// Of a thread's two rows: the sum of weights, and what it and the output are relative to.
  float sum0 = 0.0f, sum1 = 0.0f, reference0 = 0.0f, reference1 = 0.0f;
  int stage = 0;
  std::uint32_t stage_bytes = 0;  ///< stage * kStageBytes
  std::uint32_t lap = 0;

  VC_DEVICE explicit Consumer(AttentionStorage<C>& storage)
      : shared(storage),
        lane(ptx::lane_index()),
        quad_lane(lane & 3),
        row_sums(storage.row_sums[ptx::thread_index() - ptx::kWarpgroupSize]),
        q_descriptor(ptx::make_descriptor(&storage.q[kWarpgroup][0], kScoreSwizzle, 8 * C::kDim)),
        k_descriptor(ptx::make_descriptor(&storage.stage[0].k[0], kScoreSwizzle, 8 * C::kDim)),
        v_descriptor(ptx::make_descriptor(&storage.stage[0].v[0], ptx::Swizzle::k128Bytes, 1024)),
        mean_descriptor(ptx::make_descriptor(&storage.means[0][0], ptx::Swizzle::k32Bytes, 256)) {
    clear_row_sums();
    ptx::fill(output, 0.0f);
  }

  /// The scores of tile 0, whose keys came first. Ready for step 0 afterwards, but for its codes.
  template <class Scores>
  VC_DEVICE void first_scores(Scores& scores) {
    ptx::mbarrier_wait(shared.start, 0);
    if constexpr (C::kQueriesInRegisters) load_queries();
    ptx::wgmma_fence();
    score_product(scores, (C::kStages - 1) * kStageBytes);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(scores);
    hand_back(C::kStages - 1);
    ptx::mbarrier_wait(shared.full[0], 0);
  }

  // ---- matrix products ----

  template <class Scores>
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

  VC_DEVICE void value_product(bool accumulate) {
    const ptx::MatrixDescriptor v = ptx::advance(v_descriptor, stage_bytes);
    VC_UNROLL
    for (int i = 0; i < C::kProductSteps; ++i) {
      ptx::wgmma_e4m3(product, p, i, ptx::advance(v, 32 * i), accumulate || i != 0);
    }
  }

  VC_DEVICE void mean_product(const ptx::Fragment<std::uint32_t, 4>& r, int group) {
    ptx::wgmma_tf32(output, r, 0,
                    ptx::advance(mean_descriptor, (group & 1) * sizeof(shared.means[0])), true);
  }

  /// Adds the means of a group of tiles under its row sums, which are taken.
  VC_DEVICE void restore_means(int group) {
    ptx::Fragment<std::uint32_t, 4> r;
    take_row_sums(r);
    ptx::wgmma_fence();
    mean_product(r, group);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(output, r);
  }

  // ---- sums ----

  struct Factors {
    float first, second;
  };

  /// What scales `product` when it is added. Before that, and while the output is not in flight: a
  /// row far above everything before it moves its reference. Rare. Powers of two, so nothing is
  /// rounded. The whole warp takes the branch, so that it costs a vote.
  VC_DEVICE Factors find_factors(const TileOctaves& octaves) {
    const bool move0 = octaves.first - reference0 > kReferenceHeadroom;
    const bool move1 = octaves.second - reference1 > kReferenceHeadroom;
    if (ptx::vote_any(move0 || move1)) {
      const float moved0 = move0 ? reference_for(octaves.first) : reference0;
      const float moved1 = move1 ? reference_for(octaves.second) : reference1;
      const Factors factors{ptx::exp2_approx(reference0 - moved0),
                            ptx::exp2_approx(reference1 - moved1)};
      reference0 = moved0;
      reference1 = moved1;
      sum0 *= factors.first;
      sum1 *= factors.second;
      scale(output, factors);
      scale_row_sums(factors);
    }
    return {ptx::exp2_approx(octaves.first - reference0),
            ptx::exp2_approx(octaves.second - reference1)};
  }

  /// output += product * factors, in FP32.
  VC_DEVICE void add_product(const Factors& factors) {
    VC_UNROLL
    for (int i = 0; i < C::kOutputRegisters; ++i) {
      output[i] =
          numerics::fma_rn(product[i], i % 4 < 2 ? factors.first : factors.second, output[i]);
    }
  }

  /// The row sums in `product`.
  VC_DEVICE float first_sum() const { return product[C::kOutputRegisters]; }
  VC_DEVICE float second_sum() const { return product[C::kOutputRegisters + 2]; }

  template <int kCount>
  VC_DEVICE static void scale(ptx::Fragment<float, kCount>& x, const Factors& factors) {
    VC_UNROLL
    for (int i = 0; i < kCount; ++i) x[i] *= i % 4 < 2 ? factors.first : factors.second;
  }

  // ---- row sums of the tiles of a group, kept for its means ----

  /// Column t of the A fragment belongs to one lane of the quad.
  VC_DEVICE void keep_row_sums(int t, float first, float second) {
    if (t % 4 != quad_lane) return;
    ptx::store_shared(row_sums + (t & 4) / 2, ptx::Vec<float, 2>{{first, second}});
  }

  VC_DEVICE void scale_row_sums(const Factors& factors) {
    auto r = ptx::load_shared<ptx::Vec<float, 4>>(row_sums);
    VC_UNROLL
    for (int i = 0; i < 4; ++i) r[i] *= i % 2 == 0 ? factors.first : factors.second;
    ptx::store_shared(row_sums, r);
  }

  VC_DEVICE void take_row_sums(ptx::Fragment<std::uint32_t, 4>& r) {
    const auto kept = ptx::load_shared<ptx::Vec<float, 4>>(row_sums);
    VC_UNROLL
    for (int i = 0; i < 4; ++i) r[i] = to_tf32(kept[i]);
    ptx::register_fence(r);
    clear_row_sums();
  }

  VC_DEVICE void clear_row_sums() {
    ptx::store_shared(row_sums, ptx::Vec<std::uint32_t, 4>{{0, 0, 0, 0}});
  }

  // ---- stages ----

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

 private:
  /// A whole number, so that it and the factors that lead to it are exact.
  VC_DEVICE static float reference_for(float octaves) {
    constexpr float kAllWhole = 8388608.0f;  // 2^23: from there on every float is
    const float whole =
        octaves < kAllWhole ? static_cast<float>(static_cast<int>(octaves)) : octaves;
    return whole - kReferenceStep;
  }

  /// Nearest tf32, ties away from zero: the matrix unit drops the low 13 bits. (A NaN may turn into
  /// a number here; it reaches the output through the row's factor.)
  VC_DEVICE static std::uint32_t to_tf32(float x) { return numerics::float_bits(x) + 0x1000u; }

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
};

}  // namespace vcattn::cuda::sm90
