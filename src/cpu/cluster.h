// V-Smooth grouping: online k-means over value tokens and the permutation that sorts them.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/load.h"

namespace vcattn::cpu {

/// Evenly spaced tokens as centroids; `clusters` is at most the token count.
Rows initial_centroids(const Rows& values, std::int64_t clusters);

/// Nearest centroid (Euclidean) of every row, the lowest index on ties. A row with a NaN goes to 0.
std::vector<std::int32_t> nearest_centroids(const Rows& values, const Rows& centroids);

/// One Lloyd step: each centroid becomes the mean of its rows; an empty cluster keeps its own.
void update_centroids(const Rows& values, const std::vector<std::int32_t>& labels, Rows& centroids);

/// Stable argsort of labels in [0, clusters): result[i] is the row that goes to position i.
std::vector<std::int32_t> sort_by_label(const std::vector<std::int32_t>& labels,
                                        std::int64_t clusters);

/// `iterations` Lloyd steps from `centroids` (updated in place), then the permutation of the final
/// assignment.
std::vector<std::int32_t> cluster(const Rows& values, Rows& centroids, int iterations);

}  // namespace vcattn::cpu
