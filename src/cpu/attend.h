// Attention over prepared operands: tiles of 128 keys, online softmax, mean restoration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/visibility.h"
#include "cpu/prepare.h"
#include "vcattn/arguments.h"
#include "vcattn/options.h"

namespace vcattn::cpu {

/// Rows one task works on; also the block of Recipe::q_block_mean.
inline constexpr std::int64_t kBlockQueries = 128;

/// K and V of one KV head, ready for the tile loop.
struct KeyValues {
  std::vector<std::int32_t> keys;       ///< position -> key index within the entry
  std::vector<float> k_mean;            ///< what was subtracted from every key; empty: nothing
  std::vector<float> balance;           ///< what channels of Q are multiplied by; empty: nothing
  std::optional<Feedback> shaping;      ///< of Q's rounding errors; empty: none
  std::vector<float> k_tiles;           ///< per tile: dim x 128
  std::vector<float> key_scales;        ///< per position, padded to whole tiles with 1
  std::vector<float> v_tiles;           ///< per tile: 128 x dim
  Rows means;                           ///< of V, one per tile; no rows: nothing was subtracted
  Rows key_means;                       ///< of K, one per tile; no rows: nothing was subtracted
  std::vector<float> smoothed_k_tiles;  ///< unquantized K for q_block_mean, else empty

  std::int64_t count() const { return static_cast<std::int64_t>(keys.size()); }
};

/// Q of one query head.
struct Queries {
  QkOperand operand;
  std::vector<float> lse_shift;  ///< q . k_mean in score units before scaling; empty: zero
  Rows block_means;              ///< per 128 queries, rotated like Q; no rows: none subtracted
  Rows rows;                     ///< unquantized and whole, for key_means; else no rows
};

/// One call's constants.
struct AttendContext {
  const Arguments& arguments;
  const Recipe& recipe;
  const Entry& entry;
  std::int64_t q_head;
};

/// Code units (1/8 octave) per unit of q . k.
float codes_per_score(const Arguments& arguments);

/// Computes and stores rows [first, first + kBlockQueries) of the entry, as far as they exist.
void attend_rows(const AttendContext& context, const Queries& queries, const KeyValues& kv,
                 std::int64_t first);

}  // namespace vcattn::cpu
