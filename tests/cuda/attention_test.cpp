// Whole calls on the GPU: against float64, and against the CPU backend, which is the specification.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "bug_cases/tolerance.h"
#include "cuda/device_call.h"

namespace vcattn::test {
namespace {

struct Case {
  const char* name;
  Setup setup;
  std::vector<std::int32_t> key_lengths = {};
};

std::vector<Case> cases() {
  return {
      {"OneByOne", {.queries = 1, .keys = 1}},
      {"FewKeys", {.queries = 5, .keys = 3}},
      {"OneShortOfATile", {.queries = 127, .keys = 127}},
      {"OneTile", {.queries = 128, .keys = 128}},
      {"OneMoreThanATile", {.queries = 129, .keys = 129}},
      {"Ragged", {.q_heads = 2, .queries = 300, .keys = 515}},
      {"ManyTiles", {.q_heads = 2, .queries = 256, .keys = 1664}},
      {"GroupEndsExactly", {.queries = 64, .keys = 2048}},
      {"GroupEndsPlusOne", {.queries = 64, .keys = 2049}},
      {"GroupEndsPlusTile", {.queries = 64, .keys = 1152}},
      {"CrossAttention", {.batch = 2, .q_heads = 2, .queries = 40, .keys = 777}},
      {"GroupedHeads", {.batch = 2, .q_heads = 6, .kv_heads = 2, .queries = 130, .keys = 400}},
      {"OneQuery", {.q_heads = 3, .queries = 1, .keys = 1000}},
      {"Dim64", {.q_heads = 2, .queries = 300, .keys = 1300, .dim = 64}},
      {"Dim40", {.q_heads = 2, .queries = 70, .keys = 300, .dim = 40}},
      {"Dim96", {.q_heads = 2, .queries = 70, .keys = 300, .dim = 96}},
      {"Dim8", {.queries = 70, .keys = 300, .dim = 8}},
      {"Float16", {.queries = 200, .keys = 700, .dtype = DType::kF16}},
      {"Float32", {.queries = 200, .keys = 700, .dtype = DType::kF32}},
      {"TokensBeforeHeads",
       {.batch = 2, .q_heads = 3, .queries = 150, .keys = 333, .layout = Layout::kBSHD}},
      {"KeyLengths", {.batch = 5, .q_heads = 2, .queries = 90, .keys = 700}, {700, 1, 128, 0, 389}},
      {"Scale", {.queries = 130, .keys = 900, .scale = 0.03F}},
  };
}

class DeviceShapes : public testing::TestWithParam<Case> {};

TEST_P(DeviceShapes, MatchFloat64AndTheCpuBackend) {
  VCATTN_NEEDS_HOPPER();
  const Case& test = GetParam();
  const Inputs inputs(test.setup);
  Arguments host = inputs.arguments();
  const DeviceOptions options{.key_lengths = test.key_lengths};
  host.key_lengths = test.key_lengths.empty() ? nullptr : test.key_lengths.data();
  const Reference reference = referee(host);
  for (const char* name : {"vc8", "vc8-fast", "vc8-shaped", "vc8-exp"}) {
    SCOPED_TRACE(name);
    const Recipe recipe = device_recipe(name);
    const Outcome gpu = run_on_device(host, recipe, options);
    const Outcome cpu = run_on_host(host, recipe, options);
    const Metrics on_gpu = compare(gpu, reference), on_cpu = compare(cpu, reference);
    EXPECT_TRUE(on_gpu.finite);
    const bool fast = recipe.qk == QkFormat::kE4M3;
    // Few keys or channels leave the errors of two quantizations nothing to average over.
    const double slack = test.setup.keys < 64 || test.setup.dim < 64 ? 0.012 : 0.003;
    EXPECT_LE(on_gpu.rel_l2, on_cpu.rel_l2 * 1.05 + slack) << "cpu " << on_cpu.rel_l2;
    EXPECT_LE(on_gpu.rel_l2, fast ? 0.12 : 0.075);
    EXPECT_LE(on_gpu.lse_max_abs, fast ? 0.1 : 0.06)
        << "cpu " << on_cpu.lse_max_abs << " dim " << test.setup.dim;
    std::printf("  %-20s %-9s gpu %.4f cpu %.4f  lse gpu %.4f cpu %.4f\n", test.name, name,
                on_gpu.rel_l2, on_cpu.rel_l2, on_gpu.lse_max_abs, on_cpu.lse_max_abs);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceShapes, testing::ValuesIn(cases()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

/// The largest float16 everywhere: the block mean rounds up to 65536 and what is restored is a hair
/// off, so the output must be kept inside the dtype. Strided too, which is another store.
TEST(CudaAttention, FiniteValuesStayFiniteInFloat16) {
  VCATTN_NEEDS_HOPPER();
  for (const std::int64_t dim : {128, 72}) {
    const Inputs inputs(
        {.queries = 70, .keys = 300, .dim = dim, .dtype = DType::kF16, .v = constant(65504.0F)});
    for (const char* name : {"vc8", "vc8-fast", "vc8-shaped"}) {
      const Outcome gpu = run_on_device(inputs.arguments(), device_recipe(name));
      for (std::int64_t s = 0; s < 70; ++s) {
        for (std::int64_t c = 0; c < dim; ++c) {
          ASSERT_NEAR(gpu.out.get(0, 0, s, c), 65504.0F, 256.0F) << name << " " << s << " " << c;
        }
      }
    }
  }
}

/// Score deviations from flat to one-hot: the multiplier of every row follows the data.
TEST(CudaAttention, SharpHeads) {
  VCATTN_NEEDS_HOPPER();
  for (const float deviation : {0.01F, 0.3F, 1.0F, 3.0F, 8.0F, 30.0F}) {
    SCOPED_TRACE(deviation);
    const Inputs inputs(
        test::Setup{.queries = 200, .keys = 1500, .q = affine(normal(1), deviation)});
    const Arguments host = inputs.arguments();
    const Reference reference = referee(host);
    for (const char* name : {"vc8", "vc8-fast", "vc8-shaped", "vc8-exp"}) {
      Recipe recipe = device_recipe(name);
      // At some of these deviations every channel's balance is a coin toss between two powers of
      // two, which the GPU takes from a sample of the rows.
      recipe.qk_balance = false;
      expect_errors_of_the_cpu(host, recipe, reference, "deviation " + std::to_string(deviation));
    }
  }
}

/// Scores of hundreds of octaves: the reference of the sums has to move.
TEST(CudaAttention, HugeScores) {
  VCATTN_NEEDS_HOPPER();
  const auto along = [](float factor) {
    return
        [factor](const Index& at) { return at.d == 0 ? factor * static_cast<float>(at.s) : 0.01F; };
  };
  const Inputs inputs(
      test::Setup{.queries = 64, .keys = 1000, .q = constant(8.0F), .k = along(0.25F)});
  const Arguments host = inputs.arguments();
  const Reference reference = referee(host);
  const Metrics int8 = compare(run_on_device(host, device_recipe("vc8")), reference);
  EXPECT_TRUE(int8.finite);
  EXPECT_LE(int8.rel_l2, 0.1);
  // Three mantissa bits cannot tell such keys apart; the result must still be a number.
  EXPECT_TRUE(compare(run_on_device(host, device_recipe("vc8-fast")), reference).finite);
}

TEST(CudaAttention, TwoRunsGiveTheSameBits) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs(test::Setup{.q_heads = 4, .queries = 700, .keys = 3000});
  const Recipe recipe = device_recipe("vc8");
  const Outcome a = run_on_device(inputs.arguments(), recipe);
  const Outcome b = run_on_device(inputs.arguments(), recipe);
  EXPECT_TRUE(same_bits(a.out_view(), b.out_view()));
  EXPECT_TRUE(same_bits(a.lse_view(), b.lse_view()));
}

TEST(CudaAttention, NoLseWanted) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs(test::Setup{.queries = 100, .keys = 300});
  const Recipe recipe = device_recipe("vc8");
  const Outcome with = run_on_device(inputs.arguments(), recipe);
  const Outcome without = run_on_device(inputs.arguments(), recipe, {.lse = false});
  EXPECT_TRUE(same_bits(with.out_view(), without.out_view()));
}

TEST(CudaAttention, StridedOutputs) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs(test::Setup{.batch = 2, .q_heads = 3, .queries = 70, .keys = 200});
  const Recipe recipe = device_recipe("vc8");
  const Outcome dense = run_on_device(inputs.arguments(), recipe);
  for (const NamedStrides& odd : odd_layouts(inputs.q.view().shape)) {
    SCOPED_TRACE(odd.name);
    const DeviceOptions options{.layout = {.out_stride = odd.stride}};
    const Outcome strided = run_on_device(inputs.arguments(), recipe, options);
    EXPECT_TRUE(same_bits(dense.out_view(), strided.out_view()));
  }
}

/// Constant values and constant channels: nothing overflows, nothing is lost.
TEST(CudaAttention, ConstantValues) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs(test::Setup{.queries = 130, .keys = 700, .v = constant(3.0F)});
  const Outcome gpu = run_on_device(inputs.arguments(), device_recipe("vc8"));
  for (int s = 0; s < 130; s += 43) EXPECT_NEAR(gpu.out.get(0, 0, s, 77), 3.0F, 0.02F);
}

TEST(CudaAttention, NonFiniteInputsShow) {
  VCATTN_NEEDS_HOPPER();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto poisoned = [](std::uint32_t seed, std::int64_t token, float value) -> Values {
    const Values clean = normal(seed);
    return [=](const Index& at) { return at.s == token && at.d == 5 ? value : clean(at); };
  };
  for (const char* name : {"vc8", "vc8-fast", "vc8-shaped"}) {
    SCOPED_TRACE(name);
    const Recipe recipe = device_recipe(name);
    const Inputs query(test::Setup{.queries = 100, .keys = 300, .q = poisoned(1, 7, kNan)});
    const Outcome q = run_on_device(query.arguments(), recipe);
    EXPECT_TRUE(std::isnan(q.out.get(0, 0, 7, 0)));
    EXPECT_TRUE(std::isfinite(q.out.get(0, 0, 8, 0)));
    const Inputs key(test::Setup{.queries = 100, .keys = 300, .k = poisoned(2, 7, kNan)});
    EXPECT_FALSE(std::isfinite(run_on_device(key.arguments(), recipe).out.get(0, 0, 50, 0)));
    const Inputs value(test::Setup{
        .queries = 100, .keys = 300, .v = poisoned(3, 7, std::numeric_limits<float>::infinity())});
    EXPECT_FALSE(std::isfinite(run_on_device(value.arguments(), recipe).out.get(0, 0, 50, 5)));
  }
}

/// Values with a mean over many keys: the accumulation is exact enough to need no smoothing.
TEST(CudaAttention, ManyKeys) {
  VCATTN_NEEDS_HOPPER();
  const auto error = [](std::int64_t keys) {
    const Inputs inputs(
        test::Setup{.queries = 128, .keys = keys, .v = affine(normal(3), 1.0F, 1.0F)});
    const Arguments host = inputs.arguments();
    const std::vector<std::int64_t> rows = sample_rows(128, 16);
    const Metrics metrics =
        compare(run_on_device(host, device_recipe("vc8")), referee(host, rows), rows);
    std::printf("  %lld keys: rel_l2 %.6f\n", static_cast<long long>(keys), metrics.rel_l2);
    return metrics.rel_l2;
  };
  const double few = error(8192);
  EXPECT_LE(error(131072), 1.1 * few);
}

}  // namespace
}  // namespace vcattn::test
