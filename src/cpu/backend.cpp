#include "cpu/backend.h"

#include <fmt/format.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "core/call_work.h"
#include "core/progress.h"
#include "core/smoothing.h"
#include "core/validate.h"
#include "cpu/attend.h"
#include "cpu/cluster.h"
#include "cpu/grouping.h"
#include "cpu/tile.h"
#include "vcattn/error.h"

namespace vcattn::cpu {
namespace {

using oneapi::tbb::parallel_for;

std::string kernel_name() { return "cpu/tiles-" + simd_name(); }

/// The visible keys of each (entry, KV head), in that order.
using Visible = std::vector<std::vector<std::int32_t>>;

Visible all_visible_keys(const Arguments& a, const std::vector<Entry>& all) {
  Visible visible;
  for (const Entry& entry : all) {
    for (std::int64_t h = 0; h < a.k.heads(); ++h) visible.push_back(visible_keys(a, entry, h));
  }
  return visible;
}

/// What the V-Smooth state asks of this call, with the grouping it may reuse and the one it makes.
struct Smoothing {
  VSmoothAction action;
  std::shared_ptr<const CpuGrouping> previous;  ///< of exactly these keys, or empty
  std::shared_ptr<CpuGrouping> next;            ///< empty unless this call groups
};

/// The state's grouping if it is of exactly these keys: a permutation of others says nothing.
std::shared_ptr<const CpuGrouping> usable_grouping(const VSmoothState* state,
                                                   const Visible& visible) {
  if (state == nullptr || state->grouping() == nullptr) return nullptr;
  auto grouping = std::dynamic_pointer_cast<const CpuGrouping>(state->grouping());
  if (grouping == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "state",
                "its grouping was made by another backend (supported: cpu; reset() it)");
  }
  return grouping->is_of(visible) ? grouping : nullptr;
}

Smoothing plan_smoothing(const Plan& plan, const VSmoothState* state, const Visible& visible) {
  const VSmooth mode = plan.recipe().v_smooth;
  Smoothing smoothing;
  if (mode == VSmooth::kClustered) smoothing.previous = usable_grouping(state, visible);
  smoothing.action = smoothing_action(mode, state, smoothing.previous != nullptr);
  if (smoothing.action.regroup) {
    const std::int64_t heads = plan.arguments().k.heads();
    smoothing.next = std::make_shared<CpuGrouping>(visible, heads);
  }
  return smoothing;
}

/// The order in which visible keys are processed.
std::vector<std::int32_t> group_keys(const Recipe& recipe, const Rows& values,
                                     const HeadGrouping* previous, HeadGrouping* next) {
  if (next == nullptr) {
    if (previous != nullptr) return previous->order;
    std::vector<std::int32_t> order(static_cast<std::size_t>(values.count));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  const std::int64_t clusters =
      (values.count + recipe.keys_per_cluster - 1) / recipe.keys_per_cluster;
  const bool warm = previous != nullptr && previous->centroids.count == clusters &&
                    previous->centroids.dim == values.dim;
  next->centroids = warm ? previous->centroids : initial_centroids(values, clusters);
  const int iterations =
      warm ? std::max(1, recipe.kmeans_iterations / 2) : recipe.kmeans_iterations;
  next->order = cluster(values, next->centroids, iterations, recipe.cluster_order);
  return next->order;
}

std::vector<std::int64_t> absolute(const std::vector<std::int32_t>& keys, std::int64_t begin) {
  std::vector<std::int64_t> tokens;
  tokens.reserve(keys.size());
  for (const std::int32_t key : keys) tokens.push_back(begin + key);
  return tokens;
}

std::vector<std::int64_t> query_tokens(const Entry& entry) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(entry.q_count));
  std::iota(tokens.begin(), tokens.end(), entry.q_begin);
  return tokens;
}

/// Mean square of each channel over the query heads that share a KV head, and over the sample.
std::vector<double> query_energy(const Arguments& a, const Entry& entry, std::int64_t kv_head,
                                 bool sampling) {
  const std::int64_t dim = padded_dim(a.q.dim()), group = a.q.heads() / a.k.heads();
  const auto sample = numerics::row_sample(static_cast<int>(entry.q_count), sampling);
  std::vector<double> energy(static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const std::vector<double> head =
        channel_energy(load_rows(a.q, entry.batch, h, query_tokens(entry), a.q_rope, dim), sample);
    for (std::int64_t c = 0; c < dim; ++c) energy[c] += head[c] / static_cast<double>(group);
  }
  return energy;
}

/// Feedback for rounding the keys: from all queries of the KV head, balanced and rotated.
Feedback key_feedback(const Arguments& a, const Recipe& recipe, const Entry& entry,
                      std::int64_t kv_head, const std::vector<float>& balance) {
  const std::int64_t dim = padded_dim(a.q.dim()), group = a.q.heads() / a.k.heads();
  std::vector<double> gram;
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    Rows rows = load_rows(a.q, entry.batch, h, query_tokens(entry), a.q_rope, dim);
    if (recipe.qk_balance) scale_channels(rows, balance);
    if (recipe.hadamard) rotate_hadamard(rows);
    const int count = static_cast<int>(rows.count);
    add_gram(rows, numerics::gram_sample(count, recipe.qk_sample), gram);
  }
  return make_feedback(gram, dim);
}

void prepare_values(const Recipe& recipe, bool demean, Rows values, KeyValues& kv) {
  if (demean) {
    kv.means = block_means(values);
    subtract_block_means(values, kv.means);
  }
  const Rows quantized = quantize_values(values, recipe.v, recipe.nvfp4_scale).values;
  if (demean && recipe.v_mean_refit) refit_means(kv.means, values, quantized);
  kv.v_tiles = padded_tiles(quantized);
}

KeyValues prepare_keys_and_values(const Plan& plan, const Entry& entry, std::int64_t kv_head,
                                  const std::vector<std::int32_t>& visible,
                                  const Smoothing& smoothing, std::int64_t task) {
  const Arguments& a = plan.arguments();
  const Recipe& recipe = plan.recipe();
  const std::int64_t dim = padded_dim(a.q.dim());
  const std::vector<std::int64_t> tokens = absolute(visible, entry.k_begin);

  KeyValues kv;
  Rows values = load_rows(a.v, entry.batch, kv_head, tokens, std::nullopt, dim);
  const std::vector<std::int32_t> order =
      group_keys(recipe, values, smoothing.previous ? &smoothing.previous->at(task) : nullptr,
                 smoothing.next ? &smoothing.next->at(task) : nullptr);
  for (const std::int32_t i : order) kv.keys.push_back(visible[i]);

  prepare_values(recipe, smoothing.action.demean, permute(values, order), kv);

  Rows keys = load_rows(a.k, entry.batch, kv_head, tokens, a.k_rope, dim);
  const auto sample = numerics::row_sample(static_cast<int>(keys.count), recipe.qk_sample);
  if (recipe.k_mean) {
    kv.k_mean = mean_row(keys, sample);
    subtract(keys, kv.k_mean);
  }
  if (recipe.qk_balance) {
    kv.balance = balance_factors(query_energy(a, entry, kv_head, recipe.qk_sample),
                                 channel_energy(keys, sample));
    std::vector<float> inverse;
    for (const float factor : kv.balance) inverse.push_back(1.0F / factor);
    scale_channels(keys, inverse);
  }
  if (recipe.hadamard) rotate_hadamard(keys);
  std::optional<Feedback> feedback;
  if (recipe.qk_shaping) {
    feedback = key_feedback(a, recipe, entry, kv_head, kv.balance);
    std::vector<double> gram;
    const int count = static_cast<int>(keys.count);
    add_gram(keys, numerics::gram_sample(count, recipe.qk_sample), gram);
    kv.shaping = make_feedback(gram, dim);
  }
  const Feedback* shaping = feedback ? &*feedback : nullptr;
  keys = permute(keys, order);
  if (recipe.k_tile_mean) {
    kv.key_means = block_means(keys);
    subtract_block_means(keys, kv.key_means);
  }
  const QkOperand operand =
      effective_scores(recipe) == ScoreFormat::kHalf
          ? quantize_keys_half(keys, shaping)
          : quantize_rows(keys, recipe.qk, recipe.k_scale_rows, recipe.nvfp4_scale, shaping);
  kv.k_tiles = transposed_tiles(operand.values);
  kv.key_scales = operand.row_scales;
  kv.key_scales.resize(kv.k_tiles.size() / static_cast<std::size_t>(dim), 1.0F);
  if (recipe.q_block_mean) kv.smoothed_k_tiles = transposed_tiles(keys);
  return kv;
}

QkOperand quantize_queries(const Arguments& a, const Recipe& recipe, const Rows& rows,
                           const KeyValues& kv) {
  // Without keys there is no scale of theirs to go by, and nothing to score.
  const ScoreFormat scores = kv.count() > 0 ? effective_scores(recipe) : ScoreFormat::kFloat;
  const Feedback* shaping = kv.shaping ? &*kv.shaping : nullptr;
  switch (scores) {
    case ScoreFormat::kWindow:
      return quantize_rows_windowed(rows, codes_per_score(a), kv.key_scales[0], shaping);
    case ScoreFormat::kHalf:
      return quantize_queries_half(rows, codes_per_score(a), kv.key_scales[0], shaping);
    case ScoreFormat::kFloat:
      break;
  }
  return quantize_rows(rows, recipe.qk, recipe.q_scale_rows, recipe.nvfp4_scale, shaping);
}

Queries prepare_queries(const Plan& plan, const Entry& entry, std::int64_t q_head,
                        const KeyValues& kv) {
  const Arguments& a = plan.arguments();
  const Recipe& recipe = plan.recipe();
  Queries queries;
  Rows rows =
      load_rows(a.q, entry.batch, q_head, query_tokens(entry), a.q_rope, padded_dim(a.q.dim()));
  if (!kv.k_mean.empty()) {
    for (std::int64_t i = 0; i < rows.count; ++i) {
      queries.lse_shift.push_back(
          std::inner_product(kv.k_mean.begin(), kv.k_mean.end(), rows.row(i), 0.0F));
    }
  }
  if (!kv.balance.empty()) scale_channels(rows, kv.balance);
  if (recipe.hadamard) rotate_hadamard(rows);
  if (recipe.k_tile_mean) queries.rows = rows;
  if (recipe.q_block_mean) {
    queries.block_means = block_means(rows);
    subtract_block_means(rows, queries.block_means);
  }
  queries.operand = quantize_queries(a, recipe, rows, kv);
  return queries;
}

/// Host tensors are where the CPU wants them.
class HostCall final : public DeviceCall {
 public:
  explicit HostCall(const Arguments& arguments) : arguments_(arguments) {}
  const Arguments& arguments() const override { return arguments_; }
  void synchronize() override {}
  void fetch() override {}
  std::vector<std::byte> read(const TensorView& view) override {
    const std::size_t row = static_cast<std::size_t>(view.dim()) * size_bytes(view.dtype);
    std::vector<std::byte> dense;
    for (std::int64_t b = 0; b < view.batch(); ++b) {
      for (std::int64_t h = 0; h < view.heads(); ++h) {
        for (std::int64_t s = 0; s < view.tokens(); ++s) {
          const auto* from =
              static_cast<const std::byte*>(view.data) +
              view.offset(b, h, s, 0) * static_cast<std::int64_t>(size_bytes(view.dtype));
          dense.insert(dense.end(), from, from + row);
        }
      }
    }
    return dense;
  }

 private:
  Arguments arguments_;
};

class CpuBackend final : public Backend {
 public:
  BackendInfo info() const override {
    return {"cpu",
            true,
            fmt::format("{} threads, {}", oneapi::tbb::info::default_concurrency(), simd_name()),
            {kernel_name()}};
  }

  std::string refuses(const Arguments& arguments, const Recipe&) const override {
    if (arguments.device.kind == Device::Kind::kCpu) return {};
    return fmt::format("the tensors lie on {} (supported by the cpu backend: host memory)",
                       to_string(arguments.device));
  }

  Choice choose(const Arguments&, const Recipe&) const override {
    return {kernel_name(),
            {fmt::format("The CPU backend multiplies decoded operands in float32 with {}.",
                         simd_name())}};
  }

  void run(const Plan& plan, VSmoothState* state, const Progress& progress) const override {
    const Arguments& a = plan.arguments();
    if (a.q.empty()) return;
    const std::vector<Entry> all = entries(a);
    const auto entry_count = static_cast<std::int64_t>(all.size());
    const std::int64_t kv_heads = a.k.heads(), group = a.q.heads() / kv_heads;
    const Visible visible = all_visible_keys(a, all);
    const Smoothing smoothing = plan_smoothing(plan, state, visible);
    ProgressCounter counter(progress,
                            a.q.heads() * std::accumulate(all.begin(), all.end(), std::int64_t{0},
                                                          [](std::int64_t sum, const Entry& e) {
                                                            return sum + e.q_count;
                                                          }));

    parallel_for(std::int64_t{0}, entry_count * kv_heads, [&](std::int64_t task) {
      const Entry& entry = all[task / kv_heads];
      const std::int64_t kv_head = task % kv_heads;
      // Isolated: a thread that waits here must not start another head and hold its operands too.
      oneapi::tbb::this_task_arena::isolate([&] {
        const KeyValues kv =
            prepare_keys_and_values(plan, entry, kv_head, visible[task], smoothing, task);
        for (std::int64_t q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
          const Queries queries = prepare_queries(plan, entry, q_head, kv);
          const AttendContext context{a, plan.recipe(), entry, q_head};
          const std::int64_t blocks = (entry.q_count + kBlockQueries - 1) / kBlockQueries;
          parallel_for(std::int64_t{0}, blocks, [&](std::int64_t block) {
            const std::int64_t first = block * kBlockQueries;
            attend_rows(context, queries, kv, first);
            counter.add(std::min(kBlockQueries, entry.q_count - first));
          });
        }
      });
    });
    if (state != nullptr && smoothing.next != nullptr) state->set_grouping(smoothing.next);
  }

  double host_call_seconds(const Arguments& a) const override {
    // Fitted to bench/results/h200-crossover.json: preparation on a thread per KV head, tiles on
    // one per 128 query rows of a head. Two threads of a core are worth one.
    constexpr double kCall = 3e-4, kPerToken = 4e-6, kPerMultiplyAdd = 1.6e-11;
    const double cores = std::max(oneapi::tbb::info::default_concurrency() / 2, 1);
    const auto heads = static_cast<double>(a.q.batch() * a.q.heads());
    const auto kv_heads = static_cast<double>(a.q.batch() * a.k.heads());
    const double tasks = heads * std::ceil(static_cast<double>(a.q.tokens()) / kBlockQueries);
    const double prepare = kPerToken * static_cast<double>(a.k.tokens()) * kv_heads;
    return kCall + prepare / std::clamp(kv_heads, 1.0, cores) +
           kPerMultiplyAdd * multiply_adds(a) / std::clamp(tasks, 1.0, cores);
  }

  Device home() const override { return {}; }

  std::unique_ptr<DeviceCall> stage(const Arguments& host) const override {
    return std::make_unique<HostCall>(host);
  }
};

}  // namespace

const Backend& backend() {
  static const CpuBackend kBackend;
  return kBackend;
}

}  // namespace vcattn::cpu
