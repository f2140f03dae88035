#include "cli/io/output_buffers.h"

#include <algorithm>
#include <limits>

namespace vcattn::cli {
namespace {

std::size_t rows(const TensorView& q) {
  return static_cast<std::size_t>(q.batch() * q.heads() * q.tokens());
}

}  // namespace

OutputBuffers::OutputBuffers(const TensorView& q, Layout layout)
    : out_(rows(q) * static_cast<std::size_t>(q.dim()) * size_bytes(q.dtype)),
      lse_(rows(q)),
      q_(q),
      layout_(layout) {
  fill_with_nan();
}

void OutputBuffers::fill_with_nan() {
  // All bits set is a NaN in every float format.
  std::fill(out_.begin(), out_.end(), std::byte{0xFF});
  std::fill(lse_.begin(), lse_.end(), std::numeric_limits<float>::quiet_NaN());
}

Arguments OutputBuffers::attach(Arguments arguments) {
  arguments.out = dense_view<void>(out_.data(), q_.dtype, layout_, q_.shape);
  arguments.lse = LseView{lse_.data(), {q_.heads() * q_.tokens(), q_.tokens(), std::int64_t{1}}};
  return arguments;
}

}  // namespace vcattn::cli
