// The CPU backend: the algorithm, executable and readable, and the default where no GPU exists.
#pragma once

#include "core/backend.h"

namespace vcattn::cpu {

const Backend& backend();

}  // namespace vcattn::cpu
