// Packed calls as the dense calls they stand for.
#pragma once

#include <vector>

#include "vcattn/arguments.h"

namespace vcattn {

/// The call on every segment alone, in order, views and rotary tables narrowed to its tokens; a
/// call without segments is its own only one.
std::vector<Arguments> dense_calls(const Arguments& arguments);

}  // namespace vcattn
