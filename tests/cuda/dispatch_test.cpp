// Which backend a call from host memory gets.
#include <gtest/gtest.h>

#include "cuda/device_call.h"
#include "vcattn/staging.h"

namespace vcattn::test {
namespace {

/// What would run for tensors of this size in host memory; no tensor is read.
Plan preview_of(std::int64_t heads, std::int64_t tokens, BackendChoice backend) {
  alignas(16) static std::byte nothing[16];
  const Shape shape{1, heads, tokens, 128};
  const auto view = dense_view(static_cast<void*>(nothing), DType::kBF16, Layout::kBHSD, shape);
  Arguments a;
  a.q = a.k = a.v = as_const(view);
  a.out = view;
  return preview(a, {.backend = backend});
}

TEST(CudaDispatch, CallsThatTheCopiesOutweighStayOnTheCpu) {
  VCATTN_NEEDS_HOPPER();
  const Plan plan = preview_of(1, 8, BackendChoice::kAuto);
  EXPECT_EQ(plan.backend(), "cpu");
  EXPECT_NE(plan.explain().find("Not chosen: cuda: estimated at"), std::string::npos)
      << plan.explain();
  EXPECT_NE(plan.explain().find("copies"), std::string::npos) << plan.explain();
}

TEST(CudaDispatch, AllOthersRunOnTheGpu) {
  VCATTN_NEEDS_HOPPER();
  // Measured (bench/results/h200-crossover.json): 24 to 5 times as fast there, and that is with 16
  // threads on the other side.
  for (const auto& [heads, tokens] :
       {std::pair{1, 4096}, std::pair{4, 512}, std::pair{24, 2048}, std::pair{40, 75600}}) {
    const Plan plan = preview_of(heads, tokens, BackendChoice::kAuto);
    EXPECT_EQ(plan.backend(), "cuda") << heads << " " << tokens;
    EXPECT_EQ(plan.explain().find("Not chosen"), std::string::npos) << plan.explain();
  }
}

TEST(CudaDispatch, TheCallersChoiceWins) {
  VCATTN_NEEDS_HOPPER();
  EXPECT_EQ(preview_of(1, 8, BackendChoice::kCuda).backend(), "cuda");
  EXPECT_EQ(preview_of(40, 75600, BackendChoice::kCpu).backend(), "cpu");
}

/// Tensors on the device are never taken away from it.
TEST(CudaDispatch, DeviceTensorsStayOnTheDevice) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs({.queries = 3, .keys = 5});
  const Outcome outcome = run_on_device(inputs.arguments(), recipe("vc8"));
  EXPECT_TRUE(all_finite(outcome.out_view()));
  Arguments a = inputs.arguments();
  a.device = {Device::Kind::kCuda, 0};
  a.out = outcome.out.mutable_view();
  EXPECT_EQ(make_plan(a).backend(), "cuda");
}

}  // namespace
}  // namespace vcattn::test
