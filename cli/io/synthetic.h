// Inputs for `bench`: random, but shaped like those of a video model.
#pragma once

#include <cstdint>
#include <vector>

#include "vcattn/arguments.h"

namespace vcattn::cli {

/// bfloat16 q, k and v in BHSD: keys share a strong mean, a few channels of q and k carry outliers,
/// and values gather around one centre per stretch of tokens. On pure noise smoothing has nothing
/// to do and accuracy says little.
class SyntheticInputs {
 public:
  SyntheticInputs(std::int64_t hq, std::int64_t hkv, std::int64_t sq, std::int64_t skv,
                  std::int64_t d);

  /// Everything but the outputs.
  const Arguments& arguments() const { return arguments_; }

 private:
  std::vector<std::uint16_t> q_, k_, v_;
  Arguments arguments_;
};

}  // namespace vcattn::cli
