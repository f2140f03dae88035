// Times of the stages of a call, by events.
#pragma once

#include "core/stage_times.h"
#include "vcattn/plan.h"

namespace vcattn::cuda {

/// The stages of a plan of the CUDA backend, each by itself: the median of `repeats` runs after two
/// warm-ups, on the plan's stream. Overwrites the plan's outputs.
StageTimes time_stages(const Plan& plan, const Backend& backend, int repeats);

}  // namespace vcattn::cuda
