// How far an output is from the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "vcattn/reference.h"
#include "vcattn/tensor.h"

namespace vcattn {

struct HeadError {
  std::int64_t batch = 0, head = 0;
  double rel_l2 = 0.0;  ///< ||out - ref|| / ||ref|| over the head
  double cosine = 1.0;
  double max_abs = 0.0;
  std::int64_t worst_row = 0;  ///< query row with the lowest cosine to its reference
  double worst_row_cosine = 1.0;
};

struct Metrics {
  double rel_l2 = 0.0, cosine = 1.0, max_abs = 0.0;  ///< over the whole tensor
  double lse_max_abs = 0.0;                          ///< NaN if no LSE was compared
  bool finite = true;
  std::vector<HeadError> heads;

  const HeadError& worst_head() const;
};

/// Compares host tensors. A reference of zero norm gives rel_l2 = 0 if out is zero too, else
/// infinity. Two -infinity LSEs agree.
///
/// @param out   (B, Hq, Sq, d) any dtype and strides, in host memory
/// @param lse   optional
/// @param rows  the rows `reference` holds; empty: all
Metrics measure(const TensorView& out, const LseView* lse, const Reference& reference,
                const std::vector<std::int64_t>& rows = {});

}  // namespace vcattn
