// How much of V's energy block means take out: what V-Smooth gains from clustering.
#pragma once

#include <cstdint>
#include <vector>

#include "vcattn/arguments.h"
#include "vcattn/state.h"

namespace vcattn::cli {

/// Shares of the energy of one KV head that the means of blocks of 128 keys hold.
struct HeadEnergy {
  std::int64_t batch = 0, head = 0;
  double sequence = 0.0;   ///< keys in the order given
  double clustered = 0.0;  ///< keys in the order V-Smooth put them
};

/// For a state whose grouping was made by a call with these arguments.
std::vector<HeadEnergy> value_energy(const Arguments& arguments,
                                     const VSmoothState::Grouping& grouping);

}  // namespace vcattn::cli
