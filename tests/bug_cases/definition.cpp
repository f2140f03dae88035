#include "bug_cases/definition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bug_cases/host_tensor.h"

namespace vcattn::test {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// The tokens that belong with query `s` of batch entry `b`: its own are [q_begin, q_end), its keys
/// [k_begin, k_end).
struct Range {
  std::int64_t q_begin, q_end, k_begin, k_end;
};

Range range_of(const Arguments& a, std::int64_t b, std::int64_t s) {
  if (!a.q_segments) {
    const std::int64_t keys = a.key_lengths != nullptr ? a.key_lengths[b] : a.k.tokens();
    return {0, a.q.tokens(), 0, keys};
  }
  std::int64_t i = 0;
  while (a.q_segments->offsets[i + 1] <= s) ++i;
  return {a.q_segments->offsets[i], a.q_segments->offsets[i + 1], a.k_segments->offsets[i],
          a.k_segments->offsets[i + 1]};
}

/// What the mask adds to a score.
double mask_bias(const Arguments& a, std::int64_t b, std::int64_t h, std::int64_t s,
                 std::int64_t j) {
  if (!a.mask) return 0.0;
  const auto within = [&](int axis, std::int64_t at) { return at % a.mask->shape[axis]; };
  const double value = element(*a.mask, within(0, b), within(1, h), within(2, s), within(3, j));
  if (a.mask->dtype == DType::kBool) return value != 0.0 ? 0.0 : kHidden;
  return value <= -1e30 ? kHidden : value;
}

}  // namespace

Reference by_definition(const Arguments& a, const std::vector<std::int64_t>& rows) {
  Reference result;
  const std::int64_t d = a.q.dim();
  const double scale =
      a.scale ? static_cast<double>(*a.scale) : 1.0 / std::sqrt(static_cast<double>(d));
  for (std::int64_t b = 0; b < a.q.batch(); ++b) {
    for (std::int64_t h = 0; h < a.q.heads(); ++h) {
      const std::int64_t kv = h * a.k.heads() / a.q.heads();
      for (const std::int64_t s : rows) {
        const Range range = range_of(a, b, s);
        std::vector<double> scores;
        double most = kHidden;
        for (std::int64_t j = range.k_begin; j < range.k_end; ++j) {
          double score = mask_bias(a, b, h, s, j);
          // The last query sees the last key, the one before it all but that, and so on.
          if (a.causal && range.k_end - 1 - j < range.q_end - 1 - s) score = kHidden;
          for (std::int64_t c = 0; score != kHidden && c < d; ++c) {
            score += scale * element(a.q, b, h, s, c) * element(a.k, b, kv, j, c);
          }
          scores.push_back(score);
          most = std::max(most, score);
        }
        std::vector<double> out(static_cast<std::size_t>(d), 0.0);
        double sum = 0.0;
        for (std::int64_t j = range.k_begin; j < range.k_end && most != kHidden; ++j) {
          const double weight =
              std::exp(scores[static_cast<std::size_t>(j - range.k_begin)] - most);
          if (weight == 0.0) continue;
          sum += weight;
          for (std::int64_t c = 0; c < d; ++c) out[c] += weight * element(a.v, b, kv, j, c);
        }
        for (double& x : out) x = sum == 0.0 ? 0.0 : x / sum;
        result.out.insert(result.out.end(), out.begin(), out.end());
        result.lse.push_back(sum == 0.0 ? kHidden : most + std::log(sum));
      }
    }
  }
  return result;
}

}  // namespace vcattn::test
