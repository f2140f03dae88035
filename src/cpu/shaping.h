// Noise-shaped rounding of Q and K (numerics/noise_shaping.h): how errors are fed forward.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/load.h"
#include "vcattn/numerics/row_sample.h"
#include "vcattn/options.h"

namespace vcattn::cpu {

/// Adds x x^T of the sampled rows to `gram`, dim x dim.
void add_gram(const Rows& rows, const numerics::RowSample& sample, std::vector<double>& gram);

/// What the rounding error of channel i adds to channel c < i that is rounded after it:
/// factors[c * dim + i] * scales[c]; zero for other i.
struct Feedback {
  std::int64_t dim = 0;
  std::vector<std::int8_t> factors;
  std::vector<float> scales;
};

/// From the Gram matrix, dim x dim, of the rows that the operand is multiplied with. No feedback if
/// that is zero or not finite.
Feedback make_feedback(const std::vector<double>& gram, std::int64_t dim);

/// Rounds one row of dim channels to INT8 or E4M3: codes and what they stand for. Codes are 0
/// where t is NaN.
void shape_row(const float* x, QkFormat format, float inverse, const Feedback& feedback,
               std::uint8_t* codes, float* values);

}  // namespace vcattn::cpu
