// The checks every backend relies on.
#pragma once

#include "vcattn/arguments.h"
#include "vcattn/options.h"

namespace vcattn {

/// Native head dimensions: others are padded to the next of these with zeros, inside.
inline constexpr std::int64_t kNativeDims[] = {64, 128, 256};
inline constexpr std::int64_t kMaxDim = 256;

/// The smallest native dimension that holds d.
constexpr std::int64_t padded_dim(std::int64_t d) {
  for (const std::int64_t native : kNativeDims) {
    if (d <= native) return native;
  }
  return 0;
}

/// The scale the call uses: the one given, or d^-0.5.
float effective_scale(const Arguments& arguments);

/// The form in which a recipe's scores reach the encoder of P: kFloat unless the product is the one
/// that `scores` is made for.
ScoreFormat effective_scores(const Recipe& recipe);

/// Throws Error naming the first argument that is wrong, what was given and what is supported.
/// Reads key lengths only where they lie in host memory.
void validate(const Arguments& arguments, const Recipe& recipe);

}  // namespace vcattn
