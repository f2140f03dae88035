// The API on structured random calls: an Error, or a complete, finite output and an untouched
// surrounding. Memory is allocated to the element, so that a sanitizer sees any step beside it.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "byte_source.h"
#include "core/element.h"
#include "support/portable_random.h"
#include "vcattn/attention.h"
#include "vcattn/error.h"

namespace vcattn::fuzz {
namespace {

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::uint32_t kSeed = 7;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Sizes at and around the edges of tiles and vectors.
std::int64_t tokens(ByteSource& source) {
  constexpr std::int64_t kEdges[] = {0, 1, 2, 15, 16, 17, 127, 128, 129, 257};
  return source.one_in(3) ? source.pick(kEdges) : source.between(1, 70);
}

std::int64_t head_dim(ByteSource& source) {
  constexpr std::int64_t kEdges[] = {0, 1, 64, 65, 127, 128, 129, 256, 257};
  return source.one_in(3) ? source.pick(kEdges) : source.between(1, 96);
}

/// A strided tensor with exactly the memory that its last element needs.
struct Tensor {
  std::vector<std::byte> memory;
  MutableTensorView view;

  /// Dense in a random order of the axes, with random gaps; `expand` gives an axis stride 0.
  Tensor(ByteSource& source, DType dtype, const std::array<std::int64_t, 4>& shape, bool expand) {
    constexpr int kOrders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 0, 1, 3}, {0, 1, 3, 2}};
    const int* order = kOrders[source.byte() % 4];
    view.dtype = dtype;
    view.shape = shape;
    std::int64_t stride = 1;
    for (int i = 3; i >= 0; --i) {
      const int axis = order[i];
      view.stride[axis] = stride;
      stride *= std::max<std::int64_t>(shape[axis], 1);
      if (source.one_in(4)) stride += source.between(1, 9);
    }
    if (expand && source.one_in(8)) view.stride[source.byte() % 3] = 0;
    std::int64_t last = 0;
    for (int axis = 0; axis < 4; ++axis) last += view.stride[axis] * (shape[axis] - 1);
    const auto elements = static_cast<std::size_t>(view.empty() ? 0 : last + 1);
    memory.resize(elements * size_bytes(dtype));
    view.data = memory.data();
  }

  TensorView read_only() const { return as_const(view); }
};

Tensor input(ByteSource& source, std::array<std::int64_t, 4> shape, std::uint32_t seed) {
  // One axis in sixteen disagrees with the other tensors.
  if (source.one_in(16)) shape[source.byte() % 4] = source.between(0, 5);
  Tensor tensor(source, source.pick(kFloats), shape, true);
  constexpr float kScales[] = {1.0F, 0.0F, 30.0F, 1e-3F};
  const float scale = source.pick(kScales);
  const auto count = tensor.memory.size() / size_bytes(tensor.view.dtype);
  for (std::size_t i = 0; i < count; ++i) {
    store_element(tensor.view, static_cast<std::int64_t>(i),
                  scale * test::portable_normal(seed, static_cast<std::uint32_t>(i)));
  }
  return tensor;
}

/// A named recipe with some fields taken from others, or set to edges. Goes through the fields'
/// names, so that a new field takes part by itself.
Recipe random_recipe(ByteSource& source) {
  constexpr const char* kEdges[] = {"sequence", "on", "off", "float", "1", "17", "0", "128"};
  const auto any = [&] { return recipe(recipe_names()[source.byte() % recipe_names().size()]); };
  Recipe result = any();
  if (source.one_in(2)) return result;
  const auto count = fields(result).size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = fields(result)[i].first;
    if (!source.one_in(3)) continue;
    const std::string value = source.one_in(2) ? source.pick(kEdges) : fields(any())[i].second;
    try {
      set_field(result, name, value);
    } catch (const Error&) {
      continue;  // not a value of this field
    }
  }
  return result;
}

/// What may stand beside q, k and v; the memory behind the pointers.
struct Extras {
  std::vector<std::int32_t> lengths, q_offsets, k_offsets;
  std::optional<Tensor> mask;
  std::vector<float> cosines, sines;
};

void add_lengths(ByteSource& source, Arguments& a, Extras& extras) {
  for (std::int64_t b = 0; b < a.q.batch(); ++b) {
    extras.lengths.push_back(static_cast<std::int32_t>(source.between(0, a.k.tokens())));
  }
  if (source.one_in(16) && !extras.lengths.empty()) extras.lengths[0] = -1;
  a.key_lengths = extras.lengths.data();
}

void add_mask(ByteSource& source, Arguments& a, Extras& extras) {
  std::array<std::int64_t, 4> shape{a.q.batch(), a.q.heads(), a.q.tokens(), a.k.tokens()};
  for (std::int64_t& size : shape) size = source.one_in(3) ? 1 : size;
  const bool boolean = source.one_in(2);
  extras.mask.emplace(source, boolean ? DType::kBool : DType::kF32, shape, true);
  const MutableTensorView& view = extras.mask->view;
  const auto count = extras.mask->memory.size() / size_bytes(view.dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const bool visible = test::portable_uniform(kSeed, static_cast<std::uint32_t>(i)) < 0.7F;
    if (boolean) {
      static_cast<std::uint8_t*>(view.data)[i] = visible ? 1 : 0;
    } else {
      static_cast<float*>(view.data)[i] = visible ? 0.5F : -std::numeric_limits<float>::infinity();
    }
  }
  a.mask = extras.mask->read_only();
}

std::vector<std::int32_t> offsets(ByteSource& source, std::int64_t total, int segments) {
  std::vector<std::int32_t> result{0};
  for (int i = 1; i < segments; ++i) {
    result.push_back(static_cast<std::int32_t>(source.between(result.back(), total)));
  }
  result.push_back(static_cast<std::int32_t>(source.one_in(16) ? total + 1 : total));
  return result;
}

void add_segments(ByteSource& source, Arguments& a, Extras& extras) {
  const int segments = static_cast<int>(source.between(1, 4));
  extras.q_offsets = offsets(source, a.q.tokens(), segments);
  extras.k_offsets = offsets(source, a.k.tokens(), segments);
  a.q_segments = Segments{extras.q_offsets.data(), segments};
  a.k_segments = Segments{extras.k_offsets.data(), segments};
}

void add_rope(ByteSource& source, Arguments& a, Extras& extras) {
  const std::int64_t rows = std::max(a.q.tokens(), a.k.tokens());
  const std::int64_t pairs = source.between(0, 1 + a.q.dim() / 2);
  for (std::int64_t i = 0; i < rows * pairs; ++i) {
    const float angle = 6.3F * test::portable_uniform(kSeed, static_cast<std::uint32_t>(i));
    extras.cosines.push_back(std::cos(angle));
    extras.sines.push_back(std::sin(angle));
  }
  a.q_rope = Rope{extras.cosines.data(), extras.sines.data(), rows, pairs,
                  source.one_in(2) ? RopeLayout::kHalf : RopeLayout::kInterleaved};
  if (source.one_in(2)) a.k_rope = a.q_rope;
}

void add_extras(ByteSource& source, Arguments& a, Extras& extras) {
  a.causal = source.one_in(3);
  if (source.one_in(4)) add_lengths(source, a, extras);
  if (source.one_in(4)) add_mask(source, a, extras);
  if (source.one_in(a.q.batch() == 1 ? 3 : 30)) add_segments(source, a, extras);
  if (source.one_in(4)) add_rope(source, a, extras);
  constexpr float kScales[] = {0.0F, 1.0F, -0.5F, 10.0F};
  if (source.one_in(4)) a.scale = source.pick(kScales);
}

void require_complete(const Tensor& out, const std::vector<std::byte>& before,
                      const std::vector<float>& lse) {
  std::vector<bool> owned(out.memory.size(), false);
  const MutableTensorView& view = out.view;
  const std::size_t bytes = size_bytes(view.dtype);
  for (std::int64_t b = 0; b < view.batch(); ++b) {
    for (std::int64_t h = 0; h < view.heads(); ++h) {
      for (std::int64_t s = 0; s < view.tokens(); ++s) {
        for (std::int64_t c = 0; c < view.dim(); ++c) {
          const std::int64_t at = view.offset(b, h, s, c);
          require(std::isfinite(load_element(out.read_only(), at)));
          for (std::size_t i = 0; i < bytes; ++i) {
            owned[static_cast<std::size_t>(at) * bytes + i] = true;
          }
        }
      }
    }
  }
  for (std::size_t i = 0; i < owned.size(); ++i) require(owned[i] || out.memory[i] == before[i]);
  // A row without keys has -infinity; +infinity and NaN are wrong.
  for (const float value : lse) require(value < std::numeric_limits<float>::infinity());
}

void run_call(ByteSource& source) {
  const std::int64_t d = head_dim(source);
  const std::int64_t hkv = source.between(1, 2);
  const std::int64_t hq = source.one_in(12) ? source.between(0, 5) : hkv * source.between(1, 2);
  const std::int64_t batch = source.between(1, 2);
  const std::int64_t sq = tokens(source), skv = tokens(source);
  const Tensor q = input(source, {batch, hq, sq, d}, 1);
  const Tensor k = input(source, {batch, hkv, skv, d}, 2);
  const Tensor v = input(source, {batch, hkv, skv, d}, 3);
  Tensor out(source, source.pick(kFloats), q.view.shape, false);
  // All bits set: a NaN in every format.
  std::fill(out.memory.begin(), out.memory.end(), std::byte{0xFF});
  const std::vector<std::byte> before = out.memory;
  const std::int64_t rows = q.view.batch() * q.view.heads() * q.view.tokens();
  std::vector<float> lse(static_cast<std::size_t>(rows), std::nanf(""));

  Arguments a;
  a.q = q.read_only();
  a.k = k.read_only();
  a.v = v.read_only();
  a.out = out.view;
  const std::int64_t q_tokens = q.view.tokens();
  a.lse = LseView{lse.data(), {q.view.heads() * q_tokens, q_tokens, 1}};
  Extras extras;
  add_extras(source, a, extras);
  const Options options{.recipe = random_recipe(source), .backend = BackendChoice::kAuto};

  std::optional<Plan> plan;
  try {
    plan = make_plan(a, options);
  } catch (const Error&) {
    require(!why_not(a, options).empty());
    require(out.memory == before);
    return;
  }
  plan->run();
  if (q.view.empty()) return require(out.memory == before);
  require_complete(out, before, lse);
}

}  // namespace
}  // namespace vcattn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  vcattn::fuzz::ByteSource source(std::span(data, size));
  vcattn::fuzz::run_call(source);
  return 0;
}
