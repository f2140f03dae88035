// Long sequences and offsets beyond 2^31, on tensors made on the device. GPU only: too large for
// the emulator. What the results are compared with is float64 on a few rows, or the same call on
// dense tensors.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "bug_cases/segments.h"
#include "bug_cases/tolerance.h"
#include "cuda/device_call.h"
#include "cuda/random.h"

namespace vcattn::test {
namespace {

void check(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

/// bfloat16 memory on the device.
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t count) : count_(static_cast<std::size_t>(count)) {
    check(cudaMalloc(&data_, 2 * count_));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void fill(std::uint32_t seed, float mean = 0.0F) {
    cuda::fill_normal_bf16(data_, count_, seed, mean);
  }
  void poison() { check(cudaMemset(data_, 0xFF, 2 * count_)); }
  void* data() const { return data_; }

 private:
  std::size_t count_;
  void* data_ = nullptr;
};

MutableTensorView view_of(void* data, const Shape& shape, const Shape& stride) {
  return {data, DType::kBF16, shape, stride};
}

/// Tokens first..first + count of one head, dense on the host.
HostTensor fetch(const TensorView& view, std::int64_t head, std::int64_t first,
                 std::int64_t count) {
  HostTensor host(DType::kBF16, {1, 1, count, view.dim()});
  const auto* from = static_cast<const std::uint16_t*>(view.data) + view.offset(0, head, first, 0);
  const auto row = static_cast<std::size_t>(2 * view.dim());
  check(cudaMemcpy2D(host.mutable_view().data, row, from,
                     static_cast<std::size_t>(2 * view.stride[2]), row,
                     static_cast<std::size_t>(count), cudaMemcpyDeviceToHost));
  return host;
}

struct LongCall {
  TensorView q, k, v;
  MutableTensorView out;
  std::vector<std::int32_t> offsets = {};  ///< of packed segments; empty: none
};

void run_long(const LongCall& call, const Recipe& recipe, const Allocator& allocator = {}) {
  Arguments a;
  a.q = call.q;
  a.k = call.k;
  a.v = call.v;
  a.out = call.out;
  if (!call.offsets.empty()) a.q_segments = a.k_segments = segments_of(call.offsets);
  a.device = {Device::Kind::kCuda, 0};
  a.allocator = allocator;
  make_plan(a, {.recipe = recipe, .backend = BackendChoice::kCuda}).run();
  check(cudaDeviceSynchronize());
}

/// The call on segment i of a packed one.
LongCall segment_of(const LongCall& call, std::size_t i) {
  const std::int64_t first = call.offsets[i], count = call.offsets[i + 1] - first;
  return {narrow(call.q, 2, first, count), narrow(call.k, 2, first, count),
          narrow(call.v, 2, first, count), narrow(call.out, 2, first, count)};
}

/// Error of `rows` of one head against float64.
Metrics error_of(const LongCall& call, std::int64_t head, const std::vector<std::int64_t>& rows) {
  const std::int64_t group = call.q.heads() / call.k.heads();
  const HostTensor k = fetch(call.k, head / group, 0, call.k.tokens());
  const HostTensor v = fetch(call.v, head / group, 0, call.v.tokens());
  const auto count = static_cast<std::int64_t>(rows.size());
  HostTensor q(DType::kBF16, {1, 1, count, call.q.dim()});
  HostTensor out(DType::kBF16, {1, 1, count, call.q.dim()});
  for (std::int64_t i = 0; i < count; ++i) {
    const HostTensor q_row = fetch(call.q, head, rows[i], 1);
    const HostTensor out_row = fetch(as_const(call.out), head, rows[i], 1);
    for (std::int64_t c = 0; c < call.q.dim(); ++c) {
      q.set(0, 0, i, c, q_row.get(0, 0, 0, c));
      out.set(0, 0, i, c, out_row.get(0, 0, 0, c));
    }
  }
  Arguments a;
  a.q = q.view();
  a.k = k.view();
  a.v = v.view();
  return measure(out.view(), nullptr, referee(a));
}

/// Dense (1, heads, tokens, dim) operands; few queries where only the keys matter.
struct DenseCall {
  DenseCall(std::int64_t heads, std::int64_t queries, std::int64_t keys, float value_mean = 0.0F,
            std::int64_t dim = 128, std::int64_t group = 1)
      : q(heads * queries * dim),
        k(heads / group * keys * dim),
        v(heads / group * keys * dim),
        out(heads * queries * dim) {
    const auto seed = static_cast<std::uint32_t>(keys);
    q.fill(seed + 1);
    k.fill(seed + 2);
    v.fill(seed + 3, value_mean);
    out.poison();
    const Shape q_shape{1, heads, queries, dim}, k_shape{1, heads / group, keys, dim};
    call = {as_const(view_of(q.data(), q_shape, dense_strides(q_shape))),
            as_const(view_of(k.data(), k_shape, dense_strides(k_shape))),
            as_const(view_of(v.data(), k_shape, dense_strides(k_shape))),
            view_of(out.data(), q_shape, dense_strides(q_shape))};
  }
  DeviceArray q, k, v, out;
  LongCall call;
};

/// Values with a mean: what the accumulation loses over many keys would show.
TEST(CudaLong, AMillionKeysAreAsExactAsEightThousand) {
  VCATTN_NEEDS_HOPPER();
  for (const char* name : {"vc8", "vc8-fast"}) {
    const auto error = [&](std::int64_t keys) {
      const DenseCall dense(1, 128, keys, 1.0F);
      run_long(dense.call, recipe(name));
      const Metrics metrics = error_of(dense.call, 0, sample_rows(128, 8));
      EXPECT_TRUE(metrics.finite);
      std::printf("  %-8s %8lld keys: rel_l2 %.6f\n", name, static_cast<long long>(keys),
                  metrics.rel_l2);
      return metrics.rel_l2;
    };
    const double few = error(8192);
    EXPECT_LE(error(131072), 1.1 * few) << name;
    EXPECT_LE(error(1048576), 1.1 * few) << name;
  }
}

/// q, k and v of `heads` heads as a fused projection leaves them: token, then (q, k, v), then head.
struct FusedCall {
  FusedCall(std::int64_t heads, std::int64_t tokens, std::int64_t first_query = 0)
      : heads_(heads), tokens_(tokens), fused(3 * heads * tokens * kDim) {
    fused.fill(static_cast<std::uint32_t>(tokens));
    const Shape stride{3 * heads * tokens * kDim, kDim, 3 * heads * kDim, 1};
    const auto part = [&](std::int64_t which, std::int64_t first) {
      auto* data = static_cast<std::uint16_t*>(fused.data()) + which * heads * kDim;
      return as_const(view_of(data + first * stride[2], {1, heads, tokens - first, kDim}, stride));
    };
    call.q = part(0, first_query);
    call.k = part(1, 0);
    call.v = part(2, 0);
  }

  /// The same values, one dense (tokens, heads, dim) tensor each.
  LongCall contiguous(DeviceArray& q, DeviceArray& k, DeviceArray& v) const {
    const auto dense = [&](const TensorView& from, DeviceArray& to) {
      const auto row = static_cast<std::size_t>(2 * heads_ * kDim);
      check(cudaMemcpy2D(to.data(), row, from.data, 3 * row, row,
                         static_cast<std::size_t>(from.tokens()), cudaMemcpyDeviceToDevice));
      return as_const(view_of(to.data(), from.shape, dense_strides(from.shape, Layout::kBSHD)));
    };
    return {dense(call.q, q), dense(call.k, k), dense(call.v, v), {}};
  }

  static constexpr std::int64_t kDim = 128;
  std::int64_t heads_, tokens_;
  DeviceArray fused;
  LongCall call;
};

/// Whether two device arrays of `count` elements hold the same bits.
bool same_on_device(const DeviceArray& a, const DeviceArray& b, std::int64_t count) {
  constexpr std::int64_t kPiece = 16 << 20;
  std::vector<std::uint16_t> x(kPiece), y(kPiece);
  for (std::int64_t first = 0; first < count; first += kPiece) {
    const auto bytes = static_cast<std::size_t>(2 * std::min(kPiece, count - first));
    check(cudaMemcpy(x.data(), static_cast<std::uint16_t*>(a.data()) + first, bytes,
                     cudaMemcpyDeviceToHost));
    check(cudaMemcpy(y.data(), static_cast<std::uint16_t*>(b.data()) + first, bytes,
                     cudaMemcpyDeviceToHost));
    if (std::memcmp(x.data(), y.data(), bytes) != 0) return false;
  }
  return true;
}

/// A fused view and its dense copies give the same bits; both outputs are dense.
void expect_fused_is_contiguous(std::int64_t heads, std::int64_t tokens, std::int64_t first_query,
                                const Recipe& recipe) {
  SCOPED_TRACE(testing::Message() << heads << " heads, " << tokens << " tokens");
  FusedCall fused(heads, tokens, first_query);
  const std::int64_t queries = tokens - first_query;
  const std::int64_t count = heads * queries * FusedCall::kDim;
  const std::int64_t all = heads * tokens * FusedCall::kDim;
  DeviceArray a(count), b(count), q(count), k(all), v(all);
  a.poison();
  b.poison();
  const Shape shape{1, heads, queries, FusedCall::kDim};
  fused.call.out = view_of(a.data(), shape, dense_strides(shape, Layout::kBSHD));
  LongCall dense = fused.contiguous(q, k, v);
  dense.out = view_of(b.data(), shape, dense_strides(shape, Layout::kBSHD));
  run_long(fused.call, recipe);
  run_long(dense, recipe);
  EXPECT_TRUE(same_on_device(a, b, count));
  for (const std::int64_t head : {std::int64_t{0}, heads - 1}) {
    const Metrics metrics = error_of(fused.call, head, {0, queries / 2, queries - 1});
    EXPECT_TRUE(metrics.finite);
    EXPECT_LE(metrics.rel_l2, class_of(recipe).rel_l2) << "head " << head;
  }
}

/// SIL-02: a token stride of 21,504 elements, with which offsets pass 2^31 from 99,865 tokens on.
TEST(CudaLong, SIL_02_FusedViewsEqualContiguousTensors) {
  VCATTN_NEEDS_HOPPER();
  for (const std::int64_t tokens : {99840, 99872, 110500}) {
    expect_fused_is_contiguous(56, tokens, 0, device_recipe("vc8"));
  }
}

/// SIL-03: offsets to 4.3e9 elements, past 2^32; the last 400 queries.
TEST(CudaLong, SIL_03_OffsetsBeyondFourBillion) {
  VCATTN_NEEDS_HOPPER();
  for (const char* name : {"vc8", "vc8-fast"}) {
    expect_fused_is_contiguous(56, 200064, 200064 - 400, recipe(name));
  }
}

/// SIL-01: no cliff at any length, and CRA-06: a joint sequence of video and text tokens.
TEST(CudaLong, SIL_01_NoLengthCliff) {
  VCATTN_NEEDS_HOPPER();
  const Recipe r = recipe("vc8");
  for (const std::int64_t tokens : {99864, 99872, 131072, 154000, 167000, 186000, 200064}) {
    SCOPED_TRACE(tokens);
    const DenseCall dense(4, tokens, tokens);
    run_long(dense.call, r);
    for (const std::int64_t head : {0, 3}) {
      const Metrics metrics = error_of(dense.call, head, {0, tokens / 2, tokens - 1});
      EXPECT_TRUE(metrics.finite);
      EXPECT_LE(metrics.rel_l2, class_of(r).rel_l2) << "head " << head;
    }
  }
}

TEST(CudaLong, CRA_06_JointSequence) {
  VCATTN_NEEDS_HOPPER();
  const Recipe r = recipe("vc8");
  const DenseCall dense(24, 118800 + 256, 118800 + 256);
  run_long(dense.call, r);
  for (const std::int64_t head : {0, 23}) {
    const Metrics metrics = error_of(dense.call, head, {0, 118799, 118800, 119055});
    EXPECT_TRUE(metrics.finite);
    EXPECT_LE(metrics.rel_l2, class_of(r).rel_l2) << "head " << head;
  }
}

/// CRA-07: fused views of 56 heads while other tensors hold 90 % of what is left of the memory.
TEST(CudaLong, CRA_07_LittleMemoryLeft) {
  VCATTN_NEEDS_HOPPER();
  std::size_t free = 0, all = 0;
  check(cudaMemGetInfo(&free, &all));
  constexpr std::size_t kNeeded = std::size_t{16} << 30;  // of the largest call and its copies
  const DeviceArray others(static_cast<std::int64_t>((free - free / 10 - kNeeded) / 2));
  for (std::int64_t tokens = 60000; tokens < 110000; tokens += 7919) {
    expect_fused_is_contiguous(56, tokens, tokens - 256, device_recipe("vc8"));
  }
}

/// CRA-12: 300,000 tokens of 64 heads, whose token numbers times the stride pass 2^31.
TEST(CudaLong, CRA_12_TokensTimesStrideBeyondTwoBillion) {
  VCATTN_NEEDS_HOPPER();
  expect_fused_is_contiguous(64, 300000, 300000 - 128, device_recipe("vc8"));
}

/// The first, middle and last row of every segment, in the first and the last head.
void expect_segments_in_class(const LongCall& call, const Recipe& recipe) {
  for (std::size_t i = 0; i + 1 < call.offsets.size(); ++i) {
    const LongCall segment = segment_of(call, i);
    const std::int64_t tokens = segment.q.tokens();
    for (const std::int64_t head : {std::int64_t{0}, call.q.heads() - 1}) {
      const Metrics metrics = error_of(segment, head, {0, tokens / 2, tokens - 1});
      EXPECT_TRUE(metrics.finite) << "segment " << i << " head " << head;
      EXPECT_LE(metrics.rel_l2, class_of(recipe).rel_l2) << "segment " << i << " head " << head;
    }
  }
}

/// CRA-05: packed totals around 16384, 32 heads over 4.
TEST(CudaLong, CRA_05_PackedTotals) {
  VCATTN_NEEDS_HOPPER();
  const Recipe r = recipe("vc8");
  for (const std::int32_t total : {16383, 16384, 65536}) {
    SCOPED_TRACE(total);
    DenseCall packed(32, total, total, 0.0F, 128, /*group=*/8);
    packed.call.offsets =
        offsets_of({total / 2, 1000, 77, total / 4, total - total / 2 - 1077 - total / 4});
    run_long(packed.call, r);
    expect_segments_in_class(packed.call, r);
  }
}

/// CRA-12: 300,000 packed tokens of 64 heads, (tokens, heads, dim) in memory: a token's offset is
/// 8192 times its number and passes 2^31 in the seventh segment of eight.
TEST(CudaLong, CRA_12_PackedTokensBeyondTwoBillion) {
  VCATTN_NEEDS_HOPPER();
  constexpr std::int64_t kTokens = 300000, kHeads = 64, kDim = 128;
  DeviceArray q(kTokens * kHeads * kDim), k(kTokens * kHeads * kDim), v(kTokens * kHeads * kDim),
      out(kTokens * kHeads * kDim);
  q.fill(1);
  k.fill(2);
  v.fill(3);
  out.poison();
  const Shape shape{1, kHeads, kTokens, kDim};
  const auto tensor = [&](const DeviceArray& array) {
    return view_of(array.data(), shape, dense_strides(shape, Layout::kBSHD));
  };
  LongCall call{as_const(tensor(q)), as_const(tensor(k)), as_const(tensor(v)), tensor(out)};
  call.offsets = offsets_of({75000, 37500, 37500, 1, 74999, 30000, 20000, 25000});
  for (const char* name : {"vc8", "vc8-fast"}) {
    out.poison();
    run_long(call, recipe(name));
    expect_segments_in_class(call, recipe(name));
  }
}

/// SIL-18: fifty runs, grouping included, give the same bits.
TEST(CudaLong, SIL_18_FiftyRunsGiveTheSameBits) {
  VCATTN_NEEDS_HOPPER();
  const DenseCall first(16, 8192, 8192);
  run_long(first.call, recipe("vc8"));
  DeviceArray again(16 * 8192 * 128);
  LongCall call = first.call;
  call.out.data = again.data();
  for (int run = 1; run < 50; ++run) {
    again.poison();
    run_long(call, recipe("vc8"));
    ASSERT_TRUE(same_on_device(first.out, again, 16 * 8192 * 128)) << "run " << run;
  }
}

}  // namespace
}  // namespace vcattn::test
