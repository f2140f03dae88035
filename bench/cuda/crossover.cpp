// Calls whose tensors lie in host memory: the time of a whole call on the CPU, and on the GPU with
// the copies there and back. What the dispatcher's estimates (Backend::host_call_seconds) are
// fitted to. Prints a table; with an argument, writes it as JSON there too.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "median_ms.h"
#include "vcattn/attention.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/staging.h"

namespace {

using namespace vcattn;

struct HostCall {
  HostCall(std::int64_t heads, std::int64_t tokens, std::int64_t dim)
      : shape{1, heads, tokens, dim} {
    std::mt19937 engine(static_cast<unsigned>(heads * tokens));
    std::normal_distribution<float> normal;
    for (auto* tensor : {&q, &k, &v, &out}) {
      for (std::int64_t i = 0; i < heads * tokens * dim; ++i) {
        tensor->push_back(numerics::bf16_from_float(normal(engine)));
      }
    }
  }
  Arguments arguments() {
    const auto view = [&](std::vector<std::uint16_t>& data) {
      return dense_view(static_cast<void*>(data.data()), DType::kBF16, Layout::kBHSD, shape);
    };
    Arguments a;
    a.q = as_const(view(q));
    a.k = as_const(view(k));
    a.v = as_const(view(v));
    a.out = view(out);
    return a;
  }
  std::array<std::int64_t, 4> shape;
  std::vector<std::uint16_t> q, k, v, out;
};

double staged_ms(const Arguments& arguments, BackendChoice backend) {
  return bench::median_ms(5, [&] {
    const StagedCall call = stage(arguments, {.recipe = recipe("vc8"), .backend = backend});
    call.run();
    call.call->fetch();
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    nlohmann::json rows = nlohmann::json::array();
    for (const std::int64_t heads : {1, 4, 24}) {
      for (std::int64_t tokens = 64; tokens <= (heads == 24 ? 2048 : 4096); tokens *= 2) {
        HostCall call(heads, tokens, 128);
        const double cpu = staged_ms(call.arguments(), BackendChoice::kCpu);
        const double gpu = staged_ms(call.arguments(), BackendChoice::kCuda);
        fmt::print("1x{}x{}x128: cpu {:.3f} ms, gpu with copies {:.3f} ms\n", heads, tokens, cpu,
                   gpu);
        std::fflush(stdout);
        rows.push_back({{"shape", {1, heads, tokens, 128}}, {"cpu_ms", cpu}, {"gpu_ms", gpu}});
      }
    }
    nlohmann::json result{{"recipe", "vc8"}, {"rows", rows}};
    for (const BackendInfo& info : backends()) result["backends"][info.name] = info.status;
    if (argc > 1) std::ofstream(argv[1]) << result.dump(1) << '\n';
  } catch (const std::exception& error) {
    std::fprintf(stderr, "crossover: %s\n", error.what());
    return 1;
  }
}
