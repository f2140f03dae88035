// The plan: which backend and kernel, in words, and refusal of backends that are not there.
#include "vcattn/plan.h"

#include <gtest/gtest.h>

#include "bug_cases/call.h"

namespace vcattn::test {
namespace {

/// A call with outputs of its own; only planned, never run.
struct PlannedCall {
  explicit PlannedCall(const Setup& setup)
      : inputs(setup), out(setup.dtype, inputs.q.view().shape), arguments(inputs.arguments()) {
    arguments.out = out.mutable_view();
  }
  Inputs inputs;
  HostTensor out;
  Arguments arguments;
};

TEST(Plan, ExplainsEveryStageInWords) {
  PlannedCall call({.queries = 10, .keys = 30, .dim = 80, .causal = true});
  const Plan plan = make_plan(call.arguments);
  EXPECT_EQ(plan.backend(), "cpu");
  EXPECT_EQ(plan.kernel().rfind("cpu/tiles-", 0), 0U) << plan.kernel();
  const std::string text = plan.explain();
  for (const char* part :
       {"padded to 128", "k-means", "E4M3 with one scale per channel", "mean key", "Hadamard",
        "INT8", "ExpCast", "each tile of 128 keys", "Causal"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Plan, ExplanationFollowsTheRecipe) {
  PlannedCall call({.queries = 10, .keys = 30});
  for (const std::string& name : recipe_names()) {
    const std::string text = make_plan(call.arguments, {.recipe = recipe(name)}).explain();
    const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
    EXPECT_EQ(says("ExpCast"), recipe(name).p == PFormat::kExpCast) << name;
    EXPECT_EQ(says("Hadamard"), recipe(name).hadamard) << name;
    EXPECT_EQ(says("V is not smoothed"), recipe(name).v_smooth == VSmooth::kOff) << name;
    EXPECT_EQ(says("padded"), false) << name;
  }
}

TEST(Plan, RefusesTensorsTheBackendCannotReach) {
  PlannedCall call({.queries = 10, .keys = 30});
  call.arguments.device = {Device::Kind::kCuda, 1};
  try {
    make_plan(call.arguments, {.backend = BackendChoice::kCpu});
    FAIL() << "device tensors were accepted by the cpu backend";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("cuda:1"), std::string::npos) << error.what();
  }
}

TEST(Plan, ListsBackends) {
  const std::vector<BackendInfo> all = backends();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().name, "cpu");
  EXPECT_TRUE(all.back().available);
  EXPECT_FALSE(all.back().kernels.empty());
  EXPECT_FALSE(version().empty());
}

}  // namespace
}  // namespace vcattn::test
