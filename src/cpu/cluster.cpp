#include "cpu/cluster.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "cpu/prepare.h"
#include "cpu/tile.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/token_order.h"

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
    float norm = 0.0F;
    for (std::int64_t i = 0; i < values.dim; ++i) {
      const float x = numerics::bf16_round(centroids.row(c)[i]);
      transposed[i * columns + c] = x;
      norm += x * x;
    }
    half_norms[c] = 0.5F * norm;
  }
  std::vector<std::int32_t> labels(static_cast<std::size_t>(values.count));
  const std::int64_t chunks = (values.count + kRowsAtOnce - 1) / kRowsAtOnce;
  oneapi::tbb::parallel_for(std::int64_t{0}, chunks, [&](std::int64_t chunk) {
    const std::int64_t first = chunk * kRowsAtOnce;
    const std::int64_t count = std::min(kRowsAtOnce, values.count - first);
    std::vector<float> rows(values.row(first), values.row(first) + count * values.dim);
    for (float& x : rows) x = numerics::bf16_round(x);
    std::vector<float> products(static_cast<std::size_t>(count * columns));
    matmul(rows.data(), transposed.data(), products.data(), count, values.dim, columns);
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

std::vector<std::int32_t> chain_clusters(const Rows& centroids) {
  const std::int64_t clusters = centroids.count;
  std::vector<std::int32_t> distance(static_cast<std::size_t>(clusters));
  const auto measure_from = [&](const float* from) {
    for (std::int64_t k = 0; k < clusters; ++k) {
      float sum = 0.0F;
      for (std::int64_t c = 0; c < centroids.dim; ++c) {
        sum = numerics::add_squared_difference(sum, centroids.row(k)[c], from[c]);
      }
      distance[k] = numerics::distance_bits(sum);
    }
  };
  measure_from(mean_row(centroids).data());
  std::vector<std::int32_t> chain;
  std::vector<bool> visited(static_cast<std::size_t>(clusters), false);
  auto next = static_cast<std::int32_t>(std::max_element(distance.begin(), distance.end()) -
                                        distance.begin());
  while (static_cast<std::int64_t>(chain.size()) < clusters) {
    chain.push_back(next);
    visited[next] = true;
    measure_from(centroids.row(next));
    next = -1;
    for (std::int64_t k = 0; k < clusters; ++k) {
      const bool nearer = next < 0 || distance[k] < distance[next];
      if (!visited[k] && nearer) next = static_cast<std::int32_t>(k);
    }
  }
  return chain;
}

namespace {

/// A row along a direction; numerics::add_projection says in which order it is summed.
float project(const float* row, const float* direction, std::int64_t dim) {
  constexpr std::int64_t kChannels = numerics::kProjectionChannels;
  std::vector<float> sums;
  for (std::int64_t first = 0; first < dim; first += kChannels) {
    float sum = 0.0F;
    for (std::int64_t c = first; c < std::min(dim, first + kChannels); ++c) {
      sum = numerics::add_projection(sum, row[c], direction[c]);
    }
    sums.push_back(sum);
  }
  sums.resize(std::bit_ceil(sums.size()), 0.0F);
  for (std::size_t half = sums.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      sums[i] = numerics::add_rn(sums[2 * i], sums[2 * i + 1]);
    }
  }
  return sums[0];
}

/// Sort keys of the chain order: rank of the cluster above, projection of the token below.
std::vector<std::uint64_t> chain_keys(const Rows& values, const std::vector<std::int32_t>& labels,
                                      const Rows& centroids) {
  const std::vector<std::int32_t> chain = chain_clusters(centroids);
  const std::int64_t clusters = centroids.count, dim = centroids.dim;
  std::vector<std::uint64_t> ranks(static_cast<std::size_t>(clusters));
  Rows directions(clusters, dim);
  for (std::int64_t rank = 0; rank < clusters; ++rank) {
    const std::int32_t cluster = chain[rank];
    ranks[cluster] = static_cast<std::uint64_t>(rank);
    const float* before = centroids.row(chain[std::max<std::int64_t>(rank - 1, 0)]);
    const float* after = centroids.row(chain[std::min(rank + 1, clusters - 1)]);
    for (std::int64_t c = 0; c < dim; ++c) directions.row(cluster)[c] = after[c] - before[c];
  }
  std::vector<std::uint64_t> keys(labels.size());
  oneapi::tbb::parallel_for(std::int64_t{0}, values.count, [&](std::int64_t i) {
    const float projection = project(values.row(i), directions.row(labels[i]), dim);
    keys[i] = ranks[labels[i]] << 32 | numerics::sortable_bits(projection);
  });
  return keys;
}

}  // namespace

std::vector<std::int32_t> order_tokens(const Rows& values, const std::vector<std::int32_t>& labels,
                                       const Rows& centroids, ClusterOrder order) {
  const std::vector<std::uint64_t> keys =
      order == ClusterOrder::kChain ? chain_keys(values, labels, centroids)
                                    : std::vector<std::uint64_t>(labels.begin(), labels.end());
  std::vector<std::int32_t> result(labels.size());
  std::iota(result.begin(), result.end(), 0);
  std::stable_sort(result.begin(), result.end(),
                   [&](std::int32_t a, std::int32_t b) { return keys[a] < keys[b]; });
  return result;
}

std::vector<std::int32_t> cluster(const Rows& values, Rows& centroids, int iterations,
                                  ClusterOrder order) {
  const std::int64_t stride = numerics::fit_stride(values.count);
  Rows sample((values.count + stride - 1) / stride, values.dim);
  for (std::int64_t i = 0; i < sample.count; ++i) {
    std::copy_n(values.row(i * stride), values.dim, sample.row(i));
  }
  for (int i = 0; i < iterations; ++i) {
    update_centroids(sample, nearest_centroids(sample, centroids), centroids);
  }
  return order_tokens(values, nearest_centroids(values, centroids), centroids, order);
}

}  // namespace vcattn::cpu
