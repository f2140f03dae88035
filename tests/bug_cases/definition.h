// softmax(q k^T scale + bias) v from the words of arguments.h, row by row in float64. It shares
// nothing with the library, so that it can judge what the library and its reference have in common:
// which query meets which key.
#pragma once

#include "vcattn/reference.h"

namespace vcattn::test {

/// The rows given (ascending). Without rotary tables.
Reference by_definition(const Arguments& arguments, const std::vector<std::int64_t>& rows);

}  // namespace vcattn::test
