#include "core/segments.h"

#include <type_traits>

namespace vcattn {
namespace {

template <class View>
void take_tokens(View& view, std::int64_t first, std::int64_t count) {
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, const std::byte, std::byte>;
  view.data = static_cast<Byte*>(view.data) +
              first * view.stride[2] * static_cast<std::int64_t>(size_bytes(view.dtype));
  view.shape[2] = count;
}

void skip_tokens(std::optional<Rope>& rope, std::int64_t count) {
  if (!rope) return;
  rope->cos += count * rope->pairs;
  rope->sin += count * rope->pairs;
  rope->tokens -= count;
}

}  // namespace

std::vector<Arguments> dense_calls(const Arguments& arguments) {
  if (!arguments.q_segments) return {arguments};
  std::vector<Arguments> calls;
  for (std::int64_t i = 0; i < arguments.q_segments->count; ++i) {
    const std::int32_t* q = arguments.q_segments->offsets + i;
    const std::int32_t* k = arguments.k_segments->offsets + i;
    Arguments& call = calls.emplace_back(arguments);
    call.q_segments.reset();
    call.k_segments.reset();
    take_tokens(call.q, q[0], q[1] - q[0]);
    take_tokens(call.k, k[0], k[1] - k[0]);
    take_tokens(call.v, k[0], k[1] - k[0]);
    take_tokens(call.out, q[0], q[1] - q[0]);
    if (call.lse) call.lse->data += q[0] * call.lse->stride[2];
    skip_tokens(call.q_rope, q[0]);
    skip_tokens(call.k_rope, k[0]);
  }
  return calls;
}

}  // namespace vcattn
