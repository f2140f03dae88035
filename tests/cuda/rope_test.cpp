// Rotary tables inside calls on the GPU: against float64, which rotates in double precision, and
// against the CPU backend.
#include <gtest/gtest.h>

#include <cstdio>

#include "cuda/device_call.h"
#include "cuda/rope_tables.h"

namespace vcattn::test {
namespace {

constexpr RopeLayout kPairs = RopeLayout::kInterleaved, kHalves = RopeLayout::kHalf;

struct Case {
  const char* name;
  Setup setup;
  RopeLayout layout;
  std::int64_t pairs;
  bool clustered = false;
  std::vector<std::int32_t> key_lengths = {};
};

std::vector<Case> cases() {
  return {
      {"Pairs", {.q_heads = 2, .queries = 200, .keys = 300}, kPairs, 64},
      {"Halves", {.q_heads = 2, .queries = 200, .keys = 300}, kHalves, 64},
      {"FewPairs", {.queries = 100, .keys = 300}, kPairs, 22},
      {"TokensBeforeHeads",
       {.batch = 2, .q_heads = 2, .queries = 90, .keys = 200, .layout = Layout::kBSHD},
       kPairs,
       64},
      {"GroupedHeads",
       {.q_heads = 4, .kv_heads = 2, .queries = 90, .keys = 200, .dtype = DType::kF32},
       kHalves,
       64},
      {"Dim64", {.queries = 150, .keys = 400, .dim = 64, .dtype = DType::kF16}, kHalves, 32},
      {"Dim72", {.queries = 100, .keys = 300, .dim = 72}, kPairs, 36},
      {"Clustered", {.queries = 100, .keys = 600}, kPairs, 64, true},
      {"KeyLengths", {.batch = 3, .queries = 60, .keys = 300}, kHalves, 64, true, {300, 0, 129}}};
}

class DeviceRope : public testing::TestWithParam<Case> {};

TEST_P(DeviceRope, MatchesFloat64AndTheCpuBackend) {
  VCATTN_NEEDS_HOPPER();
  const Case& test = GetParam();
  const Inputs inputs(test.setup);
  // Different tables, so that one in the place of the other shows.
  const RopeTables of_q(test.setup.queries, test.pairs, 0.0),
      of_k(test.setup.keys, test.pairs, 1.0);
  Arguments host = inputs.arguments();
  host.q_rope = of_q.rope(test.layout);
  host.k_rope = of_k.rope(test.layout);
  host.key_lengths = test.key_lengths.empty() ? nullptr : test.key_lengths.data();
  const Reference reference = referee(host);
  const DeviceOptions options{.key_lengths = test.key_lengths};
  for (const char* name : {"vc8", "vc8-fast", "vc8-shaped"}) {
    SCOPED_TRACE(name);
    Recipe recipe = test.clustered ? vcattn::recipe(name) : device_recipe(name);
    recipe.keys_per_cluster = 64;
    const Metrics gpu = compare(run_on_device(host, recipe, options), reference);
    const Metrics cpu = compare(run_on_host(host, recipe, options), reference);
    EXPECT_TRUE(gpu.finite);
    EXPECT_LE(gpu.rel_l2, cpu.rel_l2 * 1.05 + 0.003) << "cpu " << cpu.rel_l2;
    EXPECT_LE(gpu.rel_l2, recipe.qk == QkFormat::kE4M3 ? 0.12 : 0.075);
    EXPECT_LE(gpu.lse_max_abs, cpu.lse_max_abs * 1.1 + 0.02) << "cpu " << cpu.lse_max_abs;
    std::printf("  %-18s %-9s gpu %.4f cpu %.4f\n", test.name, name, gpu.rel_l2, cpu.rel_l2);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceRope, testing::ValuesIn(cases()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

/// One table without the other: only that tensor is rotated.
TEST(CudaRope, OneTableAlone) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs(test::Setup{.queries = 100, .keys = 200});
  const RopeTables tables(200, 64, 0.7);
  for (const bool of_q : {true, false}) {
    Arguments host = inputs.arguments();
    (of_q ? host.q_rope : host.k_rope) = tables.rope(kHalves);
    const Outcome gpu = run_on_device(host, device_recipe("vc8"));
    EXPECT_LE(compare(gpu, referee(host)).rel_l2, 0.075);
    EXPECT_GT(compare(gpu, referee(inputs.arguments())).rel_l2, 0.2) << "nothing was rotated";
  }
}

}  // namespace
}  // namespace vcattn::test
