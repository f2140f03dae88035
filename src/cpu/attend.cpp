#include "cpu/attend.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>

#include "core/element.h"
#include "core/validate.h"
#include "cpu/tile.h"
#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/online_softmax.h"
#include "vcattn/numerics/score_half.h"
#include "vcattn/numerics/score_window.h"

namespace vcattn::cpu {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

numerics::ExpCast exp_cast_form(const Recipe& recipe) { return {recipe.p_top, recipe.p_beta}; }

/// ln of the probability that a score equal to the reference encodes to, which the LSE gives back.
float log_scale(const Recipe& recipe) {
  if (recipe.p == PFormat::kE4M3Exp) return numerics::exp_exact_log_scale();
  if (recipe.p == PFormat::kExpCast) return numerics::exp_cast_log_scale(exp_cast_form(recipe));
  return 0.0F;
}

/// One block of query rows on its way over the tiles.
class RowBlock {
 public:
  RowBlock(const AttendContext& context, const Queries& queries, const KeyValues& kv,
           std::int64_t first)
      : context_(context),
        queries_(queries),
        kv_(kv),
        first_(first),
        count_(std::min(kBlockQueries, context.entry.q_count - first)),
        dim_(queries.operand.values.dim),
        form_(effective_scores(context.recipe)),
        codes_per_score_(codes_per_score(context.arguments)),
        scores_(static_cast<std::size_t>(count_ * kTileKeys)),
        products_(static_cast<std::size_t>(count_ * dim_)),
        accumulator_(static_cast<std::size_t>(count_ * dim_), 0.0F),
        states_(static_cast<std::size_t>(count_)),
        non_finite_(static_cast<std::size_t>(count_), false) {
    ones_.fill(1.0F);
  }

  void add_tile(std::int64_t tile) {
    const float* q = queries_.operand.values.row(first_);
    const auto product = form_ == ScoreFormat::kHalf ? matmul_half : matmul;
    product(q, kv_.k_tiles.data() + tile * dim_ * kTileKeys, scores_.data(), count_, dim_,
            kTileKeys);
    const bool has_block_mean = queries_.block_means.count > 0;
    if (has_block_mean) score_block_mean(tile);
    const bool partial = (tile + 1) * kTileKeys > kv_.count();
    const bool biased =
        has_block_mean || kv_.key_means.count > 0 || partial || has_bias(context_.arguments);

    std::vector<float> row_sums(static_cast<std::size_t>(count_));
    std::vector<numerics::SoftmaxStep> steps(static_cast<std::size_t>(count_));
    for (std::int64_t r = 0; r < count_; ++r) {
      if (biased) fill_bias(r, tile);
      const float row_scale = queries_.operand.row_scales[first_ + r];
      // Scores of the other forms need no scale of the keys, nor the softmax's.
      const bool plain = form_ == ScoreFormat::kFloat;
      if (form_ == ScoreFormat::kWindow) window_scores(scores_.data() + r * kTileKeys);
      const RowMax max = scale_scores(
          scores_.data() + r * kTileKeys, plain ? row_scale * codes_per_score_ : row_scale,
          plain ? kv_.key_scales.data() + tile * kTileKeys : ones_.data(),
          biased ? bias_.data() : nullptr);
      if (max.non_finite) non_finite_[r] = true;
      encode(r, max.value, row_sums[r], steps[r]);
    }
    const float* v = kv_.v_tiles.data() + tile * kTileKeys * dim_;
    matmul(scores_.data(), v, products_.data(), count_, kTileKeys, dim_);
    const float* mean = kv_.means.count > 0 ? kv_.means.row(tile) : nullptr;
    for (std::int64_t r = 0; r < count_; ++r) {
      accumulate(accumulator_.data() + r * dim_, products_.data() + r * dim_, mean, row_sums[r],
                 steps[r].keep, steps[r].add, dim_);
    }
  }

  /// Divides by the row sums, restores the LSE and writes both.
  void store() const {
    const Arguments& a = context_.arguments;
    const Entry& entry = context_.entry;
    for (std::int64_t r = 0; r < count_; ++r) {
      const bool bad = non_finite_[r];
      const numerics::SoftmaxState& state = states_[r];
      const float inverse = bad ? numerics::quiet_nan() : numerics::softmax_inverse_sum(state.l);
      const std::int64_t token = entry.q_begin + first_ + r;
      for (std::int64_t c = 0; c < a.out.dim(); ++c) {
        // An empty row is 0 even where a value it does not see is NaN.
        const float value = inverse == 0.0F ? 0.0F : accumulator_[r * dim_ + c] * inverse;
        store_element(a.out, a.out.offset(entry.batch, context_.q_head, token, c), value);
      }
      if (!a.lse) continue;
      float lse = numerics::softmax_lse(state, log_scale(context_.recipe));
      if (form_ == ScoreFormat::kWindow) {
        // Windowed scores are rounded down, by half a unit on average.
        lse += 0.5F * queries_.operand.row_scales[first_ + r] / numerics::kCodesPerNat;
      }
      if (!queries_.lse_shift.empty()) {
        lse += queries_.lse_shift[first_ + r] * effective_scale(a);
      }
      a.lse->data[a.lse->offset(entry.batch, context_.q_head, token)] =
          bad ? numerics::quiet_nan() : lse;
    }
  }

 private:
  /// Scores of this block's mean query against the unquantized keys of a tile.
  void score_block_mean(std::int64_t tile) {
    matmul(queries_.block_means.row(first_ / kBlockQueries),
           kv_.smoothed_k_tiles.data() + tile * dim_ * kTileKeys, mean_scores_.data(), 1, dim_,
           kTileKeys);
  }

  /// What is added to row r's scores, in code units.
  void fill_bias(std::int64_t r, std::int64_t tile) {
    const bool has_block_mean = queries_.block_means.count > 0;
    float tile_score = 0.0F;
    if (kv_.key_means.count > 0) {
      const float* q = queries_.rows.row(first_ + r);
      tile_score = std::inner_product(q, q + dim_, kv_.key_means.row(tile), 0.0F);
    }
    for (std::int64_t j = 0; j < kTileKeys; ++j) {
      const std::int64_t position = tile * kTileKeys + j;
      if (position >= kv_.count()) {
        bias_[j] = kHidden;
        continue;
      }
      const float score = has_block_mean ? tile_score + mean_scores_[j] : tile_score;
      bias_[j] = score * codes_per_score_;
      if (has_bias(context_.arguments)) {
        bias_[j] += score_bias(context_.arguments, context_.entry, context_.q_head, first_ + r,
                               kv_.keys[position]) *
                    numerics::kCodesPerNat;
      }
    }
  }

  /// What a row's probabilities in a tile are relative to.
  struct TileReference {
    float score;         ///< in code units; the probability of this score is the format's largest
    float at_reference;  ///< ExpCast: the code of that score
    std::optional<float> half_offset = std::nullopt;  ///< ExpCast in binary16
  };

  TileReference reference_of(std::int64_t r, float tile_max) const {
    const Recipe& recipe = context_.recipe;
    const float nominal = recipe.p_top + recipe.p_beta;
    const bool running = recipe.p_reference == PReference::kRunning;
    const float before = states_[r].m * numerics::kCodesPerOctave;
    const bool anchored = recipe.p == PFormat::kExpCast && nominal == 126.0F;
    // Where keys are centred and all visible, a row's scores sum to zero and its maximum is not
    // negative: the kernel starts its search there.
    const bool centred = recipe.k_mean && !has_bias(context_.arguments);
    const float most = centred ? std::max(tile_max, 0.0F) : tile_max;
    if (form_ == ScoreFormat::kHalf && anchored) {
      float offset = numerics::score_half_offset(most);
      if (running && before != kHidden) {
        offset = std::min(offset, (nominal - before) * numerics::kScoreHalfSlope);
      }
      return {nominal - offset / numerics::kScoreHalfSlope, nominal, offset};
    }
    if (running) return {std::max(before, tile_max), nominal};
    if (form_ == ScoreFormat::kFloat) return {tile_max, nominal};
    if (!anchored) return {most, nominal};
    // Code 0 is a whole number of units below the maximum, which 126 codes are up to rounding.
    const auto window = numerics::score_window(queries_.operand.row_scales[first_ + r]);
    return {most, numerics::window_top_code(window)};
  }

  /// Scores of row r -> probabilities; updates the row's softmax state.
  void encode(std::int64_t r, float tile_max, float& row_sum, numerics::SoftmaxStep& step) {
    const Recipe& recipe = context_.recipe;
    float* row = scores_.data() + r * kTileKeys;
    if (tile_max == kHidden || non_finite_[r]) {
      std::fill(row, row + kTileKeys, 0.0F);
      row_sum = 0.0F;
      step = numerics::softmax_update(states_[r], kHidden, 0.0F);
      return;
    }
    const auto [reference, at_reference, half_offset] = reference_of(r, tile_max);
    float shift = 0.0F;
    switch (recipe.p) {
      case PFormat::kFloat:
        row_sum = exponentiate(row, reference);
        break;
      case PFormat::kE4M3Exp:
        row_sum = exponentiate_e4m3(row, reference);
        break;
      case PFormat::kExpCast:
        row_sum =
            half_offset ? exp_cast_half(row, *half_offset) : exp_cast(row, reference, at_reference);
        shift = recipe.p_top + recipe.p_beta - at_reference;
        break;
      case PFormat::kNvfp4:
        row_sum = exponentiate_nvfp4(row, reference, tile_max);
        break;
    }
    // In the state the reference is the score that would get the nominal code.
    const float octaves = (reference + shift) * numerics::kOctavesPerCode;
    step = numerics::softmax_update(states_[r], octaves, row_sum);
  }

  const AttendContext& context_;
  const Queries& queries_;
  const KeyValues& kv_;
  std::int64_t first_, count_, dim_;
  ScoreFormat form_;  ///< of the scores
  float codes_per_score_;
  std::vector<float> scores_, products_, accumulator_;
  std::vector<numerics::SoftmaxState> states_;
  std::vector<bool> non_finite_;
  std::array<float, kTileKeys> bias_{}, mean_scores_{}, ones_{};
};

}  // namespace

float codes_per_score(const Arguments& arguments) {
  return effective_scale(arguments) * numerics::kCodesPerNat;
}

void attend_rows(const AttendContext& context, const Queries& queries, const KeyValues& kv,
                 std::int64_t first) {
  RowBlock block(context, queries, kv, first);
  for (std::int64_t tile = 0; tile * kTileKeys < kv.count(); ++tile) block.add_tile(tile);
  block.store();
}

}  // namespace vcattn::cpu
