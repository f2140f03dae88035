// Times the CUDA backend: attention kernel alone, preparation alone, and whole calls, on random
// normal bfloat16 tensors made on the device. Prints a table and writes JSON.
//
//   attention_bench [--json FILE] [--recipe NAME] [--repeats N] HEADSxTOKENSxDIM...
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/validate.h"
#include "cuda/cluster/cluster.h"
#include "cuda/prepare/prepare.h"
#include "cuda/sm90/config.h"
#include "cuda/sm90/launch.h"
#include "device_random.h"
#include "vcattn/attention.h"

namespace {

using namespace vcattn;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

struct DeviceBuffer {
  explicit DeviceBuffer(std::size_t bytes) { check(cudaMalloc(&data, bytes)); }
  ~DeviceBuffer() { cudaFree(data); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data = nullptr;
};

struct Times {
  double median, least, most;
};

/// Milliseconds of `repeats` runs after two warm-ups.
template <class Run>
Times time_runs(int repeats, const Run& run) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  run();
  run();
  std::vector<double> ms;
  for (int i = 0; i < repeats; ++i) {
    check(cudaEventRecord(begin, nullptr));
    run();
    check(cudaEventRecord(end, nullptr));
    check(cudaEventSynchronize(end));
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, begin, end));
    ms.push_back(elapsed);
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  std::sort(ms.begin(), ms.end());
  return {ms[ms.size() / 2], ms.front(), ms.back()};
}

struct Shape {
  int heads = 0, tokens = 0, dim = 0;
};

nlohmann::json to_json(const Times& t) {
  return {{"median_ms", t.median}, {"min_ms", t.least}, {"max_ms", t.most}};
}

struct GroupingTimes {
  Times cold, warm;     ///< one grouping step
  double scheduled_ms;  ///< a step's share over a default schedule
  std::size_t workspace_bytes;
};

/// Times the grouping of V alone.
GroupingTimes time_grouping(const Arguments& a, const Recipe& recipe, int repeats) {
  const cuda::cluster::Shape shape = cuda::cluster::shape_of(a, recipe);
  const DeviceBuffer kept(cuda::cluster::grouping_bytes(shape));
  const std::size_t workspace_bytes = cuda::cluster::workspace_bytes(shape);
  const DeviceBuffer workspace(workspace_bytes);
  const cuda::cluster::Grouping grouping =
      cuda::cluster::grouping_at(shape, static_cast<std::byte*>(kept.data));
  const auto run = [&](bool warm) {
    cuda::cluster::group(
        a, shape,
        {.iterations = recipe.kmeans_iterations, .order = recipe.cluster_order, .warm = warm},
        grouping, static_cast<std::byte*>(workspace.data), nullptr);
  };
  GroupingTimes times{time_runs(repeats, [&] { run(false); }),
                      time_runs(repeats, [&] { run(true); }), 0.0, workspace_bytes};
  constexpr VSmoothSchedule kSchedule{.steps = 50};
  VSmoothState state(kSchedule);
  int groupings = 0;
  for (int step = 0; step < kSchedule.steps; ++step) {
    state.begin_step(step);
    if (!state.next_action(groupings > 0).regroup) continue;
    times.scheduled_ms += (groupings == 0 ? times.cold : times.warm).median / kSchedule.steps;
    ++groupings;
  }
  return times;
}

nlohmann::json time_shape(const Shape& shape, const std::string& recipe_name, int repeats) {
  const std::size_t count = static_cast<std::size_t>(shape.heads) * shape.tokens * shape.dim;
  DeviceBuffer q(2 * count), k(2 * count), v(2 * count), out(2 * count);
  std::uint32_t seed = static_cast<std::uint32_t>(shape.tokens);
  for (DeviceBuffer* buffer : {&q, &k, &v}) bench::fill_normal_bf16(buffer->data, count, ++seed);
  check(cudaMemset(out.data, 0xFF, 2 * count));

  Recipe recipe = vcattn::recipe(recipe_name);
  recipe.v_smooth = VSmooth::kSequence;
  Arguments a;
  const std::array<std::int64_t, 4> dims{1, shape.heads, shape.tokens, shape.dim};
  const auto view = [&](void* data) {
    return as_const(dense_view(data, DType::kBF16, Layout::kBHSD, dims));
  };
  a.q = view(q.data);
  a.k = view(k.data);
  a.v = view(v.data);
  a.out = dense_view(out.data, DType::kBF16, Layout::kBHSD, dims);
  a.device = {Device::Kind::kCuda, 0};
  const Plan plan = make_plan(a, {.recipe = recipe, .backend = BackendChoice::kCuda});

  const cuda::prepare::Shape sizes = cuda::prepare::shape_of(a);
  const cuda::prepare::Workspace workspace = cuda::prepare::plan_workspace(sizes, false);
  const DeviceBuffer buffer(workspace.bytes);
  cuda::prepare::Options options;
  options.int8_scores = recipe.qk == QkFormat::kInt8;
  options.score_scale = effective_scale(a);
  cuda::sm90::AttentionParams params;
  const auto prepare = [&] {
    params = cuda::prepare::prepare(a, sizes, workspace, options,
                                    static_cast<std::byte*>(buffer.data), nullptr);
  };
  int variant = 0;
  while (cuda::sm90::kVariants[variant].name != plan.kernel()) ++variant;
  const auto kernel = [&] { cuda::sm90::attention_launcher(variant)(params, 1, nullptr); };

  const Times prepare_ms = time_runs(repeats, prepare);
  const Times kernel_ms = time_runs(repeats, kernel);
  const Times call_ms = time_runs(repeats, [&] { plan.run(); });
  const GroupingTimes grouping = time_grouping(a, recipe, repeats);
  const double flop = 4.0 * shape.heads * std::pow(shape.tokens, 2.0) * shape.dim;
  const auto tflops = [flop](const Times& t) { return flop / t.median * 1e-9; };
  fmt::print(
      "{:<9} {:<15} 1x{}x{}x{}: kernel {:.3f} ms ({:.3f}-{:.3f}) {:.1f} TFLOP/s | prepare "
      "{:.3f} ms ({:.2f} %) | grouping {:.3f} ms ({:.2f} %), warm {:.3f} ms, scheduled {:.2f} % | "
      "call {:.3f} ms {:.1f} TFLOP/s | workspace {:.0f} MiB\n",
      recipe_name, plan.kernel(), shape.heads, shape.tokens, shape.dim, kernel_ms.median,
      kernel_ms.least, kernel_ms.most, tflops(kernel_ms), prepare_ms.median,
      100.0 * prepare_ms.median / kernel_ms.median, grouping.cold.median,
      100.0 * grouping.cold.median / kernel_ms.median, grouping.warm.median,
      100.0 * grouping.scheduled_ms / kernel_ms.median, call_ms.median, tflops(call_ms),
      static_cast<double>(workspace.bytes) / (1 << 20));
  std::fflush(stdout);
  return {{"recipe", recipe_name},
          {"kernel_name", plan.kernel()},
          {"shape", {1, shape.heads, shape.tokens, shape.dim}},
          {"repeats", repeats},
          {"kernel", to_json(kernel_ms)},
          {"kernel_tflops", tflops(kernel_ms)},
          {"prepare", to_json(prepare_ms)},
          {"grouping", to_json(grouping.cold)},
          {"grouping_warm", to_json(grouping.warm)},
          {"grouping_scheduled_ms", grouping.scheduled_ms},
          {"grouping_workspace_bytes", grouping.workspace_bytes},
          {"call", to_json(call_ms)},
          {"call_tflops", tflops(call_ms)},
          {"workspace_bytes", workspace.bytes}};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string json_path;
    std::vector<std::string> recipes;
    int repeats = 5;
    nlohmann::json results = nlohmann::json::array();
    std::vector<Shape> shapes;
    for (int i = 1; i < argc; ++i) {
      const std::string arg = argv[i];
      Shape shape;
      if (arg == "--json" && i + 1 < argc) {
        json_path = argv[++i];
      } else if (arg == "--recipe" && i + 1 < argc) {
        recipes.emplace_back(argv[++i]);
      } else if (arg == "--repeats" && i + 1 < argc) {
        repeats = std::stoi(argv[++i]);
      } else if (std::sscanf(arg.c_str(), "%dx%dx%d", &shape.heads, &shape.tokens, &shape.dim) ==
                 3) {
        shapes.push_back(shape);
      } else {
        throw std::runtime_error("unknown argument " + arg);
      }
    }
    if (recipes.empty()) recipes = {"vc8", "vc8-fast"};
    for (const Shape& shape : shapes) {
      for (const std::string& recipe : recipes)
        results.push_back(time_shape(shape, recipe, repeats));
    }
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0));
    if (!json_path.empty()) {
      std::ofstream(json_path)
          << nlohmann::json{{"device", properties.name}, {"runs", results}}.dump(2) << '\n';
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return 1;
  }
}
