// A call in words.
#pragma once

#include <string>
#include <vector>

#include "vcattn/arguments.h"
#include "vcattn/options.h"

namespace vcattn {

/// What each stage does to these tensors under this recipe, one sentence each, in order.
std::vector<std::string> describe_stages(const Arguments& arguments, const Recipe& recipe);

}  // namespace vcattn
