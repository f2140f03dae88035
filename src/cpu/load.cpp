#include "cpu/load.h"

#include <oneapi/tbb/parallel_for.h>

#include "core/element.h"
#include "vcattn/numerics/arith.h"

namespace vcattn::cpu {
namespace {

void rotate(float* row, const Rope& rope, std::int64_t token) {
  using numerics::fma_rn;
  using numerics::mul_rn;
  const float* cos = rope.cos + token * rope.pairs;
  const float* sin = rope.sin + token * rope.pairs;
  for (std::int64_t p = 0; p < rope.pairs; ++p) {
    const bool interleaved = rope.layout == RopeLayout::kInterleaved;
    float& x = row[interleaved ? 2 * p : p];
    float& y = row[interleaved ? 2 * p + 1 : p + rope.pairs];
    const float rotated_x = fma_rn(x, cos[p], -mul_rn(y, sin[p]));
    y = fma_rn(y, cos[p], mul_rn(x, sin[p]));
    x = rotated_x;
  }
}

}  // namespace

Rows load_rows(const TensorView& view, std::int64_t batch, std::int64_t head,
               const std::vector<std::int64_t>& tokens, const std::optional<Rope>& rope,
               std::int64_t dim) {
  Rows rows(static_cast<std::int64_t>(tokens.size()), dim);
  oneapi::tbb::parallel_for(std::int64_t{0}, rows.count, [&](std::int64_t i) {
    float* row = rows.row(i);
    for (std::int64_t c = 0; c < view.dim(); ++c) {
      row[c] = load_element(view, view.offset(batch, head, tokens[i], c));
    }
    if (rope) rotate(row, *rope, tokens[i]);
  });
  return rows;
}

}  // namespace vcattn::cpu
