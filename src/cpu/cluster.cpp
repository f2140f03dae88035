#include "cpu/cluster.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "cpu/tile.h"

namespace vcattn::cpu {

Rows initial_centroids(const Rows& values, std::int64_t clusters) {
  Rows centroids(clusters, values.dim);
  for (std::int64_t c = 0; c < clusters; ++c) {
    const std::int64_t token = clusters == 1 ? 0 : c * (values.count - 1) / (clusters - 1);
    std::copy_n(values.row(token), values.dim, centroids.row(c));
  }
  return centroids;
}

std::vector<std::int32_t> nearest_centroids(const Rows& values, const Rows& centroids) {
  constexpr std::int64_t kRowsAtOnce = 64;
  // argmin |v - c|^2 = argmax v.c - |c|^2 / 2, so one product gives every distance.
  const std::int64_t columns =
      (centroids.count + kMatmulColumns - 1) / kMatmulColumns * kMatmulColumns;
  std::vector<float> transposed(static_cast<std::size_t>(values.dim * columns), 0.0F);
  std::vector<float> half_norms(static_cast<std::size_t>(centroids.count));
  for (std::int64_t c = 0; c < centroids.count; ++c) {
    const float* row = centroids.row(c);
    for (std::int64_t i = 0; i < values.dim; ++i) transposed[i * columns + c] = row[i];
    half_norms[c] = 0.5F * std::inner_product(row, row + values.dim, row, 0.0F);
  }
  std::vector<std::int32_t> labels(static_cast<std::size_t>(values.count));
  const std::int64_t chunks = (values.count + kRowsAtOnce - 1) / kRowsAtOnce;
  oneapi::tbb::parallel_for(std::int64_t{0}, chunks, [&](std::int64_t chunk) {
    const std::int64_t first = chunk * kRowsAtOnce;
    const std::int64_t count = std::min(kRowsAtOnce, values.count - first);
    std::vector<float> products(static_cast<std::size_t>(count * columns));
    matmul(values.row(first), transposed.data(), products.data(), count, values.dim, columns);
    for (std::int64_t i = 0; i < count; ++i) {
      float best = -std::numeric_limits<float>::infinity();
      for (std::int64_t c = 0; c < centroids.count; ++c) {
        const float closeness = products[i * columns + c] - half_norms[c];
        if (closeness > best) {
          best = closeness;
          labels[first + i] = static_cast<std::int32_t>(c);
        }
      }
    }
  });
  return labels;
}

void update_centroids(const Rows& values, const std::vector<std::int32_t>& labels,
                      Rows& centroids) {
  std::vector<double> sums(centroids.data.size(), 0.0);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(centroids.count), 0);
  for (std::int64_t i = 0; i < values.count; ++i) {
    double* sum = sums.data() + labels[i] * values.dim;
    for (std::int64_t c = 0; c < values.dim; ++c) sum[c] += values.row(i)[c];
    ++counts[labels[i]];
  }
  for (std::int64_t k = 0; k < centroids.count; ++k) {
    if (counts[k] == 0) continue;
    for (std::int64_t c = 0; c < values.dim; ++c) {
      centroids.row(k)[c] =
          static_cast<float>(sums[k * values.dim + c] / static_cast<double>(counts[k]));
    }
  }
}

std::vector<std::int32_t> sort_by_label(const std::vector<std::int32_t>& labels,
                                        std::int64_t clusters) {
  std::vector<std::int32_t> next(static_cast<std::size_t>(clusters) + 1, 0);
  for (const std::int32_t label : labels) ++next[label + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<std::int32_t> order(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    order[next[labels[i]]++] = static_cast<std::int32_t>(i);
  }
  return order;
}

std::vector<std::int32_t> cluster(const Rows& values, Rows& centroids, int iterations) {
  for (int i = 0; i < iterations; ++i) {
    update_centroids(values, nearest_centroids(values, centroids), centroids);
  }
  return sort_by_label(nearest_centroids(values, centroids), centroids.count);
}

}  // namespace vcattn::cpu
