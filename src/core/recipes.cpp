// The named recipes: one table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "vcattn/error.h"
#include "vcattn/options.h"

namespace vcattn {
namespace {

struct Named {
  std::string_view summary;
  Recipe recipe;
};

/// The peers have none of what this project adds, and take the running maximum.
Recipe peer(const char* name, Recipe recipe) {
  recipe.name = name;
  recipe.scores = ScoreFormat::kFloat;
  recipe.qk_balance = false;
  recipe.qk_sample = false;
  recipe.hadamard = false;
  recipe.p_reference = PReference::kRunning;
  recipe.nvfp4_scale = Nvfp4Scale::kSix;
  recipe.v_smooth = VSmooth::kOff;
  return recipe;
}

Recipe exact() {
  return peer(
      "exact",
      {.qk = QkFormat::kFloat, .k_mean = false, .p = PFormat::kFloat, .v = VFormat::kFloat});
}

const std::array<Named, 10>& table() {
  static const std::array<Named, 10> kTable{{
      {"float32 throughout, exact exponential", exact()},
      {"plain FP8: E4M3 Q and K per 128 rows, E4M3 P and V, no smoothing (FlashAttention-3 style)",
       peer("fp8", {.qk = QkFormat::kE4M3,
                    .q_scale_rows = 128,
                    .k_scale_rows = 128,
                    .k_mean = false,
                    .p = PFormat::kE4M3Exp,
                    .v = VFormat::kE4M3Head})},
      {"SageAttention2: INT8 Q per 16 rows and K per 128, K mean, E4M3 P and V per channel",
       peer("sage2", {.q_scale_rows = 16, .k_scale_rows = 128, .p = PFormat::kE4M3Exp})},
      {"SageAttention3: NVFP4 Q, K, V and two-level P, K mean and Q block mean",
       peer("sage3", {.qk = QkFormat::kNvfp4,
                      .q_block_mean = true,
                      .p = PFormat::kNvfp4,
                      .v = VFormat::kNvfp4})},
      {"VC-Attention 8 bit: INT8 Q and K + Hadamard, clustered V-Smooth, tile-local ExpCast",
       {.name = "vc8"}},
      {"VC-Attention 8 bit as in arXiv 2609.15810: running maximum, code 120, beta -0.35",
       {.name = "vc8-paper",
        .k_scale_rows = 1,
        .scores = ScoreFormat::kFloat,
        .qk_balance = false,
        .qk_sample = false,
        .p_reference = PReference::kRunning,
        .p_top = 120.0F,
        .p_beta = -0.35F,
        .v_mean_refit = false,
        .cluster_order = ClusterOrder::kLabel,
        .keys_per_cluster = 128}},
      {"vc8 with the exact exponential rounded to E4M3 (ablation of ExpCast)",
       {.name = "vc8-exp", .p = PFormat::kE4M3Exp, .p_reference = PReference::kRunning}},
      {"vc8 with E4M3 Q and K and half-precision scores (faster on Hopper, less exact)",
       {.name = "vc8-fast",
        .qk = QkFormat::kE4M3,
        .scores = ScoreFormat::kHalf,
        .p_reference = PReference::kRunning}},
      {"vc8-fast with noise-shaped rounding of Q and K",
       {.name = "vc8-shaped",
        .qk = QkFormat::kE4M3,
        .scores = ScoreFormat::kHalf,
        .qk_shaping = true,
        .p_reference = PReference::kRunning}},
      {"VC-Attention 4 bit: NVFP4 Q, K, V and P, Q and K block means, Hadamard, clustered V-Smooth",
       {.name = "vc4",
        .qk = QkFormat::kNvfp4,
        .k_tile_mean = true,
        .q_block_mean = true,
        .p = PFormat::kNvfp4,
        .v = VFormat::kNvfp4}},
  }};
  return kTable;
}

const Named& find(std::string_view name) {
  for (const Named& entry : table()) {
    if (entry.recipe.name == name) return entry;
  }
  throw Error(
      ErrorCode::kInvalidArgument, "recipe",
      fmt::format("\"{}\" is not known (supported: {})", name, fmt::join(recipe_names(), ", ")));
}

}  // namespace

Recipe recipe(std::string_view name) { return find(name).recipe; }

std::string_view recipe_summary(std::string_view name) { return find(name).summary; }

const std::vector<std::string>& recipe_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Named& entry : table()) names.push_back(entry.recipe.name);
    return names;
  }();
  return kNames;
}

}  // namespace vcattn
