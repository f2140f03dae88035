#include "cpu/shaping.h"

#include <algorithm>
#include <cmath>

#include "vcattn/numerics/noise_shaping.h"

namespace vcattn::cpu {
namespace {

/// The matrix over its trace; zeros if that is zero or not finite.
std::vector<float> normalized(const std::vector<double>& gram, std::int64_t dim) {
  double trace = 0.0;
  for (std::int64_t c = 0; c < dim; ++c) trace += gram[c * dim + c];
  std::vector<float> result(gram.size(), 0.0F);
  if (!std::isfinite(trace) || !(trace > 0.0)) return result;
  std::transform(gram.begin(), gram.end(), result.begin(),
                 [trace](double g) { return static_cast<float>(g / trace); });
  return result;
}

/// In place: below the diagonal, the inverse of the unit triangular factor.
void eliminate(std::vector<float>& a, std::int64_t dim) {
  for (std::int64_t k = 0; k < dim; ++k) {
    const float* pivot = a.data() + k * dim;
    for (std::int64_t i = k + 1; i < dim; ++i) {
      float* row = a.data() + i * dim;
      const float l = numerics::div_rn(row[k], pivot[k]);
      for (std::int64_t j = 0; j < dim; ++j) row[j] = numerics::fma_rn(-l, pivot[j], row[j]);
      row[k] = -l;
    }
  }
}

}  // namespace

void add_gram(const Rows& rows, const numerics::RowSample& sample, std::vector<double>& gram) {
  const std::int64_t dim = rows.dim;
  gram.resize(static_cast<std::size_t>(dim * dim), 0.0);
  for (int s = 0; s < sample.count; ++s) {
    const float* x = rows.row(sample.row(s));
    for (std::int64_t i = 0; i < dim; ++i) {
      const double xi = x[i];
      for (std::int64_t j = 0; j < dim; ++j) gram[i * dim + j] += xi * x[j];
    }
  }
}

Feedback make_feedback(const std::vector<double>& gram, std::int64_t dim) {
  std::vector<float> a = normalized(gram, dim);
  for (std::int64_t c = 0; c < dim; ++c) {
    a[c * dim + c] += numerics::kShapingDamping / static_cast<float>(dim);
  }
  eliminate(a, dim);
  Feedback feedback{dim, std::vector<std::int8_t>(a.size(), 0), {}};
  for (std::int64_t c = 0; c < dim; ++c) {
    float largest = 0.0F;
    for (std::int64_t i = c + 1; i < dim; ++i) {
      largest = numerics::abs_max(largest, a[i * dim + c]);
    }
    const numerics::QuantScale scale = numerics::int8_scale(largest);
    feedback.scales.push_back(scale.scale);
    for (std::int64_t i = c + 1; i < dim; ++i) {
      feedback.factors[c * dim + i] = numerics::int8_quantize(-a[i * dim + c], scale.inverse);
    }
  }
  return feedback;
}

void shape_row(const float* x, QkFormat format, float inverse, const Feedback& feedback,
               std::uint8_t* codes, float* values) {
  const std::int64_t dim = feedback.dim;
  const bool int8 = format == QkFormat::kInt8;
  float largest = 0.0F;
  for (std::int64_t c = 0; c < dim; ++c) largest = numerics::abs_max(largest, x[c]);
  const float unit = int8 ? numerics::kShapingUnitInt8
                          : numerics::shaping_unit_e4m3(numerics::mul_rn(largest, inverse));
  std::vector<std::int8_t> errors(static_cast<std::size_t>(dim), 0);
  for (std::int64_t c = dim - 1; c >= 0; --c) {
    const std::int8_t* factors = feedback.factors.data() + c * dim;
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < dim; ++i) sum += errors[i] * factors[i];
    const float t = numerics::shaping_target(numerics::mul_rn(x[c], inverse),
                                             static_cast<float>(sum), feedback.scales[c], unit);
    if (int8) {
      const std::int8_t code = numerics::int8_quantize(t, 1.0F);
      codes[c] = static_cast<std::uint8_t>(code);
      values[c] = code;
    } else {
      codes[c] = numerics::e4m3_quantize(t, 1.0F);
      values[c] = numerics::e4m3_decode(codes[c]);
    }
    errors[c] = numerics::shaping_error(t, values[c], 1.0F / unit);
  }
}

}  // namespace vcattn::cpu
