// The 8-bit recipes a second time, in float64 and straight from the definitions, sharing nothing
// with the library but the order of the keys: what quantization alone costs.
#pragma once

#include <cstdint>
#include <vector>

#include "vcattn/arguments.h"
#include "vcattn/options.h"

namespace vcattn::test {

/// Output (Hq, Sq, d) of batch entry 0, without masks. INT8 or E4M3 Q and K with one scale per
/// token, E4M3 probabilities, E4M3 V per channel with block means.
///
/// @param orders  per KV head: position -> key, as the call under test grouped them
std::vector<double> emulate(const Arguments& arguments, const Recipe& recipe,
                            const std::vector<std::vector<std::int32_t>>& orders);

}  // namespace vcattn::test
