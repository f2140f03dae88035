#include "dispatch/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/validate.h"

namespace vcattn {
namespace {

std::string rows_per_scale(int rows) {
  if (rows == 0) return "one scale per head";
  if (rows == 1) return "one scale per token";
  return fmt::format("one scale per {} tokens", rows);
}

std::string describe_qk(const Recipe& r) {
  const std::string scales = fmt::format("Q with {}, K with {}", rows_per_scale(r.q_scale_rows),
                                         rows_per_scale(r.k_scale_rows));
  switch (r.qk) {
    case QkFormat::kFloat:
      return "Q and K enter the product in float32.";
    case QkFormat::kInt8:
      return fmt::format("Q and K are quantized to INT8: {}{}.", scales,
                         effective_scores(r) == ScoreFormat::kWindow
                             ? "; scores are 16 bits of the product and a multiplier per query"
                             : "");
    case QkFormat::kE4M3:
      return fmt::format(
          "Q and K are quantized to E4M3: {}{}.", scales,
          effective_scores(r) == ScoreFormat::kHalf ? "; scores are accumulated in binary16" : "");
    case QkFormat::kNvfp4:
      return "Q and K are quantized to NVFP4: E2M1 with an E4M3 scale per 16 channels and a tensor "
             "scale per head.";
  }
  return {};
}

std::string describe_p(const Recipe& r) {
  const std::string reference = r.p_reference == PReference::kTile
                                    ? "the row's maximum in each tile of 128 keys"
                                    : "the row's running maximum";
  switch (r.p) {
    case PFormat::kFloat:
      return fmt::format("Probabilities are exact exponentials relative to {}.", reference);
    case PFormat::kE4M3Exp:
      return fmt::format("Probabilities are exponentials rounded to E4M3, relative to {}.",
                         reference);
    case PFormat::kExpCast:
      return fmt::format(
          "Probabilities are E4M3 bytes by ExpCast (no exponential), relative to {} at code {}, "
          "offset {}.",
          reference, r.p_top, r.p_beta);
    case PFormat::kNvfp4:
      return fmt::format("Probabilities are two-level NVFP4 relative to {}.", reference);
  }
  return {};
}

std::string describe_v(const Recipe& r) {
  switch (r.v) {
    case VFormat::kFloat:
      return "V enters the product in float32.";
    case VFormat::kE4M3Channel:
      return "V is quantized to E4M3 with one scale per channel.";
    case VFormat::kE4M3Head:
      return "V is quantized to E4M3 with one scale per head.";
    case VFormat::kNvfp4:
      return "V is quantized to NVFP4 with an E4M3 scale per 16 keys and a tensor scale per head.";
  }
  return {};
}

std::string describe_smoothing(const Recipe& r) {
  switch (r.v_smooth) {
    case VSmooth::kOff:
      return "V is not smoothed.";
    case VSmooth::kSequence:
      return "V-Smooth: the mean of each 128 tokens in sequence is taken out of V and restored.";
    case VSmooth::kClustered:
      return fmt::format(
          "V-Smooth: k-means over V (one cluster per {} keys, {} iterations, tokens laid out {}) "
          "permutes K and V; the mean of each 128 keys is taken out of V and restored{}.",
          r.keys_per_cluster, r.kmeans_iterations,
          r.cluster_order == ClusterOrder::kChain ? "along a chain of clusters" : "by label",
          r.v_mean_refit ? " together with the mean rounding error" : "");
  }
  return {};
}

std::string describe_scores(const Recipe& r) {
  std::vector<std::string> steps;
  if (r.k_mean) steps.emplace_back("the mean key is subtracted (the LSE is corrected)");
  if (r.q_block_mean) {
    steps.emplace_back("the mean of each 128 queries is subtracted and its scores are added back");
  }
  if (r.k_tile_mean) {
    steps.emplace_back("the mean of each 128 keys is subtracted and its score is added back");
  }
  if (r.qk_balance) {
    steps.emplace_back("channels of Q and K are balanced by powers of two");
  }
  if (r.hadamard) steps.emplace_back("Q and K are rotated by a Hadamard transform");
  if (r.qk_shaping) {
    steps.emplace_back("their rounding errors are shaped to where the other operand is small");
  }
  if (steps.empty()) return "Q and K are used as they are.";
  return fmt::format("Before the scores, {}.", fmt::join(steps, "; "));
}

}  // namespace

std::vector<std::string> describe_stages(const Arguments& a, const Recipe& recipe) {
  std::vector<std::string> lines;
  const std::int64_t d = a.q.dim();
  if (padded_dim(d) != d) {
    lines.push_back(fmt::format("Head dimension {} is padded to {} with zeros; the scale stays {}.",
                                d, padded_dim(d), effective_scale(a)));
  }
  if (a.q_rope || a.k_rope) lines.emplace_back("Rotary tables are applied on loading.");
  lines.push_back(describe_smoothing(recipe));
  lines.push_back(describe_v(recipe));
  lines.push_back(describe_scores(recipe));
  lines.push_back(describe_qk(recipe));
  lines.push_back(describe_p(recipe));
  if (a.causal) lines.emplace_back("Causal, bottom-right aligned.");
  if (a.mask) lines.emplace_back("The mask is applied to every score.");
  if (a.key_lengths != nullptr) lines.emplace_back("Keys beyond each key length are not read.");
  return lines;
}

}  // namespace vcattn
