// What to compute with: the recipe (formats and smoothing) and where to run it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vcattn {

/// How queries and keys enter the score product.
enum class QkFormat : std::uint8_t {
  kFloat,  ///< float32, not quantized
  kInt8,   ///< INT8, symmetric, S32 accumulation (exact)
  kE4M3,   ///< FP8 E4M3
  kNvfp4,  ///< E2M1 with one E4M3 scale per 16 elements of d
};

/// The form in which scores reach the encoder of P. What a Hopper kernel takes depends on the
/// product; both of its forms need one scale per query and one per head of keys, and mean float32
/// for any other product.
enum class ScoreFormat : std::uint8_t {
  kFloat,   ///< float32
  kWindow,  ///< INT8: 16 bits of the product and one multiplier per query, numerics/score_window.h
  kHalf,    ///< E4M3: accumulated in binary16, numerics/score_half.h
};

/// How a probability tile enters the product with V.
enum class PFormat : std::uint8_t {
  kFloat,    ///< float32, exact exponential
  kE4M3Exp,  ///< exact exponential, rounded to nearest even E4M3
  kExpCast,  ///< ExpCast-FP8: the E4M3 byte by one fused multiply-add, no exponential
  kNvfp4,    ///< exact exponential, two-level: row scale, then E2M1 with a scale per 16 keys
};

/// The value a tile's probabilities are taken relative to.
enum class PReference : std::uint8_t {
  kTile,     ///< the row's maximum within the tile of 128 keys
  kRunning,  ///< the row's maximum over all tiles so far
};

enum class VFormat : std::uint8_t {
  kFloat,        ///< float32, not quantized
  kE4M3Channel,  ///< E4M3, one scale per channel and head
  kE4M3Head,     ///< E4M3, one scale per head
  kNvfp4,        ///< E2M1 with one E4M3 scale per 16 keys of a channel
};

/// V-Smooth: which rows share a mean before V is quantized (blocks of 128).
enum class VSmooth : std::uint8_t {
  kOff,        ///< no means
  kSequence,   ///< blocks of 128 tokens in the order given
  kClustered,  ///< tokens permuted by online k-means over V first
};

/// The order of tokens after clustering.
enum class ClusterOrder : std::uint8_t {
  kLabel,  ///< by cluster label, as published
  kChain,  ///< along a chain of nearest centroids, sorted along it within each cluster
};

/// How the scale of an NVFP4 block of 16 is chosen from its largest magnitude.
enum class Nvfp4Scale : std::uint8_t {
  kSix,      ///< it becomes 6, the largest E2M1 value
  kFourSix,  ///< it becomes 4 or 6, whichever leaves the smaller squared error
};

/// A complete description of the arithmetic. `recipe("vc8")` and friends give the named ones; every
/// field can also be set alone, by assignment or by `set_field`.
struct Recipe {
  std::string name = "vc8";
  QkFormat qk = QkFormat::kInt8;
  /// Rows that share one scale in Q; 1 = per token, 0 = the whole head. INT8 and E4M3 only.
  int q_scale_rows = 1;
  /// The same for K, in the order in which keys are processed (after the permutation).
  int k_scale_rows = 0;
  ScoreFormat scores = ScoreFormat::kWindow;
  bool k_mean = true;         ///< subtract the mean key of each head (the LSE is corrected)
  bool k_tile_mean = false;   ///< subtract each 128-key mean; its score is added to the tile's
  bool q_block_mean = false;  ///< subtract each 128-query mean; its scores are added back
  /// Multiply channel c of Q and divide that of K by the power of two nearest to
  /// sqrt(rms(K_c) / rms(Q_c)): scores stay the same, channels of unequal magnitude become level.
  bool qk_balance = true;
  /// Take k_mean and qk_balance from one row in 16 where there are 8,192 or more
  /// (numerics/row_sample.h).
  bool qk_sample = true;
  bool hadamard = true;  ///< orthonormal Hadamard rotation of Q and K over d
  /// Noise-shaped rounding of Q and K: errors go to where the other operand is small, at some 8,000
  /// multiply-adds a row (numerics/noise_shaping.h). INT8 and E4M3 only.
  bool qk_shaping = false;
  PFormat p = PFormat::kExpCast;
  PReference p_reference = PReference::kTile;
  float p_top = 126.0F;  ///< ExpCast: code of a score equal to the reference
  float p_beta = 0.0F;   ///< ExpCast: offset in codes added before rounding
  VFormat v = VFormat::kE4M3Channel;
  Nvfp4Scale nvfp4_scale = Nvfp4Scale::kFourSix;  ///< for Q, K and V
  VSmooth v_smooth = VSmooth::kClustered;
  /// Add the mean rounding error of each block of V to the mean that is restored, so that a block's
  /// errors sum to zero.
  bool v_mean_refit = true;
  ClusterOrder cluster_order = ClusterOrder::kChain;
  int keys_per_cluster = 256;  ///< cluster count = ceil(keys / keys_per_cluster)
  int kmeans_iterations = 3;   ///< from a cold start; a warm start does half, at least one

  friend bool operator==(const Recipe&, const Recipe&) = default;
};

/// The recipe of that name. Throws Error{kInvalidArgument} that lists the known names.
Recipe recipe(std::string_view name);

/// "exact", "fp8", "sage2", "sage3", "vc8", "vc8-paper", "vc8-exp", "vc8-fast",
/// "vc8-shaped", "vc4".
const std::vector<std::string>& recipe_names();

/// One line on what a named recipe is and where it was published.
std::string_view recipe_summary(std::string_view name);

/// Sets one field from text, e.g. ("hadamard", "off"), ("v_smooth", "sequence"). Throws
/// Error{kInvalidArgument} naming the field and the values it takes.
void set_field(Recipe& recipe, std::string_view field, std::string_view value);

/// Field names and their values as text, in declaration order; `set_field` reads them back.
std::vector<std::pair<std::string, std::string>> fields(const Recipe& recipe);

enum class BackendChoice : std::uint8_t {
  kAuto,  ///< the tensors' own device; falls back with a stated reason where allowed
  kCpu,
  kCuda,
};

struct Options {
  Recipe recipe = {};
  BackendChoice backend = BackendChoice::kAuto;
};

}  // namespace vcattn
