#include "bug_cases/emulation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "bug_cases/host_tensor.h"
#include "numerics/referee.h"

namespace vcattn::test {
namespace {

using Matrix = std::vector<std::vector<double>>;

constexpr std::int64_t kTile = 128;

Matrix rows_of(const TensorView& view, std::int64_t head) {
  Matrix rows(static_cast<std::size_t>(view.tokens()));
  for (std::int64_t s = 0; s < view.tokens(); ++s) {
    for (std::int64_t c = 0; c < view.dim(); ++c) rows[s].push_back(element(view, 0, head, s, c));
  }
  return rows;
}

/// Subtracts the mean of rows [begin, end) from them and returns it.
std::vector<double> remove_mean(Matrix& rows, std::size_t begin, std::size_t end) {
  std::vector<double> mean(rows[begin].size(), 0.0);
  for (std::size_t i = begin; i < end; ++i) {
    for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += rows[i][c];
  }
  for (double& m : mean) m /= static_cast<double>(end - begin);
  for (std::size_t i = begin; i < end; ++i) {
    for (std::size_t c = 0; c < mean.size(); ++c) rows[i][c] -= mean[c];
  }
  return mean;
}

/// The orthonormal Hadamard transform by its matrix: entry (a, b) has the sign of popcount(a & b).
void rotate(Matrix& rows) {
  for (std::vector<double>& row : rows) {
    std::vector<double> rotated(row.size(), 0.0);
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = 0; b < row.size(); ++b) {
        rotated[a] += std::popcount(a & b) % 2 == 0 ? row[b] : -row[b];
      }
      rotated[a] /= std::sqrt(static_cast<double>(row.size()));
    }
    row = rotated;
  }
}

double e4m3(double x) {
  static const NearestTable kTable = e4m3_table();
  return std::copysign(kTable.value(kTable.nearest(std::abs(x))), x);
}

void quantize_rows(Matrix& rows, QkFormat format) {
  for (std::vector<double>& row : rows) {
    double amax = 0.0;
    for (const double x : row) amax = std::max(amax, std::abs(x));
    if (amax == 0.0) continue;
    const double scale = amax / (format == QkFormat::kInt8 ? 127.0 : 448.0);
    for (double& x : row) {
      x = scale * (format == QkFormat::kInt8 ? std::nearbyint(x / scale) : e4m3(x / scale));
    }
  }
}

/// Block means of the permuted values, which keep what E4M3 with a scale per channel makes of them.
Matrix smooth_and_quantize(Matrix& values, bool refit) {
  Matrix means;
  for (std::size_t first = 0; first < values.size(); first += kTile) {
    means.push_back(remove_mean(values, first, std::min(values.size(), first + kTile)));
  }
  for (std::size_t c = 0; c < values[0].size(); ++c) {
    double amax = 0.0;
    for (const auto& row : values) amax = std::max(amax, std::abs(row[c]));
    if (amax == 0.0) continue;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double quantized = e4m3(values[i][c] * 448.0 / amax) * amax / 448.0;
      const std::size_t first = i / kTile * kTile, last = std::min(values.size(), first + kTile);
      if (refit)
        means[i / kTile][c] += (values[i][c] - quantized) / static_cast<double>(last - first);
      values[i][c] = quantized;
    }
  }
  return means;
}

/// A probability as decoded, for a score `octaves` relative to its reference.
double probability(const Recipe& recipe, double octaves) {
  if (recipe.p == PFormat::kE4M3Exp) return e4m3(std::exp2(octaves + 8.0));
  const double code =
      std::clamp(std::nearbyint(8.0 * octaves + static_cast<double>(recipe.p_top + recipe.p_beta)),
                 0.0, 126.0);
  static const NearestTable kTable = e4m3_table();
  return kTable.value(static_cast<std::size_t>(code));
}

/// Mean square of a channel over all rows.
double energy(const std::vector<Matrix>& heads, std::size_t c) {
  double sum = 0.0, rows = 0.0;
  for (const Matrix& head : heads) {
    for (const auto& row : head) sum += row[c] * row[c];
    rows += static_cast<double>(head.size());
  }
  return sum / rows;
}

struct Head {
  Matrix k, v, means;
  std::vector<Matrix> q;  ///< the query heads that share it
};

Head prepare(const Arguments& a, const Recipe& recipe, std::int64_t head,
             const std::vector<std::int32_t>& order) {
  Matrix k = rows_of(a.k, head);
  const Matrix v = rows_of(a.v, head);
  remove_mean(k, 0, k.size());
  Head result;
  const std::int64_t group = a.q.heads() / a.k.heads();
  for (std::int64_t h = head * group; h < (head + 1) * group; ++h) {
    result.q.push_back(rows_of(a.q, h));
  }
  for (std::size_t c = 0; recipe.qk_balance && c < k[0].size(); ++c) {
    const double octaves = std::log2(energy({k}, c) / energy(result.q, c)) / 4.0;
    const double factor = std::exp2(std::round(octaves));
    for (auto& row : k) row[c] /= factor;
    for (Matrix& rows : result.q) {
      for (auto& row : rows) row[c] *= factor;
    }
  }
  rotate(k);
  for (Matrix& rows : result.q) {
    rotate(rows);
    quantize_rows(rows, recipe.qk);
  }
  for (const std::int32_t key : order) {
    result.k.push_back(k[key]);
    result.v.push_back(v[key]);
  }
  quantize_rows(result.k, recipe.qk);
  result.means = smooth_and_quantize(result.v, recipe.v_mean_refit);
  return result;
}

std::vector<double> attend(const std::vector<double>& q, const Head& head, double scale,
                           const Recipe& recipe) {
  std::vector<double> sum(q.size(), 0.0);
  double weight = 0.0, running = -std::numeric_limits<double>::infinity();
  for (std::size_t first = 0; first < head.k.size(); first += kTile) {
    const std::size_t last = std::min(head.k.size(), first + kTile);
    std::vector<double> octaves;
    for (std::size_t j = first; j < last; ++j) {
      double score = 0.0;
      for (std::size_t c = 0; c < q.size(); ++c) score += q[c] * head.k[j][c];
      octaves.push_back(score * scale * std::numbers::log2e);
    }
    const double tile = *std::max_element(octaves.begin(), octaves.end());
    const double before = running;
    running = std::max(running, tile);
    const double keep = std::exp2(before - running);
    weight *= keep;
    for (double& x : sum) x *= keep;
    const double reference = recipe.p_reference == PReference::kTile ? tile : running;
    const double add = std::exp2(reference - running);
    for (std::size_t j = first; j < last; ++j) {
      const double p = add * probability(recipe, octaves[j - first] - reference);
      weight += p;
      const auto& mean = head.means[first / kTile];
      for (std::size_t c = 0; c < q.size(); ++c) sum[c] += p * (head.v[j][c] + mean[c]);
    }
  }
  for (double& x : sum) x /= weight;
  return sum;
}

}  // namespace

std::vector<double> emulate(const Arguments& a, const Recipe& recipe,
                            const std::vector<std::vector<std::int32_t>>& orders) {
  std::vector<double> out;
  const double scale = 1.0 / std::sqrt(static_cast<double>(a.q.dim()));
  for (std::int64_t kv_head = 0; kv_head < a.k.heads(); ++kv_head) {
    const Head head = prepare(a, recipe, kv_head, orders[kv_head]);
    for (const Matrix& rows : head.q) {
      for (const auto& row : rows) {
        const std::vector<double> result = attend(row, head, scale, recipe);
        out.insert(out.end(), result.begin(), result.end());
      }
    }
  }
  return out;
}

}  // namespace vcattn::test
