// What `compare` found, for the terminal, JSON and HTML.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/measure/error_histogram.h"
#include "cli/measure/evaluation.h"
#include "cli/measure/value_energy.h"
#include "io/safetensors.h"

namespace vcattn::cli {

/// Everything about one input file.
struct Comparison {
  std::string file;
  io::Metadata metadata;
  CallShape shape;
  std::int64_t reference_rows = 0;  ///< how many of the query rows were compared
  bool inputs_finite = true;
  std::vector<Evaluation> evaluations;  ///< one per recipe

  /// For the pictures; empty unless asked for.
  std::vector<ErrorHistogram> histograms;  ///< one per recipe
  std::vector<HeadEnergy> energy;          ///< of the first recipe that clusters
};

/// One recipe over all inputs.
struct RecipeSummary {
  std::string recipe;
  double mean_rel_l2 = 0.0, worst_rel_l2 = 0.0, worst_cosine = 1.0;
  double total_ms = 0.0;
};

std::vector<RecipeSummary> summarize(const std::vector<Comparison>& comparisons);

}  // namespace vcattn::cli
