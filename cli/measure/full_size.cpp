#include "cli/measure/full_size.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/failure.h"
#include "cli/io/output_buffers.h"
#include "cli/progress.h"
#include "dispatch/measure.h"

namespace vcattn::cli {
namespace {

Timing timing_of(const Spread& spread, int repeats) {
  return {.median_ms = spread.median_ms,
          .min_ms = spread.min_ms,
          .max_ms = spread.max_ms,
          .protocol = {.warmup = 2, .repeats = repeats}};
}

}  // namespace

FullSizeCase::Sample::Sample(DeviceCall& call, TensorView part, std::int64_t tokens) {
  part.stride[1] *= std::max<std::int64_t>(part.shape[1] - 1, 1);
  part.shape[1] = std::min<std::int64_t>(part.shape[1], 2);
  const std::int64_t kept = std::min(tokens, part.shape[2]);
  part.stride[2] *= part.shape[2] / kept;
  part.shape[2] = kept;
  bytes = call.read(part);
  view = dense_view(static_cast<const void*>(bytes.data()), part.dtype, Layout::kBHSD, part.shape);
}

FullSizeCase::FullSizeCase(const BenchCase& size, BackendChoice backend) : size_(size) {
  ProgressLine progress(fmt::format("{}: inputs and float64 reference", size.name));
  call_ = with_failures(std::string(size.name), [&] {
    return random_call({size.hq, size.hkv, size.sq, size.skv, size.d}, backend);
  });
  const Arguments& device = call_->arguments();
  const Sample q(*call_, device.q, kCheckedRows), k(*call_, device.k, size.skv),
      v(*call_, device.v, size.skv);
  Arguments host;
  host.q = q.view;
  host.k = k.view;
  host.v = v.view;
  OutputBuffers unused(host.q, Layout::kBHSD);
  reference_ = reference_attention(unused.attach(host), {}, progress.callback());
}

FullSizeResult FullSizeCase::run(const Options& options, int repeats) {
  const std::string source(size_.name);
  const Plan plan = with_failures(source, [&] { return make_plan(call_->arguments(), options); });
  FullSizeResult result{describe(plan), {}};
  ProgressLine progress(fmt::format("{}: {}", size_.name, plan.recipe().name));
  with_failures(source, [&] {
    const auto stages = time_stages(plan, repeats);
    if (stages) result.stages = *stages;
    plan.run();
  });
  result.evaluation.timing = timing_of(result.stages.call, repeats);
  const Sample out(*call_, as_const(plan.arguments().out), kCheckedRows);
  result.evaluation.metrics = measure(out.view, nullptr, reference_);
  result.evaluation.finite = result.evaluation.metrics->finite;
  return result;
}

}  // namespace vcattn::cli
