#include "vcattn/reference.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/element.h"
#include "core/progress.h"
#include "core/validate.h"
#include "core/visibility.h"

namespace vcattn {
namespace {

constexpr std::int64_t kRowsAtOnce = 8;

/// Row `token` of a head as float64, rotated if there are tables.
void load_row(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t token,
              const std::optional<Rope>& rope, double* row) {
  const std::int64_t d = view.dim();
  for (std::int64_t c = 0; c < d; ++c) row[c] = load_element(view, view.offset(b, h, token, c));
  if (!rope) return;
  for (std::int64_t p = 0; p < rope->pairs; ++p) {
    const bool interleaved = rope->layout == RopeLayout::kInterleaved;
    double& x = row[interleaved ? 2 * p : p];
    double& y = row[interleaved ? 2 * p + 1 : p + rope->pairs];
    const double cos = rope->cos[token * rope->pairs + p];
    const double sin = rope->sin[token * rope->pairs + p];
    const double rotated_x = x * cos - y * sin;
    y = x * sin + y * cos;
    x = rotated_x;
  }
}

/// K transposed (d x keys) and V (keys x d) of one entry and KV head.
struct HeadOperands {
  std::int64_t keys = 0;
  std::vector<std::int32_t> visible;
  std::vector<double> k_transposed, v;
};

HeadOperands load_head(const Arguments& a, const Entry& entry, std::int64_t kv_head) {
  const std::int64_t d = a.q.dim();
  HeadOperands head;
  head.visible = visible_keys(a, entry, kv_head);
  head.keys = static_cast<std::int64_t>(head.visible.size());
  head.k_transposed.resize(static_cast<std::size_t>(d * head.keys));
  head.v.resize(static_cast<std::size_t>(d * head.keys));
  std::vector<double> row(static_cast<std::size_t>(d));
  for (std::int64_t j = 0; j < head.keys; ++j) {
    const std::int64_t token = entry.k_begin + head.visible[j];
    load_row(a.k, entry.batch, kv_head, token, a.k_rope, row.data());
    for (std::int64_t c = 0; c < d; ++c) head.k_transposed[c * head.keys + j] = row[c];
    load_row(a.v, entry.batch, kv_head, token, std::nullopt, head.v.data() + j * d);
  }
  return head;
}

/// Turns scores into unnormalised probabilities; returns the row's log-sum-exp.
double softmax_row(std::vector<double>& scores) {
  double maximum = -std::numeric_limits<double>::infinity();
  for (const double s : scores) {
    if (std::isnan(s)) return std::numeric_limits<double>::quiet_NaN();
    maximum = std::max(maximum, s);
  }
  if (std::isinf(maximum) && maximum < 0) return maximum;
  double sum = 0.0;
  for (double& s : scores) sum += s = std::exp(s - maximum);
  for (double& s : scores) s /= sum;
  return maximum + std::log(sum);
}

struct RowBlock {
  const std::int64_t* rows;  ///< token indices in q
  std::int64_t count;
  double* out;  ///< count x d
  double* lse;
};

void attend(const Arguments& a, const Entry& entry, std::int64_t q_head, const HeadOperands& head,
            const RowBlock& block) {
  const std::int64_t d = a.q.dim();
  const double scale = effective_scale(a);
  std::vector<std::vector<double>> scores(static_cast<std::size_t>(block.count));
  std::vector<double> q(static_cast<std::size_t>(block.count * d));
  for (std::int64_t r = 0; r < block.count; ++r) {
    load_row(a.q, entry.batch, q_head, block.rows[r], a.q_rope, q.data() + r * d);
    scores[r].assign(static_cast<std::size_t>(head.keys), 0.0);
  }
  for (std::int64_t c = 0; c < d; ++c) {
    const double* k = head.k_transposed.data() + c * head.keys;
    for (std::int64_t r = 0; r < block.count; ++r) {
      const double factor = q[r * d + c];
      double* s = scores[r].data();
      for (std::int64_t j = 0; j < head.keys; ++j) s[j] += factor * k[j];
    }
  }
  for (std::int64_t r = 0; r < block.count; ++r) {
    for (std::int64_t j = 0; j < head.keys; ++j) {
      scores[r][j] *= scale;
      // Only a bias hides a key: an infinite product comes from an infinite input.
      if (!std::isfinite(scores[r][j])) scores[r][j] = std::numeric_limits<double>::quiet_NaN();
      if (has_bias(a)) {
        scores[r][j] +=
            score_bias(a, entry, q_head, block.rows[r] - entry.q_begin, head.visible[j]);
      }
    }
    block.lse[r] = softmax_row(scores[r]);
    double* out = block.out + r * d;
    std::fill(out, out + d, std::isnan(block.lse[r]) ? block.lse[r] : 0.0);
    if (!std::isfinite(block.lse[r])) continue;
    for (std::int64_t j = 0; j < head.keys; ++j) {
      const double p = scores[r][j];
      for (std::int64_t c = 0; c < d; ++c) out[c] += p * head.v[j * d + c];
    }
  }
}

}  // namespace

Reference reference_attention(const Arguments& a, const std::vector<std::int64_t>& rows,
                              const Progress& progress) {
  validate(a, recipe("exact"));
  std::vector<std::int64_t> chosen = rows;
  if (chosen.empty()) {
    chosen.resize(static_cast<std::size_t>(a.q.tokens()));
    std::iota(chosen.begin(), chosen.end(), 0);
  }
  const std::int64_t d = a.q.dim(), q_heads = a.q.heads();
  const auto row_count = static_cast<std::int64_t>(chosen.size());
  Reference result;
  result.out.resize(static_cast<std::size_t>(a.q.batch() * q_heads * row_count * d));
  result.lse.resize(static_cast<std::size_t>(a.q.batch() * q_heads * row_count));

  if (result.lse.empty()) return result;

  ProgressCounter counter(progress, a.q.batch() * q_heads * row_count);
  for (const Entry& entry : entries(a)) {
    const auto first = std::lower_bound(chosen.begin(), chosen.end(), entry.q_begin);
    const auto last = std::lower_bound(first, chosen.end(), entry.q_begin + entry.q_count);
    const std::int64_t begin = first - chosen.begin(), count = last - first;
    if (count == 0) continue;
    const std::int64_t group = q_heads / a.k.heads();
    for (std::int64_t kv_head = 0; kv_head < a.k.heads(); ++kv_head) {
      const HeadOperands head = load_head(a, entry, kv_head);
      const std::int64_t blocks = (count + kRowsAtOnce - 1) / kRowsAtOnce;
      oneapi::tbb::parallel_for(std::int64_t{0}, group * blocks, [&](std::int64_t task) {
        const std::int64_t q_head = kv_head * group + task / blocks;
        const std::int64_t at = begin + task % blocks * kRowsAtOnce;
        const std::int64_t n = std::min(kRowsAtOnce, begin + count - at);
        const std::int64_t position = (entry.batch * q_heads + q_head) * row_count + at;
        attend(a, entry, q_head, head,
               {chosen.data() + at, n, result.out.data() + position * d,
                result.lse.data() + position});
        counter.add(n);
      });
    }
  }
  return result;
}

}  // namespace vcattn
