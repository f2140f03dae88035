// Strided inputs in any dtype -> dense float32 rows, padded to the native head dimension.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "vcattn/arguments.h"

namespace vcattn::cpu {

/// Rows in processing order: count x dim, row-major; channels beyond the tensor's own are zero.
struct Rows {
  std::int64_t count = 0, dim = 0;
  std::vector<float> data;

  Rows() = default;
  Rows(std::int64_t rows, std::int64_t channels)
      : count(rows), dim(channels), data(static_cast<std::size_t>(rows * channels)) {}
  float* row(std::int64_t i) { return data.data() + i * dim; }
  const float* row(std::int64_t i) const { return data.data() + i * dim; }
};

/// Loads `tokens` (absolute positions) of one head, rotated by `rope` if there are tables, and
/// zero-padded to `dim` channels.
Rows load_rows(const TensorView& view, std::int64_t batch, std::int64_t head,
               const std::vector<std::int64_t>& tokens, const std::optional<Rope>& rope,
               std::int64_t dim);

}  // namespace vcattn::cpu
