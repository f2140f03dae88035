// Evaluations as JSON: the fields docs/cli.md promises.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/measure/evaluation.h"

namespace vcattn::cli {

/// recipe, backend, kernel, shape, time_ms, rel_l2, cosine, max_abs, lse_max_abs, finite and, where
/// compared, worst_head and worst_row. What was not computed or is not finite is null.
nlohmann::ordered_json to_json(const Evaluation& evaluation);

/// time_min_ms, time_max_ms, warmup and repeats.
void add_spread(nlohmann::ordered_json& object, const Timing& timing);

/// null unless the value is finite.
nlohmann::ordered_json number_json(double value);

/// The object on stdout, alone.
void print_json(const nlohmann::ordered_json& object);

}  // namespace vcattn::cli
