// The backends compiled into this library, best first.
#pragma once

#include <vector>

#include "core/backend.h"

namespace vcattn {

const std::vector<const Backend*>& registry();

}  // namespace vcattn
