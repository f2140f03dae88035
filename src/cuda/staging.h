// Host calls on a CUDA device.
#pragma once

#include <memory>

#include "vcattn/staging.h"

namespace vcattn::cuda {

/// Copies everything the call reads to `device` and allocates outputs there, filled with NaN.
std::unique_ptr<DeviceCall> stage_on(const Arguments& host, int device);

}  // namespace vcattn::cuda
