// Preparation: smoothing, rotation, permutation and quantization of Q, K and V, one function per
// stage, in the order a GPU runs them. Codes, scales and means are kept as well as the values they
// stand for, so that every stage can be compared with another backend's.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/load.h"
#include "cpu/shaping.h"
#include "vcattn/numerics/row_sample.h"
#include "vcattn/options.h"

namespace vcattn::cpu {

/// Mean row of the sample, summed in float64 and rounded once. Zero for no rows.
std::vector<float> mean_row(const Rows& rows, const numerics::RowSample& sample);
std::vector<float> mean_row(const Rows& rows);

/// row - mean for every row.
void subtract(Rows& rows, const std::vector<float>& mean);

/// Mean square of every channel over the sample, in float64; zeros for no rows.
std::vector<double> channel_energy(const Rows& rows, const numerics::RowSample& sample);

/// Per channel the power of two nearest to sqrt(rms(k) / rms(q)); 1 where either is zero or not
/// finite. Q is multiplied and K divided by it, which is exact.
std::vector<float> balance_factors(const std::vector<double>& q_energy,
                                   const std::vector<double>& k_energy);

/// Channel c of every row times factors[c].
void scale_channels(Rows& rows, const std::vector<float>& factors);

/// Orthonormal Hadamard transform of every row.
void rotate_hadamard(Rows& rows);

/// Rows in the order `order`: result row i is input row order[i].
Rows permute(const Rows& rows, const std::vector<std::int32_t>& order);

/// A quantized Q or K. value(i, c) * row_scales[i] approximates the input.
struct QkOperand {
  Rows values;                             ///< decoded codes (for NVFP4 with their block scales)
  std::vector<std::uint8_t> codes;         ///< count x dim: INT8, E4M3, or one E2M1 nibble a byte
  std::vector<std::uint8_t> block_scales;  ///< NVFP4: count x dim / 16, UE4M3
  std::vector<float> row_scales;           ///< count; NVFP4: the head's tensor scale
};

/// Quantizes along d. `scale_rows` consecutive rows share a scale; 0: all of them (INT8, E4M3).
/// `feedback`, here and below: how rounding errors are shaped; nullptr: every channel to nearest.
QkOperand quantize_rows(const Rows& rows, QkFormat format, int scale_rows, Nvfp4Scale nvfp4_scale,
                        const Feedback* feedback = nullptr);

/// Q for ScoreFormat::kWindow: each row's scale is chosen so that 256 units of its INT8 product
/// with keys of scale `k_scale` are a whole multiplier of numerics/score_window.h, which is kept in
/// `row_scales` instead of the scale.
/// @param codes_per_score  code units per unit of q . k; its sign is folded into the codes
QkOperand quantize_rows_windowed(const Rows& rows, float codes_per_score, float k_scale,
                                 const Feedback* feedback = nullptr);

/// K for ScoreFormat::kHalf: E4M3, one scale for all rows (numerics/score_half.h).
QkOperand quantize_keys_half(const Rows& rows, const Feedback* feedback = nullptr);

/// Q for ScoreFormat::kHalf: E4M3, scaled so that products with keys of scale `k_scale` are in
/// codes; `row_scales` are 1, or NaN for a row that is not finite.
/// @param codes_per_score  code units per unit of q . k
QkOperand quantize_queries_half(const Rows& rows, float codes_per_score, float k_scale,
                                const Feedback* feedback = nullptr);

/// Means of consecutive blocks of 128 rows, rounded to bfloat16: ceil(count / 128) x dim.
Rows block_means(const Rows& rows);

/// Subtracts each block's mean from its rows.
void subtract_block_means(Rows& rows, const Rows& means);

/// A quantized V (or residual of V). `values` includes the scales.
struct ValueOperand {
  Rows values;
  std::vector<std::uint8_t> codes;         ///< count x dim: E4M3, or one E2M1 nibble a byte
  std::vector<std::uint8_t> block_scales;  ///< NVFP4: ceil(count / 16) x dim, UE4M3
  std::vector<float> channel_scales;       ///< dim; NVFP4: the head's tensor scale
};

ValueOperand quantize_values(const Rows& rows, VFormat format, Nvfp4Scale nvfp4_scale);

/// Adds to each block's mean the mean of (residual - quantized residual) over the block, so that
/// the rounding errors of a block sum to zero in the product with equal probabilities.
void refit_means(Rows& means, const Rows& residual, const Rows& quantized);

/// Tiles of 128 rows, zero-filled at the end, for the right-hand side of a product.
/// K: tile t is dim x 128 (transposed).
std::vector<float> transposed_tiles(const Rows& rows);
/// V: tile t is 128 x dim.
std::vector<float> padded_tiles(const Rows& rows);

}  // namespace vcattn::cpu
