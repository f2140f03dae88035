#include "cuda/backend.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/call_work.h"
#include "core/segments.h"
#include "core/validate.h"
#include "cuda/grouping.h"
#include "cuda/host/device.h"
#include "cuda/prepare/prepare.h"
#include "cuda/sm90/config.h"
#include "cuda/sm90/launch.h"
#include "cuda/stage_times.h"
#include "cuda/staging.h"
#include "vcattn/error.h"

namespace vcattn::cuda {
namespace {

constexpr std::int64_t kMaxHeads = 65535;  // of the grid's second and third dimension

/// The workspace of a call, in stream order: freed when the kernels that use it are enqueued.
class StreamBuffer {
 public:
  StreamBuffer(const Allocator& allocator, std::size_t bytes, cudaStream_t stream)
      : allocator_(allocator), stream_(stream) {
    if (allocator_.allocate != nullptr) {
      data_ = allocator_.allocate(allocator_.context, bytes, stream);
      if (data_ == nullptr) {
        throw Error(ErrorCode::kOutOfMemory, "allocator",
                    fmt::format("returned no memory for {} bytes of workspace", bytes));
      }
    } else {
      check(cudaMallocAsync(&data_, bytes, stream), "workspace");
    }
  }
  ~StreamBuffer() {
    if (allocator_.allocate == nullptr) {
      cudaFreeAsync(data_, stream_);
    } else if (allocator_.deallocate != nullptr) {
      allocator_.deallocate(allocator_.context, data_, stream_);
    }
  }
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  Allocator allocator_;
  cudaStream_t stream_;
  void* data_ = nullptr;
};

bool is_hopper(int device) {
  int major = 0, minor = 0;
  const bool answered =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  // A device that is not there must not fail the next launch check.
  if (!answered) static_cast<void>(cudaGetLastError());
  return answered && major == 9 && minor == 0;
}

int find_variant(const Recipe& recipe, int dim) {
  const auto scores = recipe.qk == QkFormat::kInt8 ? sm90::Scores::kInt8 : sm90::Scores::kE4m3;
  const auto weights =
      recipe.p == PFormat::kExpCast ? sm90::Weights::kExpCast : sm90::Weights::kExp;
  for (int i = 0; i < sm90::kVariantCount; ++i) {
    const sm90::Variant& variant = sm90::kVariants[i];
    if (variant.dim == dim && variant.scores == scores && variant.weights == weights) return i;
  }
  return -1;
}

/// What the arithmetic of the kernels cannot be.
std::string refuses_recipe(const Recipe& r) {
  if (r.qk != QkFormat::kInt8 && r.qk != QkFormat::kE4M3) {
    return "qk is neither int8 nor e4m3, the formats of the Hopper kernels";
  }
  if (r.q_scale_rows != 1 || r.k_scale_rows != 0) {
    return "q_scale_rows must be 1 and k_scale_rows 0 (one scale per query row, one per K head)";
  }
  if (effective_scores(r) == ScoreFormat::kFloat) {
    return "scores must be window for INT8 Q and K, half for E4M3";
  }
  if (!r.k_mean || !r.qk_sample || !r.hadamard || r.k_tile_mean || r.q_block_mean) {
    return "k_mean, qk_sample and hadamard must be on, k_tile_mean and q_block_mean off";
  }
  const bool int8 = r.qk == QkFormat::kInt8;
  const bool exp_cast = r.p == PFormat::kExpCast && r.p_top == 126.0F && r.p_beta == 0.0F;
  if (!exp_cast && !(int8 && r.p == PFormat::kE4M3Exp)) {
    return "p must be expcast with top 126 and beta 0 (or e4m3-exp with INT8 Q and K)";
  }
  if (r.p_reference != (int8 ? PReference::kTile : PReference::kRunning)) {
    return "p_reference must be tile with INT8 Q and K, running with E4M3";
  }
  if (r.v != VFormat::kE4M3Channel) return "v must be e4m3-channel";
  return {};
}

std::string refuses_arguments(const Arguments& a) {
  if (a.causal || a.mask) return "causal and masked attention run on the cpu backend only";
  if (a.q.dim() > 128) {
    return fmt::format("the head dimension is {} (supported: 1 to 128)", a.q.dim());
  }
  if (!(effective_scale(a) > 0.0F)) return "the scale must be positive";
  if (a.q.batch() > kMaxHeads || a.q.heads() > kMaxHeads) {
    return fmt::format("more than {} heads or batch entries", kMaxHeads);
  }
  constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max() - 256;
  if (a.q.tokens() > kMaxTokens || a.k.tokens() > kMaxTokens) return "more than 2^31 tokens";
  return {};
}

/// The memory of a dense call: grouping comes before preparation and works in the same bytes;
/// behind them lies what has to last.
struct CallMemory {
  std::size_t grouping = 0;  ///< of a call without a state
  std::size_t order = 0;     ///< of a call whose key lengths may not be those of its grouping
  std::size_t bytes = 0;

  CallMemory(std::size_t prepare_bytes, const Smoothing& smoothing, std::size_t number, bool groups)
      : bytes(prepare_bytes) {
    if (!groups) return;
    const cluster::Shape& shape = smoothing.shapes[number];
    if (smoothing.action.regroup || smoothing.previous != nullptr) {
      bytes = std::max(bytes, cluster::workspace_bytes(shape));
    }
    bytes = (bytes + 255) / 256 * 256;
    grouping = order = bytes;
    const bool self_contained = smoothing.action.regroup && smoothing.next == nullptr;
    bytes += self_contained ? cluster::grouping_bytes(shape)
                            : std::size_t{4} * shape.tasks() * shape.tokens;
  }
};

/// One of the dense calls that a call is made of. Each works in the same memory, one after the
/// other.
struct DenseCall {
  const Arguments& a;
  const Recipe& recipe;
  const Smoothing& smoothing;
  std::size_t number;

  const prepare::Shape shape = prepare::shape_of(a);
  const prepare::Workspace workspace =
      prepare::plan_workspace(shape, a.lse.has_value(), recipe.qk_shaping);
  const bool groups = recipe.v_smooth == VSmooth::kClustered && a.k.tokens() > 0;
  const CallMemory memory{workspace.bytes, smoothing, number, groups};

  void run(std::byte* base, cudaStream_t stream) const {
    // A state's grouping is of keys, so it is made for those that no query sees too.
    if (a.q.empty() && smoothing.next == nullptr) return;
    prepare::Options options = prepare::options_of(a, recipe);
    options.demean = smoothing.action.demean;
    if (groups) options.order = group_keys(base, stream);
    if (a.q.empty()) return;
    const sm90::AttentionParams params =
        prepare::prepare(a, shape, workspace, options, base, stream);
    sm90::attention_launcher(find_variant(recipe, shape.dim))(params, shape.batch, stream);
  }

 private:
  /// Enqueues what the state asks for and returns the order of the keys, or nullptr for their own.
  const std::int32_t* group_keys(std::byte* base, cudaStream_t stream) const {
    const cluster::Shape& keys = smoothing.shapes[number];
    cluster::Options options;
    options.iterations = recipe.kmeans_iterations;
    options.order = recipe.cluster_order;
    options.warm = smoothing.warm;
    const bool has_lengths = a.key_lengths != nullptr;
    if (smoothing.next != nullptr) {
      const cluster::Grouping next = smoothing.next->buffers(number);
      if (smoothing.warm && has_lengths) cluster::check_lengths(a, keys, next, stream);
      cluster::group(a, keys, options, next, base, stream);
      return next.order;
    }
    if (smoothing.action.regroup) {
      const cluster::Grouping own = cluster::grouping_at(keys, base + memory.grouping);
      cluster::group(a, keys, options, own, base, stream);
      return own.order;
    }
    if (smoothing.previous == nullptr) return nullptr;
    const cluster::Grouping kept = smoothing.previous->buffers(number);
    if (!has_lengths) return kept.order;
    // Other key lengths mean another grouping inside the schedule's window, none behind it.
    const cluster::Shape& kept_keys = smoothing.previous->shapes()[number];
    cluster::check_lengths(a, kept_keys, kept, stream);
    if (smoothing.action.in_window && smoothing.warm) {
      options.warm = false;
      options.only_if_stale = true;
      cluster::group(a, kept_keys, options, kept, base, stream);
      return kept.order;
    }
    auto* order = reinterpret_cast<std::int32_t*>(base + memory.order);
    cluster::usable_order(kept_keys, kept, order, stream);
    return order;
  }
};

class CudaBackend final : public Backend {
 public:
  BackendInfo info() const override {
    BackendInfo result;
    result.name = "cuda";
    for (const sm90::Variant& variant : sm90::kVariants) result.kernels.emplace_back(variant.name);
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      result.status = fmt::format("no CUDA device ({})", cudaGetErrorString(status));
      return result;
    }
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp properties{};
      if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
      if (!result.status.empty()) result.status += ", ";
      result.status +=
          fmt::format("{} (sm_{}{})", properties.name, properties.major, properties.minor);
      result.available = result.available || is_hopper(i);
    }
    if (!result.available) {
      result.status = fmt::format("no device of compute capability 9.0 among: {}",
                                  result.status.empty() ? "none" : result.status);
    }
    return result;
  }

  std::string refuses(const Arguments& a, const Recipe& recipe) const override {
    if (a.device.kind != Device::Kind::kCuda) {
      return fmt::format("the tensors lie on {} (supported by the cuda backend: device memory)",
                         to_string(a.device));
    }
    if (!is_hopper(a.device.index)) {
      return fmt::format("{} is not of compute capability 9.0 (H100, H200)", to_string(a.device));
    }
    const std::string reason = refuses_arguments(a);
    if (!reason.empty()) return reason;
    if (recipe.v_smooth == VSmooth::kClustered) {
      for (const Arguments& call : dense_calls(a)) {
        const char* grouping = cluster::refuses(cluster::shape_of(call, recipe));
        if (*grouping != '\0') return grouping;
      }
    }
    return refuses_recipe(recipe);
  }

  Choice choose(const Arguments& a, const Recipe& recipe) const override {
    const sm90::Variant& variant = sm90::kVariants[find_variant(recipe, prepare::shape_of(a).dim)];
    Choice choice{
        variant.name,
        {fmt::format("The Hopper kernel for {} scores and head dimension {} runs{}.",
                     variant.scores == sm90::Scores::kInt8 ? "INT8" : "E4M3", variant.dim,
                     a.q.dim() == variant.dim ? "" : " (channels are padded with zeros)")}};
    if (a.q_segments) {
      choice.reasons.push_back(fmt::format(
          "The {} segments run one after the other in the same memory.", a.q_segments->count));
    }
    return choice;
  }

  void run(const Plan& plan, VSmoothState* state, const Progress&) const override {
    const Arguments& a = plan.arguments();
    if (a.q.empty()) return;
    const DeviceGuard guard(a.device.index);
    const auto stream = static_cast<cudaStream_t>(a.stream);
    const std::vector<Arguments> calls = dense_calls(a);
    const Smoothing smoothing = plan_smoothing(calls, plan.recipe(), state);
    const auto dense_call = [&](std::size_t i) {
      return DenseCall{calls[i], plan.recipe(), smoothing, i};
    };
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      bytes = std::max(bytes, dense_call(i).memory.bytes);
    }
    const StreamBuffer buffer(a.allocator, bytes, stream);
    for (std::size_t i = 0; i < calls.size(); ++i) dense_call(i).run(buffer.data(), stream);
    if (smoothing.next != nullptr) state->set_grouping(smoothing.next);
  }

  double host_call_seconds(const Arguments& a) const override {
    // Fitted to bench/results/h200-crossover.json: allocations and launches, copies of pageable
    // memory, the kernels. Launches of each segment: bench/results/h200-packed.json.
    constexpr double kCall = 4.5e-4, kPerSegment = 1.9e-4, kPerElement = 6e-10,
                     kPerMultiplyAdd = 2e-15;
    const auto segments = static_cast<double>(a.q_segments ? a.q_segments->count : 0);
    return kCall + kPerSegment * segments + kPerElement * elements(a) +
           kPerMultiplyAdd * multiply_adds(a);
  }

  /// The first Hopper device.
  Device home() const override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) static_cast<void>(cudaGetLastError());
    for (int i = 0; i < count; ++i) {
      if (is_hopper(i)) return {Device::Kind::kCuda, i};
    }
    return {Device::Kind::kCuda, 0};
  }

  std::unique_ptr<DeviceCall> stage(const Arguments& host) const override {
    return stage_on(host, home().index);
  }

  std::unique_ptr<DeviceCall> random_call(const CallSizes& sizes) const override {
    return random_call_on(sizes, home().index);
  }

  std::optional<StageTimes> time_stages(const Plan& plan, int repeats) const override {
    if (plan.arguments().q_segments) return std::nullopt;
    return cuda::time_stages(plan, *this, repeats);
  }
};

}  // namespace

const Backend& backend() {
  static const CudaBackend kBackend;
  return kBackend;
}

}  // namespace vcattn::cuda
