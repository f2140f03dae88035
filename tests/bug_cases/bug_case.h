// A row of the public bug table as tests: one per recipe, named after the row.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "vcattn/options.h"

namespace vcattn::test {

struct BugCase {
  /// "ACC-05"; the test is Suite.ACC_05_vc8.
  std::string id;
  /// Names of recipes, each one test; empty: one test, with the default recipe.
  std::vector<std::string> recipes;
  std::function<void(const Recipe&)> body;
};

/// Thrown where a test program's target (call.h) cannot be asked: the test is skipped.
struct NotHere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// For rows that cannot go through `run`: throws NotHere unless the target is the host. `elsewhere`
/// says who asks the same of a GPU.
void need_host(const char* elsewhere);

/// Registers the cases of one category; call it from a static initializer.
bool register_cases(const char* suite, const std::vector<BugCase>& cases);

/// Recipes by what a row is about.
inline const std::vector<std::string> kVc8{"vc8", "vc8-paper", "vc8-exp", "vc8-fast", "vc8-shaped"};
/// Every recipe of 8 bits, the published ones of others included.
inline const std::vector<std::string> kAll8{"vc8",        "vc8-paper", "vc8-exp", "vc8-fast",
                                            "vc8-shaped", "sage2",     "fp8"};
inline const std::vector<std::string> kAll{"vc8", "vc8-paper", "vc8-exp", "vc8-fast", "vc8-shaped",
                                           "vc4", "sage2",     "sage3",   "fp8",      "exact"};

}  // namespace vcattn::test
