// Memory for the results of one call.
#pragma once

#include <cstddef>
#include <vector>

#include "vcattn/arguments.h"

namespace vcattn::cli {

/// out (dtype and layout of q) and lse, filled with NaN so that an element nobody wrote cannot pass
/// for a result.
class OutputBuffers {
 public:
  OutputBuffers(const TensorView& q, Layout layout);
  OutputBuffers(const OutputBuffers&) = delete;
  OutputBuffers& operator=(const OutputBuffers&) = delete;

  /// `arguments` with these outputs.
  Arguments attach(Arguments arguments);

  /// As if they were new: for another call.
  void fill_with_nan();

  const std::vector<std::byte>& out_bytes() const { return out_; }
  const std::vector<float>& lse() const { return lse_; }

 private:
  std::vector<std::byte> out_;
  std::vector<float> lse_;  ///< (batch, heads, queries)
  TensorView q_;
  Layout layout_;
};

}  // namespace vcattn::cli
