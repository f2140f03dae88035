// What measurements ask of a backend beyond running a plan.
#pragma once

#include <memory>
#include <optional>

#include "core/backend.h"

namespace vcattn {

/// A call on random tensors that lie in device memory from the start, of the first available
/// backend of that choice that makes such.
/// @throws Error{kUnsupported} naming the backends and why there is none
std::unique_ptr<DeviceCall> random_call(const CallSizes& sizes, BackendChoice choice);

/// Times of the stages of a plan; nothing if its backend does not run them one by one.
std::optional<StageTimes> time_stages(const Plan& plan, int repeats);

}  // namespace vcattn
