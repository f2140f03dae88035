// The public entry: softmax(q k^T * scale) v in 8 or 4 bits.
#pragma once

#include "vcattn/plan.h"

namespace vcattn {

/// Computes attention and returns when the work is done (CPU) or enqueued (CUDA, on the caller's
/// stream). Shorthand for `make_plan(arguments, options).run(state)`.
///
/// @param state  V-Smooth state of this layer, or nullptr for a self-contained call.
/// @throws Error with the argument's name, what was given and what is supported.
inline void attention(const Arguments& arguments, const Options& options = {},
                      VSmoothState* state = nullptr) {
  make_plan(arguments, options).run(state);
}

}  // namespace vcattn
