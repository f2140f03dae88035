// Calls whose tensors are brought to a CUDA device, or made there.
#pragma once

#include <memory>

#include "core/backend.h"

namespace vcattn::cuda {

/// Copies everything the call reads to `device` and allocates outputs there, filled with NaN.
std::unique_ptr<DeviceCall> stage_on(const Arguments& host, int device);

/// q, k and v: dense (1, heads, tokens, d) bfloat16 N(0, 1), the same for the same sizes. Outputs
/// are filled with NaN; there is no LSE.
std::unique_ptr<DeviceCall> random_call_on(const CallSizes& sizes, int device);

}  // namespace vcattn::cuda
