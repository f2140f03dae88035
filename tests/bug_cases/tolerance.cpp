#include "bug_cases/tolerance.h"

namespace vcattn::test {

const Tolerance& class_of(const Recipe& recipe) {
  switch (recipe.qk) {
    case QkFormat::kFloat:
      return kT32;
    case QkFormat::kInt8:
      return kT8;
    case QkFormat::kE4M3:
      return kT8F;
    case QkFormat::kNvfp4:
      break;
  }
  return kT4;
}

testing::AssertionResult within(const Tolerance& tolerance, const Outcome& outcome,
                                const Reference& reference, const std::vector<std::int64_t>& rows) {
  const Metrics metrics = compare(outcome, reference, rows);
  if (!metrics.finite) return all_finite(outcome.out_view()) << "; not finite";
  for (const HeadError& head : metrics.heads) {
    if (head.rel_l2 <= tolerance.rel_l2 && head.cosine >= tolerance.cosine &&
        head.worst_row_cosine >= tolerance.row_cosine) {
      continue;
    }
    return testing::AssertionFailure()
           << "batch " << head.batch << " head " << head.head << " is outside " << tolerance.name
           << ": rel_l2 " << head.rel_l2 << " (<= " << tolerance.rel_l2 << "), cosine "
           << head.cosine << " (>= " << tolerance.cosine << "), row " << head.worst_row
           << " cosine " << head.worst_row_cosine << " (>= " << tolerance.row_cosine << ")";
  }
  if (metrics.lse_max_abs <= tolerance.lse) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the LSE is outside " << tolerance.name << ": "
                                     << metrics.lse_max_abs << " (<= " << tolerance.lse << ")";
}

Outcome expect_class(const Arguments& arguments, const Recipe& recipe,
                     const std::vector<std::int64_t>& rows, const OutputLayout& layout) {
  Outcome outcome = run(arguments, recipe, nullptr, layout);
  EXPECT_TRUE(within(class_of(recipe), outcome, referee(arguments, rows), rows));
  return outcome;
}

Outcome expect_class(const Setup& setup, const Recipe& recipe,
                     const std::vector<std::int64_t>& rows) {
  return expect_class(Inputs(setup).arguments(), recipe, rows);
}

}  // namespace vcattn::test
