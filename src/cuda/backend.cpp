#include "cuda/backend.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/validate.h"
#include "cuda/prepare/prepare.h"
#include "cuda/sm90/config.h"
#include "cuda/sm90/launch.h"
#include "vcattn/error.h"

namespace vcattn::cuda {
namespace {

constexpr std::int64_t kMaxHeads = 65535;  // of the grid's second and third dimension

void require(cudaError_t status, const char* where) {
  if (status == cudaSuccess) return;
  throw Error(status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDevice,
              where, fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status)));
}

/// Makes a device current for a scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    require(cudaGetDevice(&previous_), "device");
    if (device != previous_) require(cudaSetDevice(device), "device");
  }
  ~DeviceGuard() { cudaSetDevice(previous_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

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
      require(cudaMallocAsync(&data_, bytes, stream), "workspace");
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
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0;
}

int find_variant(const Recipe& recipe, int dim) {
  const auto scores = recipe.qk == QkFormat::kInt8 ? sm90::Scores::kInt8 : sm90::Scores::kE4m3;
  for (int i = 0; i < sm90::kVariantCount; ++i) {
    if (sm90::kVariants[i].dim == dim && sm90::kVariants[i].scores == scores) return i;
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
  if (r.qk == QkFormat::kInt8 && r.scores != ScoreFormat::kWindow) {
    return "scores must be window for INT8 Q and K";
  }
  if (!r.k_mean || !r.hadamard || r.k_tile_mean || r.q_block_mean) {
    return "k_mean and hadamard must be on, k_tile_mean and q_block_mean off";
  }
  if (r.p != PFormat::kExpCast || r.p_reference != PReference::kTile || r.p_top != 126.0F ||
      r.p_beta != 0.0F) {
    return "p must be exp_cast with the tile's reference, top 126 and beta 0";
  }
  if (r.v != VFormat::kE4M3Channel) return "v must be e4m3_channel";
  if (r.v_smooth == VSmooth::kClustered) {
    return "clustered V-Smooth does not run on the GPU yet (supported: v_smooth off, sequence)";
  }
  return {};
}

std::string refuses_arguments(const Arguments& a) {
  if (a.causal || a.mask) return "causal and masked attention run on the cpu backend only";
  if (a.q_segments || a.k_segments) return "packed segments run on the cpu backend only";
  if (a.q_rope || a.k_rope) return "rotary tables run on the cpu backend only";
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
    return reason.empty() ? refuses_recipe(recipe) : reason;
  }

  Choice choose(const Arguments& a, const Recipe& recipe) const override {
    const sm90::Variant& variant = sm90::kVariants[find_variant(recipe, prepare::shape_of(a).dim)];
    return {variant.name,
            {fmt::format("The Hopper kernel for {} scores and head dimension {} runs{}.",
                         variant.scores == sm90::Scores::kInt8 ? "INT8" : "E4M3", variant.dim,
                         a.q.dim() == variant.dim ? "" : " (channels are padded with zeros)")}};
  }

  void run(const Plan& plan, VSmoothState* state, const Progress&) const override {
    const Arguments& a = plan.arguments();
    const Recipe& recipe = plan.recipe();
    if (a.q.empty()) return;
    const DeviceGuard guard(a.device.index);
    const auto stream = static_cast<cudaStream_t>(a.stream);
    const prepare::Shape shape = prepare::shape_of(a);
    const prepare::Workspace workspace = prepare::plan_workspace(shape, a.lse.has_value());
    const StreamBuffer buffer(a.allocator, workspace.bytes, stream);

    prepare::Options options;
    options.int8_scores = recipe.qk == QkFormat::kInt8;
    options.balance = recipe.qk_balance;
    options.demean =
        recipe.v_smooth != VSmooth::kOff && (state == nullptr || state->next_action(true).demean);
    options.refit = recipe.v_mean_refit;
    options.score_scale = effective_scale(a);
    const sm90::AttentionParams params =
        prepare::prepare(a, shape, workspace, options, buffer.data(), stream);
    sm90::attention_launcher(find_variant(recipe, shape.dim))(params, shape.batch, stream);
  }
};

}  // namespace

const Backend& backend() {
  static const CudaBackend kBackend;
  return kBackend;
}

}  // namespace vcattn::cuda
