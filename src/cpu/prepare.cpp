#include "cpu/prepare.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>

#include "cpu/tile.h"
#include "vcattn/numerics/block_scale.h"
#include "vcattn/numerics/hadamard.h"
#include "vcattn/numerics/quantizer.h"
#include "vcattn/numerics/score_half.h"
#include "vcattn/numerics/score_window.h"
#include "vcattn/numerics/v_smooth.h"

namespace vcattn::cpu {
namespace {

using numerics::kNvfp4BlockSize;
using oneapi::tbb::parallel_for;

constexpr std::int64_t kBlockRows = numerics::kValueBlockRows;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Largest magnitude in rows [begin, end); NaN if there is one.
float rows_abs_max(const Rows& rows, std::int64_t begin, std::int64_t end) {
  float amax = 0.0F;
  for (const float* x = rows.row(begin); x != rows.row(end); ++x) {
    amax = numerics::abs_max(amax, *x);
  }
  return amax;
}

void quantize_row(const Rows& rows, std::int64_t i, QkFormat format, numerics::QuantScale scale,
                  const Feedback* feedback, QkOperand& out) {
  const float* x = rows.row(i);
  float* value = out.values.row(i);
  std::uint8_t* code = out.codes.data() + i * rows.dim;
  if (feedback != nullptr) return shape_row(x, format, scale.inverse, *feedback, code, value);
  for (std::int64_t c = 0; c < rows.dim; ++c) {
    if (format == QkFormat::kInt8) {
      const std::int8_t q = numerics::int8_quantize(x[c], scale.inverse);
      code[c] = static_cast<std::uint8_t>(q);
      value[c] = q;
    } else {
      code[c] = numerics::e4m3_quantize(x[c], scale.inverse);
      value[c] = numerics::e4m3_decode(code[c]);
    }
  }
}

/// One NVFP4 block whose elements lie `stride` apart; the values include the block scale, not the
/// tensor scale.
void quantize_block(const float* x, std::int64_t stride, std::int64_t valid, float tensor_scale,
                    Nvfp4Scale choice, std::uint8_t* codes, std::uint8_t& scale, float* values) {
  float block_in[kNvfp4BlockSize] = {};
  for (std::int64_t i = 0; i < valid; ++i) block_in[i] = x[i * stride];
  const numerics::Nvfp4Block block =
      choice == Nvfp4Scale::kFourSix
          ? numerics::quantize_nvfp4_block_four_six(block_in, tensor_scale)
          : numerics::quantize_nvfp4_block(block_in, tensor_scale);
  scale = block.scale;
  for (std::int64_t i = 0; i < valid; ++i) {
    const std::uint8_t packed = block.packed[i / 2];
    codes[i * stride] =
        i % 2 == 0 ? numerics::e2m1_unpack_even(packed) : numerics::e2m1_unpack_odd(packed);
    values[i * stride] = numerics::nvfp4_decode(block, static_cast<int>(i), 1.0F);
  }
}

void quantize_rows_nvfp4(const Rows& rows, Nvfp4Scale choice, QkOperand& out) {
  const float tensor_scale = numerics::nvfp4_tensor_scale(rows_abs_max(rows, 0, rows.count));
  const std::int64_t blocks = rows.dim / kNvfp4BlockSize;
  out.block_scales.resize(static_cast<std::size_t>(rows.count * blocks));
  std::fill(out.row_scales.begin(), out.row_scales.end(), tensor_scale);
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t at = i * rows.dim + b * kNvfp4BlockSize;
      quantize_block(rows.data.data() + at, 1, kNvfp4BlockSize, tensor_scale, choice,
                     out.codes.data() + at, out.block_scales[i * blocks + b],
                     out.values.data.data() + at);
    }
  });
}

void quantize_values_nvfp4(const Rows& rows, Nvfp4Scale choice, ValueOperand& out) {
  const float tensor_scale = numerics::nvfp4_tensor_scale(rows_abs_max(rows, 0, rows.count));
  const std::int64_t blocks = divide_up(rows.count, kNvfp4BlockSize);
  out.block_scales.resize(static_cast<std::size_t>(blocks * rows.dim));
  std::fill(out.channel_scales.begin(), out.channel_scales.end(), tensor_scale);
  parallel_for(std::int64_t{0}, blocks, [&](std::int64_t b) {
    const std::int64_t first = b * kNvfp4BlockSize;
    const std::int64_t valid = std::min<std::int64_t>(kNvfp4BlockSize, rows.count - first);
    for (std::int64_t c = 0; c < rows.dim; ++c) {
      const std::int64_t at = first * rows.dim + c;
      quantize_block(rows.data.data() + at, rows.dim, valid, tensor_scale, choice,
                     out.codes.data() + at, out.block_scales[b * rows.dim + c],
                     out.values.data.data() + at);
    }
  });
}

/// Room for the quantized rows, whose scales are 1 until they are known.
QkOperand operand_of(const Rows& rows) {
  QkOperand out;
  out.values = Rows(rows.count, rows.dim);
  out.codes.resize(rows.data.size());
  out.row_scales.assign(static_cast<std::size_t>(rows.count), 1.0F);
  return out;
}

}  // namespace

std::vector<float> mean_row(const Rows& rows, const numerics::RowSample& sample) {
  std::vector<double> sum(static_cast<std::size_t>(rows.dim), 0.0);
  for (int i = 0; i < sample.count; ++i) {
    const float* row = rows.row(sample.row(i));
    for (std::int64_t c = 0; c < rows.dim; ++c) sum[c] += row[c];
  }
  std::vector<float> mean(static_cast<std::size_t>(rows.dim), 0.0F);
  if (sample.count == 0) return mean;
  for (std::int64_t c = 0; c < rows.dim; ++c) {
    mean[c] = static_cast<float>(sum[c] / static_cast<double>(sample.count));
  }
  return mean;
}

std::vector<float> mean_row(const Rows& rows) {
  return mean_row(rows, numerics::row_sample(static_cast<int>(rows.count), false));
}

void subtract(Rows& rows, const std::vector<float>& mean) {
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    float* row = rows.row(i);
    for (std::int64_t c = 0; c < rows.dim; ++c) row[c] = numerics::sub_rn(row[c], mean[c]);
  });
}

std::vector<double> channel_energy(const Rows& rows, const numerics::RowSample& sample) {
  std::vector<double> energy(static_cast<std::size_t>(rows.dim), 0.0);
  for (int i = 0; i < sample.count; ++i) {
    const float* row = rows.row(sample.row(i));
    for (std::int64_t c = 0; c < rows.dim; ++c) energy[c] += static_cast<double>(row[c]) * row[c];
  }
  const double count = std::max(sample.count, 1);
  for (double& e : energy) e /= count;
  return energy;
}

std::vector<float> balance_factors(const std::vector<double>& q_energy,
                                   const std::vector<double>& k_energy) {
  std::vector<float> factors(q_energy.size(), 1.0F);
  for (std::size_t c = 0; c < factors.size(); ++c) {
    const double ratio = k_energy[c] / q_energy[c];
    if (!std::isfinite(ratio) || !(ratio > 0.0)) continue;
    factors[c] = std::ldexp(1.0F, static_cast<int>(std::lround(0.25 * std::log2(ratio))));
  }
  return factors;
}

void scale_channels(Rows& rows, const std::vector<float>& factors) {
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    float* row = rows.row(i);
    for (std::int64_t c = 0; c < rows.dim; ++c) row[c] = numerics::mul_rn(row[c], factors[c]);
  });
}

void rotate_hadamard(Rows& rows) {
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    numerics::hadamard_in_place(rows.row(i), static_cast<int>(rows.dim));
  });
}

Rows permute(const Rows& rows, const std::vector<std::int32_t>& order) {
  Rows result(rows.count, rows.dim);
  parallel_for(std::int64_t{0}, rows.count,
               [&](std::int64_t i) { std::copy_n(rows.row(order[i]), rows.dim, result.row(i)); });
  return result;
}

QkOperand quantize_rows(const Rows& rows, QkFormat format, int scale_rows, Nvfp4Scale nvfp4_scale,
                        const Feedback* feedback) {
  QkOperand out;
  out.row_scales.assign(static_cast<std::size_t>(rows.count), 1.0F);
  if (format == QkFormat::kFloat) {
    out.values = rows;
    return out;
  }
  out.values = Rows(rows.count, rows.dim);
  out.codes.resize(rows.data.size());
  if (format == QkFormat::kNvfp4) {
    quantize_rows_nvfp4(rows, nvfp4_scale, out);
    return out;
  }
  const std::int64_t group = scale_rows == 0 ? std::max<std::int64_t>(rows.count, 1) : scale_rows;
  parallel_for(std::int64_t{0}, divide_up(rows.count, group), [&](std::int64_t g) {
    const std::int64_t begin = g * group, end = std::min(rows.count, begin + group);
    const float amax = rows_abs_max(rows, begin, end);
    const numerics::QuantScale scale =
        format == QkFormat::kInt8 ? numerics::int8_scale(amax) : numerics::e4m3_scale(amax);
    for (std::int64_t i = begin; i < end; ++i) {
      out.row_scales[i] = scale.scale;
      quantize_row(rows, i, format, scale, feedback, out);
    }
  });
  return out;
}

QkOperand quantize_rows_windowed(const Rows& rows, float codes_per_score, float k_scale,
                                 const Feedback* feedback) {
  QkOperand out = operand_of(rows);
  const float codes_per_product = numerics::kWindowUnit * std::abs(codes_per_score) * k_scale;
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    const float largest = rows_abs_max(rows, i, i + 1);
    const float multiplier = numerics::window_multiplier(
        codes_per_product * numerics::div_rn(largest, numerics::kInt8Max));
    out.row_scales[i] = multiplier;
    const float inverse = numerics::window_q_inverse(multiplier, codes_per_score, k_scale);
    quantize_row(rows, i, QkFormat::kInt8, {multiplier, inverse}, feedback, out);
  });
  return out;
}

QkOperand quantize_keys_half(const Rows& rows, const Feedback* feedback) {
  QkOperand out = operand_of(rows);
  const numerics::QuantScale scale =
      numerics::score_half_key_scale(rows_abs_max(rows, 0, rows.count));
  out.row_scales.assign(static_cast<std::size_t>(rows.count), scale.scale);
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    quantize_row(rows, i, QkFormat::kE4M3, scale, feedback, out);
  });
  return out;
}

QkOperand quantize_queries_half(const Rows& rows, float codes_per_score, float k_scale,
                                const Feedback* feedback) {
  QkOperand out = operand_of(rows);
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    const float largest = rows_abs_max(rows, i, i + 1);
    const float factor =
        numerics::score_half_query_factor(largest, std::abs(codes_per_score), k_scale);
    const bool finite = numerics::is_finite(largest) && numerics::is_finite(factor);
    out.row_scales[i] = finite ? 1.0F : numerics::quiet_nan();
    const numerics::QuantScale scale{1.0F, std::copysign(factor, codes_per_score)};
    quantize_row(rows, i, QkFormat::kE4M3, scale, feedback, out);
  });
  return out;
}

Rows block_means(const Rows& rows) {
  Rows means(divide_up(rows.count, kBlockRows), rows.dim);
  parallel_for(std::int64_t{0}, means.count, [&](std::int64_t b) {
    const std::int64_t first = b * kBlockRows;
    const int valid = static_cast<int>(std::min(kBlockRows, rows.count - first));
    for (std::int64_t c = 0; c < rows.dim; ++c) {
      const std::uint16_t mean = numerics::block_mean(rows.row(first) + c, valid, rows.dim);
      means.row(b)[c] = numerics::bf16_to_float(mean);
    }
  });
  return means;
}

void subtract_block_means(Rows& rows, const Rows& means) {
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    float* row = rows.row(i);
    const float* mean = means.row(i / kBlockRows);
    for (std::int64_t c = 0; c < rows.dim; ++c) row[c] = numerics::block_residual(row[c], mean[c]);
  });
}

ValueOperand quantize_values(const Rows& rows, VFormat format, Nvfp4Scale nvfp4_scale) {
  ValueOperand out;
  out.channel_scales.assign(static_cast<std::size_t>(rows.dim), 1.0F);
  if (format == VFormat::kFloat) {
    out.values = rows;
    return out;
  }
  out.values = Rows(rows.count, rows.dim);
  out.codes.resize(rows.data.size());
  if (format == VFormat::kNvfp4) {
    quantize_values_nvfp4(rows, nvfp4_scale, out);
  } else {
    std::vector<float> amax(static_cast<std::size_t>(rows.dim), 0.0F);
    for (std::int64_t i = 0; i < rows.count; ++i) {
      for (std::int64_t c = 0; c < rows.dim; ++c) {
        amax[c] = numerics::abs_max(amax[c], rows.row(i)[c]);
      }
    }
    if (format == VFormat::kE4M3Head) {
      float head = 0.0F;
      for (const float channel : amax) head = numerics::abs_max(head, channel);
      std::fill(amax.begin(), amax.end(), head);
    }
    std::vector<numerics::QuantScale> scales;
    scales.reserve(amax.size());
    for (const float channel : amax) scales.push_back(numerics::e4m3_scale(channel));
    for (std::int64_t c = 0; c < rows.dim; ++c) out.channel_scales[c] = scales[c].scale;
    parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
      for (std::int64_t c = 0; c < rows.dim; ++c) {
        const std::uint8_t code = numerics::e4m3_quantize(rows.row(i)[c], scales[c].inverse);
        out.codes[i * rows.dim + c] = code;
        out.values.row(i)[c] = numerics::e4m3_decode(code);
      }
    });
  }
  parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    for (std::int64_t c = 0; c < rows.dim; ++c) {
      float& value = out.values.row(i)[c];
      value = numerics::mul_rn(value, out.channel_scales[c]);
    }
  });
  return out;
}

void refit_means(Rows& means, const Rows& residual, const Rows& quantized) {
  parallel_for(std::int64_t{0}, means.count, [&](std::int64_t b) {
    const std::int64_t first = b * kBlockRows;
    const std::int64_t valid = std::min(kBlockRows, residual.count - first);
    for (std::int64_t c = 0; c < means.dim; ++c) {
      float error = 0.0F;
      for (std::int64_t i = first; i < first + valid; ++i) {
        error += numerics::sub_rn(residual.row(i)[c], quantized.row(i)[c]);
      }
      means.row(b)[c] += error / static_cast<float>(valid);
    }
  });
}

std::vector<float> transposed_tiles(const Rows& rows) {
  const std::int64_t tiles = divide_up(rows.count, kTileKeys);
  std::vector<float> result(static_cast<std::size_t>(tiles * kTileKeys * rows.dim), 0.0F);
  parallel_for(std::int64_t{0}, tiles, [&](std::int64_t t) {
    const std::int64_t first = t * kTileKeys;
    const std::int64_t valid = std::min(kTileKeys, rows.count - first);
    float* tile = result.data() + t * kTileKeys * rows.dim;
    for (std::int64_t j = 0; j < valid; ++j) {
      for (std::int64_t c = 0; c < rows.dim; ++c) tile[c * kTileKeys + j] = rows.row(first + j)[c];
    }
  });
  return result;
}

std::vector<float> padded_tiles(const Rows& rows) {
  std::vector<float> result = rows.data;
  result.resize(static_cast<std::size_t>(divide_up(rows.count, kTileKeys) * kTileKeys * rows.dim),
                0.0F);
  return result;
}

}  // namespace vcattn::cpu
