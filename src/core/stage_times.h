// What the stages of a call cost, on a backend that runs them one after another.
#pragma once

#include <cstddef>

namespace vcattn {

/// Milliseconds over some repeats.
struct Spread {
  double median_ms = 0.0, min_ms = 0.0, max_ms = 0.0;
};

struct StageTimes {
  Spread kernel;         ///< attention alone, on operands that are prepared
  Spread prepare;        ///< smoothing, rotation and quantization
  Spread call;           ///< a whole call, with the order of the keys at hand
  Spread grouping;       ///< clustering and sorting from a cold start; 0 if the recipe has none
  Spread warm_grouping;  ///< the same from the centroids of an earlier step
  double scheduled_grouping_ms = 0.0;  ///< a step's share over a default schedule of 50 steps
  std::size_t workspace_bytes = 0;     ///< without grouping, whose workspace comes before
  std::size_t grouping_workspace_bytes = 0;
};

}  // namespace vcattn
