// Value smoothing: the mean of a block of rows of V, the residual that is quantized, and the
// restoration. Everything here is per channel: one column of a block.
#pragma once

#include "vcattn/numerics/bf16.h"

namespace vcattn::numerics {

constexpr int kValueBlockRows = 128;
constexpr float kInverseValueBlockRows = 0.0078125f;  // 2^-7

// Adds one value to the running sum of a block: acc + v / 128 with one rounding. Accumulating v /
// 128 costs the same FMA as accumulating v, gives the mean of a full block directly and cannot
// overflow.
VCATTN_HD float block_mean_accumulate(float acc, float v) {
  return fma_rn(v, kInverseValueBlockRows, acc);
}

// Mean of n valid rows, 1 <= n <= 128, from acc = sum(v) / 128 (partial sums may have been added in
// any order); 0 for n == 0. NaN and infinity pass through.
VCATTN_HD float block_mean_exact(float acc, int n) {
  if (n == 0) return 0.0f;
  return mul_rn(acc, div_rn(static_cast<float>(kValueBlockRows), static_cast<float>(n)));
}

// The bf16 of it that is kept: residual and restoration must both use this value. A finite mean
// stays finite. Error: the bf16 rounding (2^-8 relative) plus that of the sum; exact when n is a
// power of two, the sums are exact and the mean is a bf16.
VCATTN_HD std::uint16_t block_mean_round(float mean) { return bf16_from_float_satfinite(mean); }

VCATTN_HD std::uint16_t block_mean_finish(float acc, int n) {
  return block_mean_round(block_mean_exact(acc, n));
}

// Mean of the first n rows of one column, rows `stride` elements apart, accumulated in row order.
// Rows beyond n are not read: padding and hidden keys stay out.
VCATTN_HD std::uint16_t block_mean(const float* column, int n, std::int64_t stride) {
  float acc = 0.0f;
  for (int i = 0; i < n; ++i) acc = block_mean_accumulate(acc, column[i * stride]);
  return block_mean_finish(acc, n);
}

// v - mu, one rounding; mu is the kept mean as a float.
VCATTN_HD float block_residual(float v, float mu) { return sub_rn(v, mu); }

// Restoration A + r mu, one FMA, with r the row sum of the probability tile *as decoded from the
// codes that were multiplied with the residual*. In exact arithmetic the result is the product with
// the unsmoothed block.
VCATTN_HD float restore_mean(float acc, float r, float mu) { return fma_rn(r, mu, acc); }

// Energy of a column before and after its mean is removed, in double.
struct EnergySplit {
  double total = 0.0;     // sum v^2
  double residual = 0.0;  // sum (v - mu)^2
  double mean = 0.0;      // n mu^2
};

// For the exact mean total = residual + mean. For the kept (rounded) mean they differ by 2 mu sum(v
// - mu).
VCATTN_HD EnergySplit energy_split(const float* column, int n, std::int64_t stride, float mu) {
  EnergySplit split;
  const double mu64 = static_cast<double>(mu);
  for (int i = 0; i < n; ++i) {
    const double v = static_cast<double>(column[i * stride]);
    split.total += v * v;
    split.residual += (v - mu64) * (v - mu64);
  }
  split.mean = static_cast<double>(n) * mu64 * mu64;
  return split;
}

// Fraction of the energy that smoothing removes, 1 - residual / total; 0 for a column of zeros.
VCATTN_HD double energy_removed(const EnergySplit& split) {
  return split.total > 0.0 ? 1.0 - split.residual / split.total : 0.0;
}

}  // namespace vcattn::numerics
