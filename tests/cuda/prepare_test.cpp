// Preparation on the GPU, stage by stage: each stage of the CPU's specification is fed what the
// GPU's earlier stages made, so that codes and scales must be equal and only sums are bounded.
#include "cuda/prepare/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/validate.h"
#include "cpu/attend.h"
#include "cpu/prepare.h"
#include "cpu/shaping.h"
#include "cuda/device_call.h"
#include "cuda/prepare/feedback.h"
#include "cuda/rope_tables.h"
#include "cuda/sm90/layout.h"

namespace vcattn::test {
namespace {

namespace prepare = cuda::prepare;
namespace sm90 = cuda::sm90;

struct Case {
  const char* name;
  Setup setup;
  bool reversed = false;  ///< keys are processed last to first
  std::optional<RopeLayout> rope = std::nullopt;
  std::int64_t pairs = 0;  ///< that are rotated
};

/// N(0, 1) in channels of unequal magnitude, 1.3 to 21: something for the balance to level.
Values uneven(std::uint32_t seed) {
  return [values = normal(seed)](const Index& at) {
    return std::ldexp(1.3F * values(at), static_cast<int>(at.d % 5));
  };
}

constexpr RopeLayout kPairs = RopeLayout::kInterleaved, kHalves = RopeLayout::kHalf;

std::vector<Case> cases() {
  std::vector<Case> all{
      {"OneTile", {.queries = 128, .keys = 128}},
      {"Ragged", {.q_heads = 2, .queries = 300, .keys = 515}},
      {"Permuted", {.queries = 70, .keys = 387}, true},
      {"GroupedHeads", {.batch = 2, .q_heads = 4, .kv_heads = 2, .queries = 130, .keys = 200}},
      {"Dim64", {.q_heads = 2, .queries = 100, .keys = 300, .dim = 64}},
      {"Dim72", {.queries = 100, .keys = 300, .dim = 72}},
      {"Sampled", {.q_heads = 2, .kv_heads = 1, .queries = 8320, .keys = 8200, .dim = 64}},
      {"OneKey", {.queries = 3, .keys = 1}},
      {"Float32", {.queries = 90, .keys = 260, .dtype = DType::kF32}},
      {"TokensBeforeHeads", {.q_heads = 2, .queries = 140, .keys = 200, .layout = Layout::kBSHD}},
      {"RopePairs", {.q_heads = 2, .queries = 150, .keys = 300}, false, kPairs, 64},
      {"RopeHalves", {.queries = 150, .keys = 300}, true, kHalves, 64},
      {"RopeFewPairs", {.queries = 20, .keys = 140}, false, kPairs, 11},
      {"RopeFewHalves", {.queries = 20, .keys = 140}, true, kHalves, 24},
      {"RopeFloat16", {.queries = 60, .keys = 70, .dtype = DType::kF16}, false, kHalves, 64},
      {"RopeFloat32", {.queries = 60, .keys = 70, .dtype = DType::kF32}, false, kPairs, 64},
      {"RopeDim64", {.queries = 140, .keys = 200, .dim = 64}, false, kHalves, 32},
      {"RopeDim72", {.queries = 60, .keys = 150, .dim = 72}, false, kHalves, 36}};
  for (Case& one : all) one.setup.k = uneven(2);
  return all;
}

/// Rotary tables on the device.
struct DeviceTables {
  explicit DeviceTables(const RopeTables& host)
      : cos(host.cos.data(), host.cos.size() * sizeof(float)),
        sin(host.sin.data(), host.sin.size() * sizeof(float)) {}
  DeviceBytes cos, sin;
};

/// Everything preparation wrote, on the host.
struct Prepared {
  Prepared(const Inputs& inputs, const Case& test, bool int8_scores = true, bool shaping = false)
      : call(inputs.arguments()),
        q_tables(call.q.tokens(), test.pairs, 0.0),
        k_tables(call.k.tokens(), test.pairs, 0.5),
        device_q(call.q.data, bytes_of(call.q)),
        device_k(call.k.data, bytes_of(call.k)),
        device_v(call.v.data, bytes_of(call.v)) {
    std::vector<std::int32_t> keys(static_cast<std::size_t>(call.k.tokens()));
    std::iota(keys.begin(), keys.end(), 0);
    if (test.reversed) std::reverse(keys.begin(), keys.end());
    order = keys;
    std::vector<std::int32_t> all;
    for (std::int64_t i = 0; i < call.k.batch() * call.k.heads(); ++i) {
      all.insert(all.end(), keys.begin(), keys.end());
    }
    const DeviceBytes device_order(all.data(), all.size() * sizeof(std::int32_t));

    call.q.data = device_q.data();
    call.k.data = device_k.data();
    call.v.data = device_v.data();
    call.out = {nullptr, DType::kF32, call.q.shape, {0, 0, 0, 1}};
    const DeviceTables device_q_tables(q_tables), device_k_tables(k_tables);
    if (test.rope) {
      call.q_rope = on_device(q_tables.rope(*test.rope), device_q_tables);
      call.k_rope = on_device(k_tables.rope(*test.rope), device_k_tables);
    }
    shape = prepare::shape_of(call);
    workspace = prepare::plan_workspace(shape, false, shaping);
    bytes.assign(workspace.bytes, std::byte{0xFF});
    const DeviceBytes base(bytes.data(), bytes.size());
    prepare::Options options;
    options.int8_scores = int8_scores;
    options.shaping = shaping;
    options.score_scale = effective_scale(call);
    options.order =
        test.reversed ? reinterpret_cast<const std::int32_t*>(device_order.data()) : nullptr;
    prepare::prepare(call, shape, workspace, options, base.data(), nullptr);
    base.copy_back(bytes.data());
    call = inputs.arguments();  // as the CPU reads it
    if (test.rope) {
      call.q_rope = q_tables.rope(*test.rope);
      call.k_rope = k_tables.rope(*test.rope);
    }
  }

  static Rope on_device(Rope rope, const DeviceTables& tables) {
    rope.cos = reinterpret_cast<const float*>(tables.cos.data());
    rope.sin = reinterpret_cast<const float*>(tables.sin.data());
    return rope;
  }

  template <class T>
  const T* at(std::size_t offset) const {
    return reinterpret_cast<const T*>(bytes.data() + offset);
  }
  std::vector<float> channels(std::size_t offset, std::int64_t kv_head) const {
    const float* data = at<float>(offset) + kv_head * shape.dim;
    return {data, data + shape.dim};
  }
  static std::size_t bytes_of(const TensorView& view) {
    return static_cast<std::size_t>(view.shape[0] * view.shape[1] * view.shape[2] * view.shape[3]) *
           size_bytes(view.dtype);
  }

  Arguments call;
  RopeTables q_tables, k_tables;
  DeviceBytes device_q, device_k, device_v;
  std::vector<std::int32_t> order;
  prepare::Shape shape;
  prepare::Workspace workspace;
  std::vector<std::byte> bytes;
};

cpu::Rows load(const Prepared& p, const TensorView& view, std::int64_t b, std::int64_t h,
               const std::optional<Rope>& rope = std::nullopt) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(view.tokens()));
  std::iota(tokens.begin(), tokens.end(), 0);
  return cpu::load_rows(view, b, h, tokens, rope, p.shape.dim);
}

int score_offset(int dim, int row, int channel) {
  return dim == 128 ? sm90::score_operand_offset<128>(row, channel)
                    : sm90::score_operand_offset<64>(row, channel);
}

/// Codes of an operand against the image of a head; `image` points to its first tile.
void expect_codes(const cpu::QkOperand& operand, const std::uint8_t* image, int dim) {
  for (std::int64_t i = 0; i < operand.values.count; ++i) {
    for (int c = 0; c < dim; ++c) {
      const std::int64_t tile = i / 128 * 128 * dim;
      ASSERT_EQ(image[tile + score_offset(dim, static_cast<int>(i % 128), c)],
                operand.codes[i * dim + c])
          << "row " << i << " channel " << c;
    }
  }
}

/// Mean square of each channel of the query heads of a KV head.
std::vector<double> query_energy(const Prepared& p, std::int64_t b, std::int64_t kv_head) {
  std::vector<double> energy(static_cast<std::size_t>(p.shape.dim), 0.0);
  for (int g = 0; g < p.shape.group(); ++g) {
    const cpu::Rows rows = load(p, p.call.q, b, kv_head * p.shape.group() + g, p.call.q_rope);
    const auto sample = numerics::row_sample(p.shape.sq, true);
    const std::vector<double> of_head = cpu::channel_energy(rows, sample);
    for (std::size_t c = 0; c < energy.size(); ++c) energy[c] += of_head[c] / p.shape.group();
  }
  return energy;
}

/// The feedback of operand 0 (K) or 1 (Q) of a KV head, as the CPU has it.
template <int kDim>
cpu::Feedback feedback_of(const Prepared& p, int operand, std::int64_t head) {
  using Image = prepare::Feedback<kDim>;
  const std::int64_t heads = p.shape.batch * p.shape.kv_heads;
  const Image& image = p.at<Image>(p.workspace.feedback)[operand * heads + head];
  cpu::Feedback feedback{kDim, std::vector<std::int8_t>(kDim * kDim, 0), {}};
  for (int c = 0; c < kDim; ++c) {
    feedback.scales.push_back(image.scale[c]);
    for (int i = c / 4 * 4; i < kDim; ++i) {
      const std::uint32_t word = image.factor[Image::at(c / 4, i / 4)][c % 4];
      feedback.factors[c * kDim + i] = static_cast<std::int8_t>(word >> (8 * (i % 4)) & 0xFF);
    }
  }
  return feedback;
}

cpu::Feedback feedback_of(const Prepared& p, int operand, std::int64_t head) {
  return p.shape.dim == 128 ? feedback_of<128>(p, operand, head)
                            : feedback_of<64>(p, operand, head);
}

/// Factors of the GPU against those of the CPU from the same rows: the GPU's Gram matrix is of rows
/// rounded to bfloat16, so that an element is off by up to 2^-8 of its channels', at random, and
/// factors by some 0.01.
void expect_near(const cpu::Feedback& gpu, const cpu::Feedback& cpu) {
  for (std::int64_t c = 0; c < cpu.dim; ++c) {
    const double scale = cpu.scales[c];
    ASSERT_NEAR(127.0 * gpu.scales[c], 127.0 * scale, 0.01 + 0.05 * 127.0 * scale) << c;
    for (std::int64_t i = 0; i < cpu.dim; ++i) {
      ASSERT_NEAR(gpu.factors[c * cpu.dim + i] * double{gpu.scales[c]},
                  cpu.factors[c * cpu.dim + i] * scale, i > c ? 0.01 + 6.0 * scale : 0.0)
          << c << " " << i;
    }
  }
}

class DevicePreparation : public testing::TestWithParam<Case> {};

/// Stages from the mean key to the codes of Q and K, for INT8 or for E4M3 scores.
void expect_codes_and_scales_of_the_cpu(const Case& test, bool int8_scores, bool shaping = false) {
  const Inputs inputs(test.setup);
  const Prepared p(inputs, test, int8_scores, shaping);
  const int dim = p.shape.dim;
  const float unit = cpu::codes_per_score(p.call);
  for (std::int64_t head = 0; head < p.shape.batch * p.shape.kv_heads; ++head) {
    const std::int64_t b = head / p.shape.kv_heads, h = head % p.shape.kv_heads;

    // The mean key, a sum in another order: bounded.
    cpu::Rows keys = load(p, p.call.k, b, h, p.call.k_rope);
    const std::vector<float> mean = p.channels(p.workspace.mean, head);
    const auto key_sample = numerics::row_sample(p.shape.skv, true);
    const std::vector<float> cpu_mean = cpu::mean_row(keys, key_sample);
    for (int c = 0; c < dim; ++c) ASSERT_NEAR(mean[c], cpu_mean[c], 1e-6) << c;

    // K under the GPU's mean and balance: equal codes.
    cpu::subtract(keys, mean);
    const std::vector<float> inverse = p.channels(p.workspace.inverse_balance, head);
    const std::vector<float> balance = p.channels(p.workspace.balance, head);
    EXPECT_EQ(balance,
              cpu::balance_factors(query_energy(p, b, h), cpu::channel_energy(keys, key_sample)));
    for (int c = 0; c < dim; ++c) ASSERT_EQ(balance[c] * inverse[c], 1.0F);
    cpu::scale_channels(keys, inverse);
    cpu::rotate_hadamard(keys);
    cpu::Feedback k_feedback, q_feedback;
    if (shaping) {
      k_feedback = feedback_of(p, 0, head);
      q_feedback = feedback_of(p, 1, head);
      std::vector<double> q_gram, k_gram;
      for (int g = 0; g < p.shape.group(); ++g) {
        cpu::Rows rows = load(p, p.call.q, b, h * p.shape.group() + g, p.call.q_rope);
        cpu::scale_channels(rows, balance);
        cpu::rotate_hadamard(rows);
        cpu::add_gram(rows, numerics::gram_sample(p.shape.sq, true), q_gram);
      }
      cpu::add_gram(keys, numerics::gram_sample(p.shape.skv, true), k_gram);
      expect_near(k_feedback, cpu::make_feedback(q_gram, dim));
      expect_near(q_feedback, cpu::make_feedback(k_gram, dim));
    }
    const cpu::Feedback* shape_k = shaping ? &k_feedback : nullptr;
    const cpu::Feedback* shape_q = shaping ? &q_feedback : nullptr;
    keys = cpu::permute(keys, p.order);
    const cpu::QkOperand k =
        int8_scores ? cpu::quantize_rows(keys, QkFormat::kInt8, 0, Nvfp4Scale::kSix, shape_k)
                    : cpu::quantize_keys_half(keys, shape_k);
    expect_codes(k, p.at<std::uint8_t>(p.workspace.k) + head * p.shape.k_tiles * 128 * dim, dim);

    // Q of every query head of the group: equal codes and multipliers.
    for (int g = 0; g < p.shape.group(); ++g) {
      const std::int64_t q_head = b * p.shape.q_heads + h * p.shape.group() + g;
      cpu::Rows rows = load(p, p.call.q, b, h * p.shape.group() + g, p.call.q_rope);
      cpu::scale_channels(rows, balance);
      cpu::rotate_hadamard(rows);
      const cpu::QkOperand q =
          int8_scores ? cpu::quantize_rows_windowed(rows, unit, k.row_scales[0], shape_q)
                      : cpu::quantize_queries_half(rows, unit, k.row_scales[0], shape_q);
      const std::int64_t first = q_head * p.shape.q_tiles * 128;
      expect_codes(q, p.at<std::uint8_t>(p.workspace.q) + first * dim, dim);
      for (std::int64_t i = 0; i < rows.count; ++i) {
        ASSERT_EQ(p.at<float>(p.workspace.row_scale)[(first + i) * 2], q.row_scales[i]) << i;
      }
    }
  }
}

TEST_P(DevicePreparation, Int8CodesAndScalesAreTheCpus) {
  VCATTN_NEEDS_HOPPER();
  expect_codes_and_scales_of_the_cpu(GetParam(), true);
}

TEST_P(DevicePreparation, E4m3CodesAreTheCpus) {
  VCATTN_NEEDS_HOPPER();
  expect_codes_and_scales_of_the_cpu(GetParam(), false);
}

TEST_P(DevicePreparation, ShapedCodesAreTheCpus) {
  VCATTN_NEEDS_HOPPER();
  for (const bool int8_scores : {true, false}) {
    SCOPED_TRACE(int8_scores ? "INT8" : "E4M3");
    expect_codes_and_scales_of_the_cpu(GetParam(), int8_scores, true);
  }
}

TEST_P(DevicePreparation, ValuesAndMeansAreTheCpus) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs(GetParam().setup);
  const Prepared p(inputs, GetParam());
  const int dim = p.shape.dim;
  for (std::int64_t head = 0; head < p.shape.batch * p.shape.kv_heads; ++head) {
    cpu::Rows values =
        cpu::permute(load(p, p.call.v, head / p.shape.kv_heads, head % p.shape.kv_heads), p.order);
    cpu::Rows means = cpu::block_means(values);
    cpu::subtract_block_means(values, means);
    const cpu::ValueOperand v =
        cpu::quantize_values(values, VFormat::kE4M3Channel, Nvfp4Scale::kSix);
    cpu::refit_means(means, values, v.values);

    const float* scale = p.at<float>(p.workspace.value_scale) + head * dim;
    const std::uint8_t* image =
        p.at<std::uint8_t>(p.workspace.v) + head * p.shape.k_tiles * 128 * dim;
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < p.shape.k_tiles * 128; ++i) {
      for (int c = 0; c < dim; ++c) {
        const std::uint8_t code =
            image[i / 128 * 128 * dim + sm90::value_offset(c, static_cast<int>(i % 128))];
        if (i >= values.count) {
          ASSERT_EQ(code & 0x7F, 0) << "padding " << i;
        } else {
          different += code != v.codes[i * dim + c] ? 1 : 0;
        }
      }
    }
    // Block means are sums in another order: where one rounds to the other bf16, a column of 128
    // residuals moves. It must stay the exception.
    EXPECT_LE(different, values.count * dim / 50);
    for (int c = 0; c < dim; ++c) {
      // Means are stored in units of the scale, so the GPU keeps it from vanishing beside them;
      // that shows only where there is no residual at all.
      const bool no_residual = v.channel_scales[c] < 1e-30F;
      ASSERT_NEAR(scale[c], v.channel_scales[c], no_residual ? 1e-8F : 2e-3F * scale[c]) << c;
    }

    // The restored mean, in units of the channel's scale and rounded to tf32.
    for (std::int64_t t = 0; t < means.count; ++t) {
      const float* group =
          p.at<float>(p.workspace.means) + (head * p.shape.mean_groups + t / 8) * 8 * dim;
      for (int c = 0; c < dim; ++c) {
        const float restored = group[sm90::mean_offset(c, static_cast<int>(t % 8))] * scale[c];
        ASSERT_NEAR(restored, means.row(t)[c], 1e-3F * std::abs(means.row(t)[c]) + 2e-3F) << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, DevicePreparation, testing::ValuesIn(cases()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace vcattn::test
