#include "capi/convert.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "vcattn/error.h"

namespace vcattn::capi {
namespace {

[[noreturn]] void reject(const char* where, std::int64_t given, const char* supported) {
  throw Error(ErrorCode::kInvalidArgument, where,
              std::to_string(given) + " was given (supported: " + supported + ")");
}

DType to_dtype(std::int32_t dtype, const char* where) {
  switch (dtype) {
    case VCATTN_F32:
      return DType::kF32;
    case VCATTN_F16:
      return DType::kF16;
    case VCATTN_BF16:
      return DType::kBF16;
    case VCATTN_BOOL:
      return DType::kBool;
    default:
      reject(where, dtype, "a vcattn_dtype");
  }
}

template <class Byte>
BasicTensorView<Byte> to_view(const vcattn_tensor& tensor, const char* where) {
  BasicTensorView<Byte> view{tensor.data, to_dtype(tensor.dtype, where), {}, {}};
  std::copy_n(tensor.shape, 4, view.shape.begin());
  std::copy_n(tensor.stride, 4, view.stride.begin());
  return view;
}

std::optional<Rope> to_rope(const vcattn_rope& rope, const char* where) {
  if (rope.cos == nullptr && rope.sin == nullptr) return std::nullopt;
  if (rope.layout != VCATTN_INTERLEAVED && rope.layout != VCATTN_HALF) {
    reject(where, rope.layout, "a vcattn_rope_layout");
  }
  const RopeLayout layout =
      rope.layout == VCATTN_HALF ? RopeLayout::kHalf : RopeLayout::kInterleaved;
  return Rope{rope.cos, rope.sin, rope.tokens, rope.pairs, layout};
}

std::optional<Segments> to_segments(const vcattn_segments& segments) {
  if (segments.offsets == nullptr) return std::nullopt;
  return Segments{segments.offsets, segments.count};
}

Device to_device(std::int32_t kind, std::int32_t index) {
  if (kind != VCATTN_CPU && kind != VCATTN_CUDA) reject("device", kind, "a vcattn_device");
  return {kind == VCATTN_CUDA ? Device::Kind::kCuda : Device::Kind::kCpu, index};
}

/// The caller's structure as this library knows it: fields the caller lacks stay zero.
vcattn_arguments widened(const vcattn_arguments& given) {
  // The smallest structure of this ABI version ends with the allocator.
  constexpr std::size_t kSmallest = sizeof(vcattn_arguments);
  if (given.struct_size < kSmallest) {
    reject("struct_size", static_cast<std::int64_t>(given.struct_size), "sizeof(vcattn_arguments)");
  }
  vcattn_arguments copy{};
  std::memcpy(&copy, &given, std::min(given.struct_size, sizeof copy));
  return copy;
}

}  // namespace

Arguments to_arguments(const vcattn_arguments& given) {
  const vcattn_arguments c = widened(given);
  Arguments a;
  a.q = to_view<const void>(c.q, "q");
  a.k = to_view<const void>(c.k, "k");
  a.v = to_view<const void>(c.v, "v");
  a.out = to_view<void>(c.out, "out");
  if (c.lse != nullptr) {
    a.lse = LseView{c.lse, {c.lse_stride[0], c.lse_stride[1], c.lse_stride[2]}};
  }
  if (c.has_scale != 0) a.scale = c.scale;
  a.causal = c.causal != 0;
  if (c.has_mask != 0) a.mask = to_view<const void>(c.mask, "mask");
  a.key_lengths = c.key_lengths;
  a.q_segments = to_segments(c.q_segments);
  a.k_segments = to_segments(c.k_segments);
  a.q_rope = to_rope(c.q_rope, "q_rope");
  a.k_rope = to_rope(c.k_rope, "k_rope");
  a.device = to_device(c.device, c.device_index);
  a.stream = c.stream;
  a.allocator = {c.allocator.allocate, c.allocator.deallocate, c.allocator.context};
  return a;
}

BackendChoice to_backend(vcattn_backend backend) {
  switch (backend) {
    case VCATTN_AUTO:
      return BackendChoice::kAuto;
    case VCATTN_USE_CPU:
      return BackendChoice::kCpu;
    case VCATTN_USE_CUDA:
      return BackendChoice::kCuda;
  }
  reject("backend", backend, "a vcattn_backend");
}

}  // namespace vcattn::capi
