// Times the stages of calls on the CUDA backend (Backend::time_stages) for any shape: random normal
// bfloat16 tensors made on the device. Prints a line per run and writes JSON; `vcattn bench` has
// the shapes of the models, and errors.
//
//   attention_bench [--json FILE] [--recipe NAME] [--repeats N] [--rope interleaved|half]
//                   HEADSxTOKENSxDIM...
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch/measure.h"
#include "vcattn/attention.h"

namespace {

using namespace vcattn;

struct Shape {
  std::int64_t heads = 0, tokens = 0, dim = 0;
};

nlohmann::json to_json(const Spread& t) {
  return {{"median_ms", t.median_ms}, {"min_ms", t.min_ms}, {"max_ms", t.max_ms}};
}

nlohmann::json time_shape(const Shape& shape, const std::string& recipe_name, int repeats,
                          const std::string& rope) {
  const auto call = random_call({.q_heads = shape.heads,
                                 .kv_heads = shape.heads,
                                 .queries = shape.tokens,
                                 .keys = shape.tokens,
                                 .dim = shape.dim},
                                BackendChoice::kCuda);
  Arguments arguments = call->arguments();
  std::unique_ptr<DeviceCall> tables;
  if (!rope.empty()) {
    // Time does not depend on the angles: the bytes of `tokens` random bfloat16 rows are taken for
    // `dim / 2` floats each.
    tables = random_call({.q_heads = 1,
                          .kv_heads = 1,
                          .queries = shape.tokens,
                          .keys = shape.tokens,
                          .dim = shape.dim},
                         BackendChoice::kCuda);
    arguments.q_rope = arguments.k_rope =
        Rope{.cos = static_cast<const float*>(tables->arguments().q.data),
             .sin = static_cast<const float*>(tables->arguments().k.data),
             .tokens = shape.tokens,
             .pairs = shape.dim / 2,
             .layout = rope == "half" ? RopeLayout::kHalf : RopeLayout::kInterleaved};
  }
  const Plan plan = make_plan(arguments, {.recipe = recipe(recipe_name)});
  const StageTimes s = time_stages(plan, repeats).value();
  const auto tokens = static_cast<double>(shape.tokens);
  const double flop = 4.0 * static_cast<double>(shape.heads * shape.dim) * tokens * tokens;
  const auto tflops = [flop](const Spread& t) { return flop / t.median_ms * 1e-9; };
  const auto percent = [&s](double ms) { return 100.0 * ms / s.kernel.median_ms; };
  fmt::print(
      "{:<9} {:<15} 1x{}x{}x{}: kernel {:.3f} ms ({:.3f}-{:.3f}) {:.1f} TFLOP/s | prepare "
      "{:.3f} ms ({:.2f} %) | grouping {:.3f} ms ({:.2f} %), warm {:.3f} ms, scheduled {:.2f} % | "
      "call {:.3f} ms {:.1f} TFLOP/s | workspace {:.0f} MiB\n",
      recipe_name, plan.kernel(), shape.heads, shape.tokens, shape.dim, s.kernel.median_ms,
      s.kernel.min_ms, s.kernel.max_ms, tflops(s.kernel), s.prepare.median_ms,
      percent(s.prepare.median_ms), s.grouping.median_ms, percent(s.grouping.median_ms),
      s.warm_grouping.median_ms, percent(s.scheduled_grouping_ms), s.call.median_ms, tflops(s.call),
      static_cast<double>(s.workspace_bytes) / (1 << 20));
  std::fflush(stdout);
  return {{"recipe", recipe_name},
          {"kernel_name", plan.kernel()},
          {"shape", {1, shape.heads, shape.tokens, shape.dim}},
          {"rope", rope},
          {"repeats", repeats},
          {"kernel", to_json(s.kernel)},
          {"kernel_tflops", tflops(s.kernel)},
          {"prepare", to_json(s.prepare)},
          {"grouping", to_json(s.grouping)},
          {"grouping_warm", to_json(s.warm_grouping)},
          {"grouping_scheduled_ms", s.scheduled_grouping_ms},
          {"grouping_workspace_bytes", s.grouping_workspace_bytes},
          {"call", to_json(s.call)},
          {"call_tflops", tflops(s.call)},
          {"workspace_bytes", s.workspace_bytes}};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string json_path;
    std::vector<std::string> recipes;
    int repeats = 5;
    std::string rope;
    std::vector<Shape> shapes;
    for (int i = 1; i < argc; ++i) {
      const std::string arg = argv[i];
      long heads = 0, tokens = 0, dim = 0;
      if (arg == "--json" && i + 1 < argc) {
        json_path = argv[++i];
      } else if (arg == "--recipe" && i + 1 < argc) {
        recipes.emplace_back(argv[++i]);
      } else if (arg == "--repeats" && i + 1 < argc) {
        repeats = std::stoi(argv[++i]);
      } else if (arg == "--rope" && i + 1 < argc) {
        rope = argv[++i];
        if (rope != "interleaved" && rope != "half") {
          throw std::runtime_error("--rope is \"" + rope + "\" (supported: interleaved, half)");
        }
      } else if (std::sscanf(arg.c_str(), "%ldx%ldx%ld", &heads, &tokens, &dim) == 3) {
        shapes.push_back({heads, tokens, dim});
      } else {
        throw std::runtime_error("unknown argument " + arg);
      }
    }
    if (recipes.empty()) recipes = {"vc8", "vc8-fast", "vc8-shaped"};
    nlohmann::json results = nlohmann::json::array();
    for (const Shape& shape : shapes) {
      for (const std::string& name : recipes) {
        results.push_back(time_shape(shape, name, repeats, rope));
      }
    }
    if (!json_path.empty()) {
      std::string device;
      for (const BackendInfo& info : backends()) {
        if (info.name == "cuda") device = info.status;
      }
      std::ofstream(json_path) << nlohmann::json{{"device", device}, {"runs", results}}.dump(2)
                               << '\n';
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return 1;
  }
}
