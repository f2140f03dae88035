// The inner loops of the CPU backend, vectorised for whatever instruction set the machine has.
//
// A tile is 128 keys. Scores are in code units (1/8 octave: a score in nats times 8 log2 e), so
// that every probability format starts from the same numbers.
#pragma once

#include <cstdint>
#include <string>

namespace vcattn::cpu {

inline constexpr std::int64_t kTileKeys = 128;

/// Columns of `matmul` must be a multiple of this.
inline constexpr std::int64_t kMatmulColumns = 64;

/// c = a b in float32 (fused multiply-adds over k in order): a is m x k, b is k x n, c is m x n,
/// all dense row-major; n is a multiple of kMatmulColumns.
void matmul(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k,
            std::int64_t n);

/// matmul with the running sum rounded to binary16 after every 32 of k, as a Hopper tensor core
/// with binary16 accumulators rounds it. (The core also cuts each product off 13 bits below the
/// largest of a step, which is far below that rounding and is not modelled.)
void matmul_half(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k,
                 std::int64_t n);

/// scores <- floor(scores / 256) over one tile: numerics::window_score of exact INT8 products.
void window_scores(float* scores);

struct RowMax {
  float value = 0.0F;       ///< -infinity if every key is hidden
  bool non_finite = false;  ///< a product is not finite, or a score is NaN or +infinity
};

/// scores <- scores * (alpha * key_scales) + bias over one tile; returns the row's maximum.
/// `bias` may be nullptr.
RowMax scale_scores(float* scores, float alpha, const float* key_scales, const float* bias);

/// The encoders turn a tile's scores into probabilities as decoded from their codes, in place, and
/// return their sum. Every score is at most `reference`, or is -infinity (hidden, probability 0).

/// 2^((s - reference) / 8), not quantized.
float exponentiate(float* scores, float reference);
/// E4M3(2^((s - reference) / 8 + 8)).
float exponentiate_e4m3(float* scores, float reference);
/// ExpCast: decode(numerics::exp_cast_code_below(s, reference, at_reference)).
float exp_cast(float* scores, float reference, float at_reference);
/// ExpCast of half-precision scores: decode(numerics::score_half_code(s, offset)).
float exp_cast_half(float* scores, float offset);
/// Two-level NVFP4: the row's largest probability goes to 448 * 6, then E2M1 with an E4M3 scale per
/// 16 keys. `tile_max` is the largest score of the tile.
float exponentiate_nvfp4(float* scores, float reference, float tile_max);

/// acc <- keep * acc + add * (pv + row_sum * mean), n channels; `mean` may be nullptr (no
/// V-Smooth).
void accumulate(float* acc, const float* pv, const float* mean, float row_sum, float keep,
                float add, std::int64_t n);

/// Name of the instruction set in use, e.g. "AVX3".
std::string simd_name();

}  // namespace vcattn::cpu
