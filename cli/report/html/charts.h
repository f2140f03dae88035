// The pictures of a comparison, each a <figure>.
#pragma once

#include <string>
#include <vector>

#include "cli/report/comparison.h"

namespace vcattn::cli::html {

/// Style class of each recipe: the same colour in every picture, grey for float ones.
std::vector<std::string> series_of(const std::vector<Evaluation>& evaluations);

/// Which recipes compete with each other: bits of the narrowest operand.
enum class Precision { kFloat, k8Bit, k4Bit };
Precision precision_of(const Recipe& recipe);

/// Coloured names of all recipes.
std::string legend(const std::vector<Evaluation>& evaluations);

std::string head_error_figure(const Comparison& comparison);
std::string error_distribution_figure(const Comparison& comparison);
/// Empty if no recipe clustered V.
std::string value_energy_figure(const Comparison& comparison);
/// About the number format, not about an input.
std::string exp_cast_figure();

/// Picture, title and caption (both HTML).
std::string figure(const std::string& title, const std::string& body, const std::string& caption);

}  // namespace vcattn::cli::html
