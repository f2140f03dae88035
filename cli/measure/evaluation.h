// One recipe on one call: run, timed, held against the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "vcattn/plan.h"
#include "vcattn/reference.h"
#include "vcattn/staging.h"

namespace vcattn::cli {

struct CallShape {
  std::int64_t b = 0, hq = 0, hkv = 0, sq = 0, skv = 0, d = 0;

  /// Floating-point operations of exact attention without masks: 4 B Hq Sq Skv d.
  double flops() const;
};

CallShape shape_of(const Arguments& arguments);
/// "1 x 24(8) x 2048 x 512 x 128": batch, query heads (KV heads if fewer), queries, keys, d.
std::string to_string(const CallShape& shape);

/// How often a call is timed; the warm-up runs are thrown away.
struct Protocol {
  int warmup = 0;
  int repeats = 1;
};

/// Wall time of `StagedCall::run` alone, in milliseconds: no copies between host and device.
struct Timing {
  double median_ms = 0.0, min_ms = 0.0, max_ms = 0.0;
  Protocol protocol;
};

/// Each run is self-contained: it gets a fresh V-Smooth state. The last one's is kept in
/// `last_state` if given.
Timing time_call(const StagedCall& staged, const Protocol& protocol, const Progress& progress,
                 VSmoothState* last_state = nullptr);

/// Query rows to compute a reference for: all of them (an empty list), or evenly spread ones if the
/// reference would take more than about half a minute. `limit` > 0 sets their number.
std::vector<std::int64_t> reference_rows(const CallShape& shape, std::int64_t limit);

struct Evaluation {
  Recipe recipe;
  std::string backend, kernel;
  CallShape shape;
  Timing timing;
  bool finite = true;              ///< inputs that the call sees, and all of the output
  std::optional<Metrics> metrics;  ///< nothing if not compared, or if there is no row
  std::vector<std::string> explanation;
};

/// `stage` and `preview` whose errors are Failures; `source` is the file the tensors come from.
StagedCall stage_call(const std::string& source, const Arguments& arguments,
                      const Options& options);
Plan preview_call(const std::string& source, const Arguments& arguments, const Options& options);

/// Describes the plan; timing and metrics are left to fill in.
Evaluation describe(const Plan& plan);

/// Compares the outputs of a plan that has run.
std::optional<Metrics> compare_with(const Reference& reference,
                                    const std::vector<std::int64_t>& rows,
                                    const Arguments& arguments);

/// The head that holds the row with the lowest cosine.
const HeadError& worst_row(const Metrics& metrics);

/// Whether all of out is a number.
bool output_finite(const Arguments& arguments);

/// Lines that say which kernel runs which recipes and why, one per kernel.
std::vector<std::string> announcements(const std::vector<Evaluation>& evaluations);

}  // namespace vcattn::cli
