// What V-Smooth does in a call.
#pragma once

#include "vcattn/options.h"
#include "vcattn/state.h"

namespace vcattn {

/// What a call does whose recipe smooths like this, with a state or without (nullptr);
/// `has_grouping`: the state's grouping is of this call's keys.
inline VSmoothAction smoothing_action(VSmooth smoothing, const VSmoothState* state,
                                      bool has_grouping) {
  if (smoothing == VSmooth::kClustered) {
    return state == nullptr ? VSmoothAction{} : state->next_action(has_grouping);
  }
  const bool demean = smoothing == VSmooth::kSequence &&
                      (state == nullptr || state->next_action(/*has_grouping=*/true).demean);
  return {.regroup = false, .demean = demean};
}

}  // namespace vcattn
