// What cutting a sequence into packed segments costs: the time of a whole call on tensors in device
// memory, dense and in 1, 2, 4... segments of equal length. Prints a table; with an argument,
// writes it as JSON there too.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "dispatch/measure.h"
#include "median_ms.h"
#include "vcattn/attention.h"

namespace {

using namespace vcattn;

constexpr std::int64_t kHeads = 24, kTokens = 32768, kDim = 128;

/// A call among others, as a model enqueues them.
double call_ms(DeviceCall& call, const Plan& plan) {
  constexpr int kRounds = 5, kCalls = 5;
  return bench::median_ms(kRounds,
                          [&] {
                            for (int i = 0; i < kCalls; ++i) plan.run();
                            call.synchronize();
                          }) /
         kCalls;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    nlohmann::json rows = nlohmann::json::array();
    const auto call = random_call({kHeads, kHeads, kTokens, kTokens, kDim}, BackendChoice::kCuda);
    for (const char* smoothing : {"clustered", "sequence"}) {
      Recipe vc8 = recipe("vc8");
      set_field(vc8, "v_smooth", smoothing);
      for (std::int64_t segments = 0; segments <= 256;
           segments = std::max<std::int64_t>(1, 2 * segments)) {
        Arguments a = call->arguments();
        std::vector<std::int32_t> offsets;
        for (std::int64_t i = 0; segments > 0 && i <= segments; ++i) {
          offsets.push_back(static_cast<std::int32_t>(i * kTokens / segments));
        }
        if (segments > 0) a.q_segments = a.k_segments = Segments{offsets.data(), segments};
        const double ms = call_ms(*call, make_plan(a, {.recipe = vc8}));
        fmt::print("vc8 {:<9} {:>3} segments: {:8.3f} ms\n", smoothing, segments, ms);
        std::fflush(stdout);
        rows.push_back({{"v_smooth", smoothing}, {"segments", segments}, {"call_ms", ms}});
      }
    }
    nlohmann::json result{{"command", "bench/cuda/packed"},
                          {"shape", {1, kHeads, kTokens, kDim}},
                          {"recipe", "vc8"},
                          {"protocol",
                           "bfloat16 in device memory; 0 segments: the dense call; one warm-up, "
                           "median of 5 rounds of 5 calls enqueued one behind the other"},
                          {"rows", rows}};
    for (const BackendInfo& info : backends()) result["backends"][info.name] = info.status;
    if (argc > 1) std::ofstream(argv[1]) << result.dump(1) << '\n';
  } catch (const std::exception& error) {
    std::fprintf(stderr, "packed: %s\n", error.what());
    return 1;
  }
}
