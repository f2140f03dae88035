#include "cli/report/comparison.h"

#include <algorithm>

namespace vcattn::cli {

std::vector<RecipeSummary> summarize(const std::vector<Comparison>& comparisons) {
  std::vector<RecipeSummary> summaries;
  for (std::size_t i = 0; i < comparisons.front().evaluations.size(); ++i) {
    RecipeSummary summary{.recipe = comparisons.front().evaluations[i].recipe.name};
    int compared = 0;
    for (const Comparison& comparison : comparisons) {
      const Evaluation& e = comparison.evaluations[i];
      summary.total_ms += e.timing.median_ms;
      if (!e.metrics) continue;
      ++compared;
      summary.mean_rel_l2 += e.metrics->rel_l2;
      summary.worst_rel_l2 = std::max(summary.worst_rel_l2, e.metrics->rel_l2);
      summary.worst_cosine = std::min(summary.worst_cosine, e.metrics->cosine);
    }
    summary.mean_rel_l2 /= std::max(1, compared);
    summaries.push_back(summary);
  }
  return summaries;
}

}  // namespace vcattn::cli
