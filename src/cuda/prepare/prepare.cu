#include <algorithm>
#include <optional>

#include "core/validate.h"
#include "cuda/host/launch.cuh"
#include "cuda/prepare/prepare.h"
#include "cuda/prepare/shaping.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/prepare/values.cuh"
#include "cuda/sm90/layout.h"

namespace vcattn::cuda::prepare {
namespace {

constexpr int kGramShares = GramKernel<128, Converted>::kShares;

int divide_up(std::int64_t a, int b) { return static_cast<int>((a + b - 1) / b); }

template <class T>
T* at(std::byte* base, std::size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

/// Tiles of the sample of up to `rows` rows: a few may be all taken where one in 16 of many is.
int sample_tiles(int rows) {
  const int all = std::min(rows, numerics::kSampledFromRows - 1);
  return divide_up(std::max(numerics::row_sample(rows, true).count, all), kTileRows);
}

/// `view` as the kernels of native dimension `dim` read it.
Input input_of(const TensorView& view, const std::optional<Rope>& rope, int dim) {
  Input in{InputView(view)};
  const auto is_aligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
  };
  const std::int64_t strides = view.stride[0] | view.stride[1] | view.stride[2];
  const std::int64_t row_bytes = view.stride[2] * static_cast<std::int64_t>(size_bytes(view.dtype));
  in.row_bytes = static_cast<int>(row_bytes);
  in.aligned = in.row_bytes == row_bytes && view.dim() == dim && view.stride[3] == 1 &&
               strides % kPacket == 0 && is_aligned(view.data);
  if (!rope) return in;
  in.cos = rope->cos;
  in.sin = rope->sin;
  in.pairs = static_cast<int>(rope->pairs);
  in.interleaved = rope->layout == RopeLayout::kInterleaved;
  in.aligned = in.aligned && in.pairs % kPacket == 0 && is_aligned(in.cos) && is_aligned(in.sin);
  return in;
}

/// Calls with_source(Source{}) for the way V is read.
template <class WithSource>
void dispatch_values(const Input& in, const WithSource& with_source) {
  if (!in.aligned || in.cos != nullptr || in.view.dtype == DType::kF32) {
    with_source(Converted{});
  } else if (in.view.dtype == DType::kBF16) {
    with_source(Packed<Bf16>{});
  } else {
    with_source(Packed<F16>{});
  }
}

/// The same for Q and K, which may have rotary tables.
template <class WithSource>
void dispatch_source(const Input& in, const WithSource& with_source) {
  if (in.aligned && in.cos != nullptr && in.view.dtype != DType::kF32) {
    with_source(Rotated{});
  } else {
    dispatch_values(in, with_source);
  }
}

template <int kDim>
struct Pass {
  const Arguments& a;
  const Shape& shape;
  const Workspace& w;
  const Options& options;
  std::byte* base;
  cudaStream_t stream;

  const Input q = input_of(a.q, a.q_rope, kDim), k = input_of(a.k, a.k_rope, kDim),
              v = input_of(a.v, std::nullopt, kDim);

  dim3 grid(int tiles, int heads) const {
    return dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(heads),
                static_cast<unsigned>(shape.batch));
  }

  void sums(const Input& in, int rows, int heads, const std::int32_t* lengths, std::size_t sums_at,
            const char* what) const {
    const int tiles = sample_tiles(rows);
    dispatch_source(in, [&](auto source) {
      launch<TileSumsKernel<kDim, decltype(source)>>(
          grid(tiles, heads), {in, lengths, tiles, at<float>(base, sums_at)}, stream, what);
    });
  }

  void statistics() const {
    if (options.balance) sums(q, shape.sq, shape.q_heads, nullptr, w.q_sums, "query sums");
    sums(k, shape.skv, shape.kv_heads, a.key_lengths, w.k_sums, "key sums");
    using Channels = ChannelStatisticsKernel<kDim>;
    launch<Channels>(
        dim3(static_cast<unsigned>(shape.kv_heads * Channels::kSlices),
             static_cast<unsigned>(shape.batch)),
        {at<float>(base, w.k_sums), options.balance ? at<float>(base, w.q_sums) : nullptr,
         a.key_lengths, sample_tiles(shape.skv), sample_tiles(shape.sq), shape.group(),
         shape.kv_heads, shape.sq, shape.skv, at<float>(base, w.mean), at<float>(base, w.balance),
         at<float>(base, w.inverse_balance), at<float>(base, w.shift), key_maximum(),
         value_maximum()},
        stream, "channel statistics");
  }

  /// Feedback for the rounding of K, from Q, and of Q, from K.
  void feedback() const {
    const auto* shift = at<float>(base, w.shift);
    gram(q, nullptr, at<float>(base, w.balance), nullptr, shape.group(), 0, "query products");
    gram(k, a.key_lengths, at<float>(base, w.inverse_balance), shift, 1, 1, "key products");
    launch<FeedbackKernel<kDim, kGramShares>>(
        dim3(static_cast<unsigned>(2 * kv_heads())),
        {at<float>(base, w.grams), at<Feedback<kDim>>(base, w.feedback)}, stream, "feedback");
  }

  void gram(const Input& in, const std::int32_t* lengths, const float* factor, const float* shift,
            int group, int operand, const char* what) const {
    dispatch_source(in, [&](auto source) {
      launch<GramKernel<kDim, decltype(source)>>(
          grid(kGramShares, shape.kv_heads),
          {in, lengths, factor, shift, group,
           at<float>(base, w.grams) +
               std::int64_t{operand} * kv_heads() * kGramShares * kDim * kDim},
          stream, what);
    });
  }

  template <class Format, class Rounding>
  void keys() const {
    dispatch_source(k, [&](auto source) {
      using Source = decltype(source);
      const dim3 blocks = grid(shape.k_tiles * kTileRows / kBlockRows, shape.kv_heads);
      const auto* factor = at<float>(base, w.inverse_balance);
      const auto* shift = at<float>(base, w.shift);
      launch<KeyMaximumKernel<kDim, Source>>(
          blocks, {k, a.key_lengths, factor, shift, key_maximum()}, stream, "key maximum");
      launch<QuantizeKeysKernel<kDim, Source, Format, Rounding>>(
          blocks,
          {k, a.key_lengths, options.order, factor, shift, key_maximum(), feedback_of(0),
           shape.k_tiles, at<std::uint8_t>(base, w.k)},
          stream, "quantize keys");
    });
  }

  template <class Format, class Rounding>
  void queries() const {
    dispatch_source(q, [&](auto source) {
      launch<QuantizeQueriesKernel<kDim, decltype(source), Format, Rounding>>(
          grid(shape.q_tiles * kTileRows / kBlockRows, shape.q_heads),
          {q, at<float>(base, w.mean), at<float>(base, w.balance), key_maximum(), feedback_of(1),
           options.score_scale, shape.group(), shape.q_tiles, at<std::uint8_t>(base, w.q),
           at<float>(base, w.row_scale), a.lse ? at<float>(base, w.lse_shift) : nullptr},
          stream, "quantize queries");
    });
  }

  template <class Rounding>
  void scores() const {
    if (options.int8_scores) {
      keys<Int8Format, Rounding>();
      queries<Int8Format, Rounding>();
    } else {
      keys<E4m3Format, Rounding>();
      queries<E4m3Format, Rounding>();
    }
  }

  void values() const {
    const ValueParams params{v,
                             a.key_lengths,
                             options.order,
                             options.demean,
                             options.refit,
                             shape.k_tiles,
                             shape.mean_groups,
                             at<float>(base, w.block_mean),
                             value_maximum(),
                             at<std::uint8_t>(base, w.v),
                             at<float>(base, w.means),
                             at<float>(base, w.value_scale),
                             at<std::uint8_t>(base, w.ones)};
    dispatch_values(v, [&](auto source) {
      using Source = decltype(source);
      const dim3 tiles = grid(shape.k_tiles, shape.kv_heads);
      launch<ValueStatisticsKernel<kDim, Source>>(tiles, params, stream, "value statistics");
      launch<QuantizeValuesKernel<kDim, Source>>(tiles, params, stream, "quantize values");
    });
  }

  void run() const {
    statistics();
    if (options.shaping) {
      feedback();
      scores<Shaped>();
    } else {
      scores<ToNearest>();
    }
    values();
  }

 private:
  std::uint32_t* key_maximum() const { return at<std::uint32_t>(base, w.key_maximum); }
  std::uint32_t* value_maximum() const { return at<std::uint32_t>(base, w.value_maximum); }
  int kv_heads() const { return shape.batch * shape.kv_heads; }
  /// Of K (0) or Q (1).
  const std::byte* feedback_of(int operand) const {
    return base + w.feedback + sizeof(Feedback<kDim>) * operand * kv_heads();
  }
};

}  // namespace

Shape shape_of(const Arguments& a) {
  Shape s;
  s.batch = static_cast<int>(a.q.batch());
  s.q_heads = static_cast<int>(a.q.heads());
  s.kv_heads = static_cast<int>(a.k.heads());
  s.sq = static_cast<int>(a.q.tokens());
  s.skv = static_cast<int>(a.k.tokens());
  s.dim = a.q.dim() <= 64 ? 64 : 128;
  s.q_tiles = divide_up(s.sq, sm90::kTileQueries);
  s.k_tiles = divide_up(s.skv, sm90::kTileKeys);
  s.mean_groups = divide_up(s.k_tiles, sm90::kMeanGroup);
  return s;
}

Options options_of(const Arguments& arguments, const Recipe& recipe) {
  Options options;
  options.int8_scores = recipe.qk == QkFormat::kInt8;
  options.balance = recipe.qk_balance;
  options.shaping = recipe.qk_shaping;
  options.demean = recipe.v_smooth != VSmooth::kOff;
  options.refit = recipe.v_mean_refit;
  options.score_scale = effective_scale(arguments);
  return options;
}

Workspace plan_workspace(const Shape& s, bool lse, bool shaping) {
  Workspace w;
  const auto take = [&w](std::size_t bytes) {
    const std::size_t offset = w.bytes;
    w.bytes += (bytes + 255) / 256 * 256;
    return offset;
  };
  const std::size_t q_heads = static_cast<std::size_t>(s.batch) * s.q_heads;
  const std::size_t kv_heads = static_cast<std::size_t>(s.batch) * s.kv_heads;
  const std::size_t dim = static_cast<std::size_t>(s.dim), row = dim * sizeof(float);
  const std::size_t q_rows = q_heads * s.q_tiles * kTileRows;
  const std::size_t k_rows = kv_heads * s.k_tiles * kTileRows;
  w.q = take(q_rows * dim);
  w.k = take(k_rows * dim);
  w.v = take(k_rows * dim);
  w.row_scale = take(q_rows * 2 * sizeof(float));
  if (lse) w.lse_shift = take(q_rows * sizeof(float));
  w.means = take(kv_heads * s.mean_groups * sm90::kMeanGroup * row);
  w.value_scale = take(kv_heads * row);
  w.ones = take(static_cast<std::size_t>(s.batch) * sm90::kOnesBytes);
  w.block_mean = take(kv_heads * s.k_tiles * row);
  w.k_sums = take(kv_heads * sample_tiles(s.skv) * 2 * row);
  w.q_sums = take(q_heads * sample_tiles(s.sq) * 2 * row);
  w.mean = take(kv_heads * row);
  w.balance = take(kv_heads * row);
  w.inverse_balance = take(kv_heads * row);
  w.shift = take(kv_heads * row);
  w.key_maximum = take(kv_heads * sizeof(std::uint32_t));
  w.value_maximum = take(kv_heads * dim * sizeof(std::uint32_t));
  if (shaping) {
    w.grams = take(2 * kv_heads * kGramShares * dim * row);
    w.feedback = take(2 * kv_heads * (s.dim == 64 ? sizeof(Feedback<64>) : sizeof(Feedback<128>)));
  }
  return w;
}

sm90::AttentionParams prepare(const Arguments& a, const Shape& s, const Workspace& w,
                              const Options& options, std::byte* base, cudaStream_t stream) {
  if (s.dim == 64) {
    Pass<64>{a, s, w, options, base, stream}.run();
  } else {
    Pass<128>{a, s, w, options, base, stream}.run();
  }
  sm90::AttentionParams p;
  p.q = at<std::uint8_t>(base, w.q);
  p.k = at<std::uint8_t>(base, w.k);
  p.v = at<std::uint8_t>(base, w.v);
  p.row_scale = at<float>(base, w.row_scale);
  p.means = at<float>(base, w.means);
  p.value_scale = at<float>(base, w.value_scale);
  p.ones = at<std::uint8_t>(base, w.ones);
  p.key_lengths = a.key_lengths;
  p.q_heads = s.q_heads;
  p.group = s.group();
  p.sq = s.sq;
  p.skv = s.skv;
  p.q_tiles = s.q_tiles;
  p.k_tiles = s.k_tiles;
  p.mean_groups = s.mean_groups;
  p.out = OutputView(a.out);
  if (a.lse) {
    p.lse = a.lse->data;
    for (int i = 0; i < 3; ++i) p.lse_stride[i] = a.lse->stride[i];
    p.lse_shift = at<float>(base, w.lse_shift);
  }
  return p;
}

}  // namespace vcattn::cuda::prepare
