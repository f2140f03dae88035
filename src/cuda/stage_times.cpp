#include "cuda/stage_times.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cuda/cluster/cluster.h"
#include "cuda/host/device_memory.h"
#include "cuda/prepare/prepare.h"
#include "cuda/sm90/config.h"
#include "cuda/sm90/launch.h"

namespace vcattn::cuda {
namespace {

constexpr const char* kWhere = "timing";

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), kWhere); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), kWhere); }
  double milliseconds_since(const Event& begin) const {
    check(cudaEventSynchronize(event_), kWhere);
    float elapsed = 0.0F;
    check(cudaEventElapsedTime(&elapsed, begin.event_, event_), kWhere);
    return static_cast<double>(elapsed);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

template <class Run>
Spread time_runs(cudaStream_t stream, int repeats, const Run& run) {
  constexpr int kWarmUps = 2;
  for (int i = 0; i < kWarmUps; ++i) run();
  Event begin, end;
  std::vector<double> ms;
  for (int i = 0; i < repeats; ++i) {
    begin.record(stream);
    run();
    end.record(stream);
    ms.push_back(end.milliseconds_since(begin));
  }
  std::sort(ms.begin(), ms.end());
  return {ms[ms.size() / 2], ms.front(), ms.back()};
}

void time_grouping(const Plan& plan, int repeats, StageTimes& times) {
  const Arguments& a = plan.arguments();
  const Recipe& recipe = plan.recipe();
  const auto stream = static_cast<cudaStream_t>(a.stream);
  const cluster::Shape shape = cluster::shape_of(a, recipe);
  const DeviceMemory kept(cluster::grouping_bytes(shape), kWhere);
  times.grouping_workspace_bytes = cluster::workspace_bytes(shape);
  const DeviceMemory workspace(times.grouping_workspace_bytes, kWhere);
  const cluster::Grouping grouping = cluster::grouping_at(shape, kept.data());
  const auto run = [&](bool warm) {
    cluster::Options options;
    options.iterations = recipe.kmeans_iterations;
    options.order = recipe.cluster_order;
    options.warm = warm;
    cluster::group(a, shape, options, grouping, workspace.data(), stream);
  };
  times.grouping = time_runs(stream, repeats, [&] { run(false); });
  times.warm_grouping = time_runs(stream, repeats, [&] { run(true); });

  constexpr VSmoothSchedule kSchedule{.steps = 50};
  VSmoothState state(kSchedule);
  bool grouped = false;
  for (int step = 0; step < kSchedule.steps; ++step) {
    state.begin_step(step);
    if (!state.next_action(grouped).regroup) continue;
    times.scheduled_grouping_ms +=
        (grouped ? times.warm_grouping : times.grouping).median_ms / kSchedule.steps;
    grouped = true;
  }
}

int variant_named(std::string_view name) {
  int variant = 0;
  while (sm90::kVariants[variant].name != name) ++variant;
  return variant;
}

}  // namespace

StageTimes time_stages(const Plan& plan, const Backend& backend, int repeats) {
  const Arguments& a = plan.arguments();
  const Recipe& recipe = plan.recipe();
  const DeviceGuard guard(a.device.index);
  const auto stream = static_cast<cudaStream_t>(a.stream);
  StageTimes times;

  const prepare::Shape shape = prepare::shape_of(a);
  const prepare::Workspace workspace =
      prepare::plan_workspace(shape, a.lse.has_value(), recipe.qk_shaping);
  times.workspace_bytes = workspace.bytes;
  {
    const DeviceMemory memory(workspace.bytes, kWhere);
    const prepare::Options options = prepare::options_of(a, recipe);
    sm90::AttentionParams params;
    times.prepare = time_runs(stream, repeats, [&] {
      params = prepare::prepare(a, shape, workspace, options, memory.data(), stream);
    });
    const auto launch = sm90::attention_launcher(variant_named(plan.kernel()));
    times.kernel = time_runs(stream, repeats, [&] { launch(params, shape.batch, stream); });
  }
  Recipe in_sequence = recipe;
  in_sequence.v_smooth = VSmooth::kSequence;
  const Plan call(a, in_sequence, backend, plan.kernel(), {});
  times.call = time_runs(stream, repeats, [&] { call.run(); });
  if (recipe.v_smooth == VSmooth::kClustered && a.k.tokens() > 0) {
    time_grouping(plan, repeats, times);
  }
  return times;
}

}  // namespace vcattn::cuda
