// V-Smooth grouping: online k-means over value tokens and the permutation that sorts them.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/load.h"
#include "vcattn/options.h"

namespace vcattn::cpu {

/// Evenly spaced tokens as centroids; `clusters` is at most the token count.
Rows initial_centroids(const Rows& values, std::int64_t clusters);

/// Nearest centroid (Euclidean) of every row, the lowest index on ties. A row with a NaN goes to 0.
/// Rows and centroids are rounded to bfloat16 for the comparison, as matrix units take them.
std::vector<std::int32_t> nearest_centroids(const Rows& values, const Rows& centroids);

/// One Lloyd step: each centroid becomes the mean of its rows; an empty cluster keeps its own.
void update_centroids(const Rows& values, const std::vector<std::int32_t>& labels, Rows& centroids);

/// Greedy chain through the centroids: starts at the one farthest from their mean and goes on to
/// the nearest not yet visited (the lowest index on ties; a NaN is farther than infinity).
/// result[rank] is a cluster.
std::vector<std::int32_t> chain_clusters(const Rows& centroids);

/// How the tokens of the clusters are laid out.
///   kLabel: by label, as published; blocks that span clusters mix unrelated ones.
///   kChain: by the cluster's rank in the chain, then by the token's projection on the direction
///           from the previous centroid of the chain to the next, so that neighbours in the order
///           are neighbours in value space, within clusters and across their borders.
/// Both are stable: equal keys keep the order of the tokens. result[i] is the row that goes to
/// position i.
std::vector<std::int32_t> order_tokens(const Rows& values, const std::vector<std::int32_t>& labels,
                                       const Rows& centroids, ClusterOrder order);

/// `iterations` Lloyd steps from `centroids` (updated in place), of long inputs on a sample of the
/// tokens (numerics::fit_stride), then the order of the final assignment of all.
std::vector<std::int32_t> cluster(const Rows& values, Rows& centroids, int iterations,
                                  ClusterOrder order);

}  // namespace vcattn::cpu
