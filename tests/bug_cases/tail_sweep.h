// Every number of keys up to a limit, so that no tail length is left to luck.
#pragma once

#include <cmath>
#include <functional>
#include <limits>

#include "bug_cases/tolerance.h"

namespace vcattn::test {

/// Calls check(arguments) for setup.keys, ..., 2, 1 keys. The tensors keep their full length, with
/// NaN in every key and value behind the end: reading past it cannot go unnoticed.
inline void for_every_key_count(const Setup& setup,
                                const std::function<void(const Arguments&)>& check) {
  Inputs inputs(setup);
  for (std::int64_t keys = setup.keys; keys >= 1 && !testing::Test::HasFailure(); --keys) {
    SCOPED_TRACE(testing::Message() << keys << " keys");
    Arguments a = inputs.arguments();
    a.k = narrow(a.k, 2, 0, keys);
    a.v = narrow(a.v, 2, 0, keys);
    check(a);
    for (HostTensor* tensor : {&inputs.k, &inputs.v}) {
      for (std::int64_t h = 0; h < a.k.heads(); ++h) {
        for (std::int64_t d = 0; d < setup.dim; ++d) {
          tensor->set(0, h, keys - 1, d, std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
  }
}

/// The same with the class of the recipe as the check.
inline void expect_class_at_every_key_count(const Setup& setup, const Recipe& recipe) {
  for_every_key_count(setup, [&](const Arguments& a) { expect_class(a, recipe); });
}

}  // namespace vcattn::test
