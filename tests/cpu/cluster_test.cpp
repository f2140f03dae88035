// Grouping: k-means, the chain of clusters and the order of tokens.
#include "cpu/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cpu/prepare.h"
#include "support/portable_random.h"

namespace vcattn::cpu {
namespace {

constexpr std::int64_t kDim = 64;

Rows rows_of(std::int64_t count, const std::function<float(std::int64_t, std::int64_t)>& f) {
  Rows rows(count, kDim);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < kDim; ++c) rows.row(i)[c] = f(i, c);
  }
  return rows;
}

/// Token i belongs to blob i % blobs, far from the others along its own axis.
Rows blobs(std::int64_t count, std::int64_t blob_count) {
  return rows_of(count, [&](std::int64_t i, std::int64_t c) {
    const float noise = 0.1F * test::portable_normal(1, static_cast<std::uint32_t>(i * kDim + c));
    return noise + (c == i % blob_count ? 10.0F : 0.0F);
  });
}

bool is_permutation_of_indices(const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<std::int32_t>(i)) return false;
  }
  return true;
}

double energy_after_block_means(Rows rows) {
  subtract_block_means(rows, block_means(rows));
  return std::inner_product(rows.data.begin(), rows.data.end(), rows.data.begin(), 0.0);
}

TEST(Cluster, NearestCentroidAgreesWithFloat64) {
  const Rows values = rows_of(500, [](std::int64_t i, std::int64_t c) {
    return test::portable_normal(2, static_cast<std::uint32_t>(i * kDim + c));
  });
  const Rows centroids = initial_centroids(values, 70);  // not a multiple of any vector length
  const std::vector<std::int32_t> labels = nearest_centroids(values, centroids);
  const auto distance = [&](std::int64_t i, std::int64_t k) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < kDim; ++c) {
      sum += std::pow(static_cast<double>(values.row(i)[c]) - centroids.row(k)[c], 2);
    }
    return sum;
  };
  for (std::int64_t i = 0; i < values.count; ++i) {
    double best = std::numeric_limits<double>::infinity();
    for (std::int64_t k = 0; k < centroids.count; ++k) best = std::min(best, distance(i, k));
    EXPECT_NEAR(distance(i, labels[i]), best, 1e-4 * (1.0 + best)) << i;
  }
}

TEST(Cluster, TiesGoToTheLowestIndex) {
  const Rows values = rows_of(5, [](auto, auto) { return 1.0F; });
  const Rows centroids = rows_of(3, [](auto, auto) { return 2.0F; });
  for (const std::int32_t label : nearest_centroids(values, centroids)) EXPECT_EQ(label, 0);
}

TEST(Cluster, LloydStepTakesMeansAndKeepsEmptyClusters) {
  const Rows values = rows_of(4, [](std::int64_t i, auto) { return static_cast<float>(i); });
  Rows centroids = rows_of(3, [](auto, auto) { return 9.0F; });
  update_centroids(values, {0, 0, 2, 2}, centroids);
  EXPECT_EQ(centroids.row(0)[5], 0.5F);
  EXPECT_EQ(centroids.row(1)[5], 9.0F);
  EXPECT_EQ(centroids.row(2)[5], 2.5F);
}

TEST(Cluster, FindsSeparatedBlobs) {
  for (const ClusterOrder how : {ClusterOrder::kLabel, ClusterOrder::kChain}) {
    const Rows values = blobs(512, 4);
    Rows centroids = initial_centroids(values, 4);
    // Evenly spaced tokens 0, 170, 340, 511 are of blobs 0, 2, 0, 3: the start is not the answer.
    const std::vector<std::int32_t> order = cluster(values, centroids, 6, how);
    ASSERT_TRUE(is_permutation_of_indices(order));
    EXPECT_LT(energy_after_block_means(permute(values, order)),
              0.2 * energy_after_block_means(values));
  }
}

TEST(Cluster, ChainFollowsALineFromOneEnd) {
  // Centroids on a line, shuffled; their mean is 2.53, so the farthest is the one at 0.
  const std::vector<float> at{3.0F, 0.0F, 5.0F, 1.0F, 4.0F, 2.2F};
  const Rows centroids =
      rows_of(6, [&](std::int64_t k, std::int64_t c) { return c == 0 ? at[k] : 0.0F; });
  EXPECT_EQ(chain_clusters(centroids), (std::vector<std::int32_t>{1, 3, 5, 0, 4, 2}));
}

TEST(Cluster, ChainOrderSortsAlongTheLineWithinClusters) {
  // Tokens on a line: whatever the clusters, the order is the line itself, from one end.
  const std::int64_t count = 300;
  const Rows values = rows_of(count, [&](std::int64_t i, std::int64_t c) {
    return c == 0 ? static_cast<float>((i * 7919) % count) : 0.0F;
  });
  Rows centroids = initial_centroids(values, 5);
  const std::vector<std::int32_t> order = cluster(values, centroids, 3, ClusterOrder::kChain);
  std::vector<float> line;
  for (const std::int32_t i : order) line.push_back(values.row(i)[0]);
  EXPECT_TRUE(std::is_sorted(line.begin(), line.end()) ||
              std::is_sorted(line.rbegin(), line.rend()));
}

TEST(Cluster, EqualTokensKeepTheirOrder) {
  const Rows values = rows_of(200, [](auto, auto) { return 0.5F; });
  for (const ClusterOrder how : {ClusterOrder::kLabel, ClusterOrder::kChain}) {
    Rows centroids = initial_centroids(values, 3);
    const std::vector<std::int32_t> order = cluster(values, centroids, 2, how);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

TEST(Cluster, OneTokenAndNonFiniteTokensStillGiveAPermutation) {
  Rows values = blobs(130, 3);
  values.row(7)[0] = std::numeric_limits<float>::quiet_NaN();
  values.row(8)[1] = std::numeric_limits<float>::infinity();
  for (const ClusterOrder how : {ClusterOrder::kLabel, ClusterOrder::kChain}) {
    Rows centroids = initial_centroids(values, 2);
    EXPECT_TRUE(is_permutation_of_indices(cluster(values, centroids, 3, how)));
    const Rows one = blobs(1, 1);
    Rows single = initial_centroids(one, 1);
    EXPECT_EQ(cluster(one, single, 3, how), std::vector<std::int32_t>{0});
  }
}

}  // namespace
}  // namespace vcattn::cpu
