// V-Smooth grouping on the GPU, stage by stage: each stage of the CPU's specification is fed what
// the GPU's earlier stages made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "cpu/cluster.h"
#include "cuda/device_call.h"
#include "vcattn/numerics/bf16.h"

namespace vcattn::test {
namespace {

struct Case {
  const char* name;
  Setup setup;
  std::vector<std::int32_t> key_lengths = {};
  int keys_per_cluster = 32;
};

std::vector<Case> cases() {
  const auto blobs = [](const Index& at) {
    return 0.3F * normal(3)(at) + (at.d == at.s * 7 % 11 ? 5.0F : 0.0F);
  };
  return {
      {"OneKey", {.keys = 1}},
      {"TwoKeys", {.keys = 2}, {}, 1},
      {"OneCluster", {.keys = 130}, {}, 256},
      {"Gaussian", {.keys = 777}},
      {"Blobs", {.q_heads = 2, .keys = 640, .v = blobs}, {}, 40},
      {"Offset", {.keys = 500, .v = affine(normal(3), 0.5F, 20.0F)}},
      {"Batches", {.batch = 2, .q_heads = 4, .kv_heads = 2, .keys = 300}},
      {"Dim64", {.q_heads = 2, .keys = 515, .dim = 64}},
      {"Dim40", {.keys = 300, .dim = 40}},
      {"Float16", {.keys = 400, .dtype = DType::kF16}},
      {"Float32", {.keys = 400, .dtype = DType::kF32}},
      {"TokensBeforeHeads", {.batch = 2, .q_heads = 3, .keys = 333, .layout = Layout::kBSHD}},
      {"KeyLengths", {.batch = 5, .keys = 400}, {400, 1, 128, 0, 389}},
      {"AllTheSame", {.keys = 300, .v = constant(2.0F)}},
      {"EveryKeyACluster", {.keys = 90}, {}, 1},
      {"ManyClusters", {.keys = 1100}, {}, 2},
      {"Sampled", {.keys = 16390, .dim = 64}, {}, 2048},
      {"SampledInPart", {.batch = 2, .keys = 16390, .dim = 64}, {16389, 600}, 2048},
  };
}

Recipe grouping_recipe(int keys_per_cluster, int iterations = 3) {
  Recipe r = recipe("vc8");
  r.keys_per_cluster = keys_per_cluster;
  r.kmeans_iterations = iterations;
  return r;
}

cpu::Rows values_of(const Inputs& inputs, std::int64_t b, std::int64_t h, std::int64_t count) {
  const TensorView view = inputs.v.view();
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(i);
  return cpu::load_rows(view, b, h, tokens, std::nullopt, view.dim() <= 64 ? 64 : 128);
}

cpu::Rows rows_from(const std::vector<float>& data, std::int64_t dim) {
  cpu::Rows rows(static_cast<std::int64_t>(data.size()) / dim, dim);
  rows.data = data;
  return rows;
}

void expect_permutation(std::vector<std::int32_t> order, std::int64_t count) {
  ASSERT_EQ(static_cast<std::int64_t>(order.size()), count);
  std::sort(order.begin(), order.end());
  for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(order[i], i);
}

/// The clusters that float64 cannot tell from the nearest by more than rounding.
std::vector<std::set<std::int32_t>> acceptable(const cpu::Rows& values,
                                               const cpu::Rows& centroids) {
  const auto rounded = [](float x) { return static_cast<double>(numerics::bf16_round(x)); };
  std::vector<std::set<std::int32_t>> result;
  for (std::int64_t i = 0; i < values.count; ++i) {
    std::vector<double> closeness;
    double size = 1e-30;
    for (std::int64_t k = 0; k < centroids.count; ++k) {
      double sum = 0.0;
      for (std::int64_t c = 0; c < values.dim; ++c) {
        const double x = rounded(values.row(i)[c]), y = rounded(centroids.row(k)[c]);
        sum += x * y - 0.5 * y * y;
        size = std::max(size, std::abs(x * y) + 0.5 * y * y);
      }
      closeness.push_back(sum);
    }
    const double best = *std::max_element(closeness.begin(), closeness.end());
    const double slack = 1e-5 * size * static_cast<double>(values.dim);
    result.emplace_back();
    for (std::int64_t k = 0; k < centroids.count; ++k) {
      if (closeness[k] >= best - slack) result.back().insert(static_cast<std::int32_t>(k));
    }
  }
  return result;
}

/// Walks the order along the chain: every token must lie at a rank whose cluster is acceptable, and
/// tokens that can only be of one cluster in the order the CPU gives them.
void expect_chain_order(const std::vector<std::int32_t>& order, const cpu::Rows& values,
                        const cpu::Rows& centroids) {
  const std::vector<std::int32_t> chain = cpu::chain_clusters(centroids);
  std::vector<std::int32_t> rank_of(chain.size());
  for (std::size_t r = 0; r < chain.size(); ++r) rank_of[chain[r]] = static_cast<std::int32_t>(r);
  const std::vector<std::set<std::int32_t>> clusters = acceptable(values, centroids);
  std::int32_t rank = 0;
  for (const std::int32_t token : order) {
    std::int32_t next = std::numeric_limits<std::int32_t>::max();
    for (const std::int32_t cluster : clusters[token]) {
      if (rank_of[cluster] >= rank) next = std::min(next, rank_of[cluster]);
    }
    ASSERT_LT(next, static_cast<std::int32_t>(chain.size())) << "token " << token;
    rank = next;
  }
  const auto certain = [&](const std::vector<std::int32_t>& all) {
    std::vector<std::int32_t> kept;
    for (const std::int32_t token : all) {
      if (clusters[token].size() == 1) kept.push_back(token);
    }
    return kept;
  };
  const std::vector<std::int32_t> labels = cpu::nearest_centroids(values, centroids);
  EXPECT_EQ(certain(order),
            certain(cpu::order_tokens(values, labels, centroids, ClusterOrder::kChain)));
}

class DeviceGrouping : public testing::TestWithParam<Case> {};

TEST_P(DeviceGrouping, OrderFollowsItsCentroidsAsTheCpuSays) {
  VCATTN_NEEDS_HOPPER();
  const Case& test = GetParam();
  const Inputs inputs(test.setup);
  const Recipe recipe = grouping_recipe(test.keys_per_cluster);
  VSmoothState state;
  run_on_device(inputs.arguments(), recipe, {.key_lengths = test.key_lengths, .lse = false},
                &state);
  const TensorView view = inputs.v.view();
  for (std::int64_t b = 0; b < view.batch(); ++b) {
    const std::int64_t count = test.key_lengths.empty() ? view.tokens() : test.key_lengths[b];
    for (std::int64_t h = 0; h < view.heads(); ++h) {
      SCOPED_TRACE(testing::Message() << "entry " << b << " head " << h);
      const std::vector<std::int32_t> order = state.grouping()->permutation(b, h);
      ASSERT_NO_FATAL_FAILURE(expect_permutation(order, count));
      if (count == 0) continue;
      const cpu::Rows values = values_of(inputs, b, h, count);
      const cpu::Rows centroids = rows_from(state.grouping()->centroids(b, h), values.dim);
      ASSERT_EQ(centroids.count, (count + test.keys_per_cluster - 1) / test.keys_per_cluster);
      expect_chain_order(order, values, centroids);
    }
  }
}

TEST_P(DeviceGrouping, LloydStepsAreTheCpus) {
  VCATTN_NEEDS_HOPPER();
  const Case& test = GetParam();
  const Inputs inputs(test.setup);
  const Recipe recipe = grouping_recipe(test.keys_per_cluster, /*iterations=*/1);
  VSmoothState state;
  const DeviceOptions options{.key_lengths = test.key_lengths, .lse = false};
  cpu::Rows warm;
  for (int step = 0; step < 2; ++step) {  // cold, then from the centroids of the first
    run_on_device(inputs.arguments(), recipe, options, &state);
    const std::int64_t count =
        test.key_lengths.empty() ? inputs.v.view().tokens() : test.key_lengths[0];
    const cpu::Rows values = values_of(inputs, 0, 0, count);
    cpu::Rows expected = step == 0
                             ? cpu::initial_centroids(values, (count + test.keys_per_cluster - 1) /
                                                                  test.keys_per_cluster)
                             : warm;
    cpu::cluster(values, expected, 1, ClusterOrder::kChain);
    warm = rows_from(state.grouping()->centroids(0, 0), values.dim);
    ASSERT_EQ(warm.count, expected.count);
    std::int64_t others = 0;  // a token at the same distance of two may move both
    for (std::int64_t k = 0; k < warm.count; ++k) {
      bool equal = true;
      for (std::int64_t c = 0; c < warm.dim; ++c) {
        const float x = warm.row(k)[c], y = expected.row(k)[c];
        equal = equal && std::abs(x - y) <= 1e-6F * std::max(1.0F, std::abs(y));
      }
      others += equal ? 0 : 1;
    }
    EXPECT_LE(others, warm.count / 20) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceGrouping, testing::ValuesIn(cases()),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(CudaGrouping, LabelOrderIsSortedByLabelAndStable) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs(test::Setup{.keys = 600});
  Recipe r = grouping_recipe(64);
  r.cluster_order = ClusterOrder::kLabel;
  VSmoothState state;
  run_on_device(inputs.arguments(), r, {.lse = false}, &state);
  const std::vector<std::int32_t> order = state.grouping()->permutation(0, 0);
  ASSERT_NO_FATAL_FAILURE(expect_permutation(order, 600));
  const cpu::Rows values = values_of(inputs, 0, 0, 600);
  const cpu::Rows centroids = rows_from(state.grouping()->centroids(0, 0), 128);
  const std::vector<std::int32_t> labels = cpu::nearest_centroids(values, centroids);
  int inversions = 0;  // near ties
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto key = [&](std::int32_t token) { return std::pair(labels[token], token); };
    inversions += key(order[i - 1]) < key(order[i]) ? 0 : 1;
  }
  EXPECT_LE(inversions, 2);
}

/// Whatever the values are, every visible key has its place.
TEST(CudaGrouping, AnyValuesGiveAPermutation) {
  VCATTN_NEEDS_HOPPER();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto at_every = [](int period, float value) -> Values {
    const Values clean = normal(3);
    return [=](const Index& at) { return at.s % period == 0 ? value : clean(at); };
  };
  const std::pair<const char*, Values> kinds[] = {
      {"NaN", constant(kNan)},           {"some NaN", at_every(7, kNan)},
      {"infinity", constant(kInfinity)}, {"some infinity", at_every(5, -kInfinity)},
      {"zero", constant(0.0F)},          {"huge", affine(normal(3), 1e38F)},
      {"one value", at_every(1, 3.0F)},  {"tiny", affine(normal(3), 1e-40F)}};
  for (const auto& [name, values] : kinds) {
    SCOPED_TRACE(name);
    const Inputs inputs(test::Setup{.keys = 300, .v = values});
    VSmoothState state;
    for (int step = 0; step < 2; ++step) {
      run_on_device(inputs.arguments(), grouping_recipe(16), {.lse = false}, &state);
      expect_permutation(state.grouping()->permutation(0, 0), 300);
    }
  }
}

TEST(CudaGrouping, TwoRunsGiveTheSameBits) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs(test::Setup{.q_heads = 2, .queries = 100, .keys = 1200});
  VSmoothState a, b;
  const Outcome first = run_on_device(inputs.arguments(), recipe("vc8"), {}, &a);
  const Outcome second = run_on_device(inputs.arguments(), recipe("vc8"), {}, &b);
  const Outcome alone = run_on_device(inputs.arguments(), recipe("vc8"));
  EXPECT_TRUE(same_bits(first.out_view(), second.out_view()));
  EXPECT_TRUE(same_bits(first.out_view(), alone.out_view()));
  for (int head = 0; head < 2; ++head) {
    EXPECT_EQ(a.grouping()->permutation(0, head), b.grouping()->permutation(0, head));
    EXPECT_EQ(a.grouping()->centroids(0, head), b.grouping()->centroids(0, head));
  }
}

}  // namespace
}  // namespace vcattn::test
