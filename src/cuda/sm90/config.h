// The variants of the Hopper attention kernel: one row each, and everything that follows from a
// row. CMake writes one translation unit per row; the dispatcher, `vcattn info`, tests and
// documentation iterate the same table.
#pragma once

#include <cstdint>

namespace vcattn::cuda::sm90 {

/// How scores are computed and turned into codes.
enum class Scores : std::uint8_t {
  kInt8,  ///< INT8 Q and K, S32 accumulators, the score window (numerics/score_window.h)
  kE4m3,  ///< E4M3 Q and K, FP16 accumulators, half-precision codes (numerics/score_half.h)
};

/// How a score becomes a probability.
enum class Weights : std::uint8_t {
  kExpCast,
  kExp,  ///< the exponential, rounded to E4M3: the ablation of ExpCast, for INT8 scores
};

struct Variant {
  const char* name;
  int dim;  ///< native head dimension; smaller ones are padded with zeros
  Scores scores;
  Weights weights;
};

inline constexpr Variant kVariants[] = {
    {"sm90/int8-d128", 128, Scores::kInt8, Weights::kExpCast},
    {"sm90/int8-d64", 64, Scores::kInt8, Weights::kExpCast},
    {"sm90/e4m3-d128", 128, Scores::kE4m3, Weights::kExpCast},
    {"sm90/e4m3-d64", 64, Scores::kE4m3, Weights::kExpCast},
    {"sm90/int8-exp-d128", 128, Scores::kInt8, Weights::kExp},
    {"sm90/int8-exp-d64", 64, Scores::kInt8, Weights::kExp},
};
inline constexpr int kVariantCount = static_cast<int>(sizeof(kVariants) / sizeof(kVariants[0]));

inline constexpr int kTileQueries = 128;  ///< rows of a block: two warpgroups of 64
inline constexpr int kTileKeys = 128;
inline constexpr int kMeanGroup = 8;  ///< tiles whose means are restored by one matrix product
/// Blocks of a cluster: query tiles of one head, which share every copy of keys and values.
inline constexpr int kCluster = 2;

/// What follows from a row of the table. (A template on the index: nvcc 13.0 rejects __global__
/// functions templated on a value of a type in a namespace.)
template <int kId>
struct Config {
  static constexpr Variant kVariant = kVariants[kId];
  static constexpr int kDim = kVariant.dim;
  static constexpr bool kInt8Scores = kVariant.scores == Scores::kInt8;
  static constexpr bool kExpCast = kVariant.weights == Weights::kExpCast;
  static constexpr int kStages = kDim == 128 ? 6 : 8;

  static constexpr int kScoreRegisters = kInt8Scores ? 64 : 32;  ///< per thread, 64 x 128 scores
  static constexpr int kOutputRegisters = kDim / 2;
  static constexpr int kProductRegisters = kOutputRegisters + 4;  ///< with the column of ones
  static constexpr int kScoreSteps = kDim / 32;                   ///< k-steps of Q.K
  static constexpr int kProductSteps = kTileKeys / 32;            ///< k-steps of P.V
  /// E4M3 queries fit in registers beside the packed scores; INT8 ones stay in shared memory.
  static constexpr bool kQueriesInRegisters = !kInt8Scores;

  /// E4M3 scores: tiles whose products may add up in the matrix unit, which cuts sums off at 14
  /// bits.
  static constexpr int kPromotedTiles = 4;

  static constexpr int kConsumerRegisters = 240;
  static constexpr int kProducerRegisters = 24;
};

}  // namespace vcattn::cuda::sm90
