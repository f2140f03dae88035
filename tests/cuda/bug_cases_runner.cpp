// The rows of the public bug table on the GPU: bug_cases_cuda_test is bug_cases_test with this
// target. Tests of recipes that the kernels do not run are skipped. Calls that the kernels refuse
// for what is asked of them must say so, by a reason known here; the CPU backend then answers, as
// for a caller who hands such calls back.
#include <array>
#include <cstdio>
#include <map>
#include <mutex>

#include "bug_cases/bug_case.h"
#include "cuda/device_call.h"
#include "vcattn/error.h"

namespace vcattn::test {
namespace {

/// What README.md says the H200 refuses, and a scale that is not positive.
constexpr std::array kRefusals{"causal and masked attention run on the cpu backend only",
                               "the head dimension is", "the scale must be positive"};

bool is_known(const std::string& refusal) {
  for (const char* reason : kRefusals) {
    if (refusal.find(reason) != std::string::npos) return true;
  }
  return false;
}

/// How many calls went where, printed at the end.
class Counts : public testing::Environment {
 public:
  void add(const std::string& where) {
    const std::lock_guard lock(mutex_);
    ++counts_[where];
  }
  void TearDown() override {
    for (const auto& [where, count] : counts_) std::printf("%6d calls: %s\n", count, where.c_str());
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};
Counts* const kCounts = new Counts;

std::string refuses(const Recipe& recipe) {
  // Nothing reads these tensors: they are only planned for.
  alignas(16) static std::array<std::byte, 2 * 64> memory;
  Arguments a;
  a.out = dense_view<void>(memory.data(), DType::kBF16, Layout::kBHSD, {1, 1, 1, 64});
  a.q = a.k = a.v = as_const(a.out);
  a.device = {Device::Kind::kCuda, 0};
  return why_not(a, {.recipe = recipe, .backend = BackendChoice::kCuda});
}

Outcome run_on_gpu(const Target& host, const Arguments& arguments, const Recipe& recipe,
                   VSmoothState* state, const OutputLayout& layout) {
  DeviceOptions options{.layout = layout};
  if (arguments.key_lengths != nullptr) {
    options.key_lengths.assign(arguments.key_lengths, arguments.key_lengths + arguments.q.batch());
  }
  try {
    Outcome outcome = run_on_device(arguments, recipe, options, state);
    kCounts->add("on the GPU");
    return outcome;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    EXPECT_TRUE(is_known(error.what()) || !refuses(recipe).empty()) << error.what();
    kCounts->add(std::string("handed back: ") + error.what());
  }
  return host.run(arguments, recipe, state, layout);
}

const bool kInstalled = [] {
  testing::AddGlobalTestEnvironment(kCounts);
  const Target host = target();
  target() = {{Device::Kind::kCuda, 0},
              [host](const auto&... call) { return run_on_gpu(host, call...); },
              refuses};
  return true;
}();

TEST(BugCasesOnGpu, TheKernelsRunTheirRecipes) {
  VCATTN_NEEDS_HOPPER();
  EXPECT_EQ(refuses(recipe("vc8")), "");
  EXPECT_EQ(refuses(recipe("vc8-fast")), "");
  EXPECT_EQ(refuses(recipe("vc8-shaped")), "");
}

}  // namespace
}  // namespace vcattn::test
