// V-Smooth grouping on the device: k-means over the values of every head, the chain of clusters and
// the order of the tokens along it. src/cpu/cluster.h is the specification.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "vcattn/arguments.h"
#include "vcattn/options.h"

namespace vcattn::cuda::cluster {

/// What a grouping is of.
struct Shape {
  int batch = 0, heads = 0, tokens = 0;
  int dim = 0;       ///< native: 64 or 128
  int clusters = 0;  ///< of a head whose keys are all visible
  int keys_per_cluster = 1;
  int tasks() const { return batch * heads; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

Shape shape_of(const Arguments& arguments, const Recipe& recipe);

/// Empty, or why such heads cannot be grouped.
const char* refuses(const Shape& shape);

/// A grouping in device memory.
struct Grouping {
  std::int32_t* order = nullptr;    ///< (batch, heads, tokens): position -> key, hidden keys last
  float* centroids = nullptr;       ///< (batch, heads, clusters, dim)
  std::int32_t* lengths = nullptr;  ///< (batch): the key lengths it is of, if there were any
  std::int32_t* stale = nullptr;    ///< not zero: this call's key lengths are others
};

std::size_t grouping_bytes(const Shape& shape);
Grouping grouping_at(const Shape& shape, std::byte* base);

struct Options {
  int iterations = 3;  ///< from evenly spaced tokens
  ClusterOrder order = ClusterOrder::kChain;
  bool warm = false;           ///< start from the centroids that are there and do half of them
  bool only_if_stale = false;  ///< do nothing if the grouping is of this call's key lengths
};

std::size_t workspace_bytes(const Shape& shape);

/// Enqueues a comparison of the call's key lengths with those of `grouping`: sets `stale`.
void check_lengths(const Arguments& arguments, const Shape& shape, const Grouping& grouping,
                   cudaStream_t stream);

/// Enqueues the grouping of `arguments.v`. With key lengths and `warm` or `only_if_stale`,
/// check_lengths must come first: stale centroids are not used. Nothing is synchronised, and every
/// bit of the result repeats.
void group(const Arguments& arguments, const Shape& shape, const Options& options,
           const Grouping& grouping, std::byte* workspace, cudaStream_t stream);

/// Enqueues order = that of `grouping`, or 0, 1, 2... if it is stale. (batch, heads, tokens)
void usable_order(const Shape& shape, const Grouping& grouping, std::int32_t* order,
                  cudaStream_t stream);

}  // namespace vcattn::cuda::cluster
