// The CUDA backend.
#pragma once

#include "core/backend.h"

namespace vcattn::cuda {

const Backend& backend();

}  // namespace vcattn::cuda
