#include "cuda/grouping.h"

#include <fmt/format.h>

#include "cuda/host/device.h"
#include "vcattn/error.h"

namespace vcattn::cuda {

CudaGrouping::CudaGrouping(const cluster::Shape& shape, int device, bool has_lengths)
    : shape_(shape), device_(device), has_lengths_(has_lengths) {
  const DeviceGuard guard(device);
  void* data = nullptr;
  require(cudaMalloc(&data, cluster::grouping_bytes(shape)), "state");
  data_ = static_cast<std::byte*>(data);
}

CudaGrouping::~CudaGrouping() {
  int current = 0;  // no guard: it throws, for instance at the end of the process
  if (cudaGetDevice(&current) != cudaSuccess) return;
  cudaSetDevice(device_);
  cudaFree(data_);
  cudaSetDevice(current);
}

void CudaGrouping::copy_from(const CudaGrouping& other, cudaStream_t stream) {
  require(cudaMemcpyAsync(data_, other.data_, cluster::grouping_bytes(shape_),
                          cudaMemcpyDeviceToDevice, stream),
          "state");
}

std::int32_t CudaGrouping::key_count(std::int64_t entry) const {
  std::int32_t count = shape_.tokens;
  if (has_lengths_) {
    require(cudaMemcpy(&count, buffers().lengths + entry, sizeof count, cudaMemcpyDeviceToHost),
            "state");
  }
  return count;
}

std::vector<std::int32_t> CudaGrouping::permutation(std::int64_t entry, std::int64_t head) const {
  require_task(entry, shape_.batch, head, shape_.heads);
  const DeviceGuard guard(device_);
  std::vector<std::int32_t> order(static_cast<std::size_t>(key_count(entry)));
  const std::int64_t task = entry * shape_.heads + head;
  require(cudaMemcpy(order.data(), buffers().order + task * shape_.tokens,
                     order.size() * sizeof(std::int32_t), cudaMemcpyDeviceToHost),
          "state");
  return order;
}

std::vector<float> CudaGrouping::centroids(std::int64_t entry, std::int64_t head) const {
  require_task(entry, shape_.batch, head, shape_.heads);
  const DeviceGuard guard(device_);
  const std::int64_t count = (key_count(entry) + shape_.keys_per_cluster - 1) /
                             static_cast<std::int64_t>(shape_.keys_per_cluster);
  std::vector<float> result(static_cast<std::size_t>(count * shape_.dim));
  const std::int64_t task = entry * shape_.heads + head;
  require(cudaMemcpy(result.data(), buffers().centroids + task * shape_.clusters * shape_.dim,
                     result.size() * sizeof(float), cudaMemcpyDeviceToHost),
          "state");
  return result;
}

namespace {

/// The state's grouping if it is of keys of this shape: an order of others says nothing. (Whether
/// the key lengths are the same only the device knows.)
std::shared_ptr<CudaGrouping> usable_grouping(const VSmoothState& state, const Arguments& a,
                                              const cluster::Shape& shape) {
  if (state.grouping() == nullptr) return nullptr;
  auto grouping = std::dynamic_pointer_cast<CudaGrouping>(state.grouping());
  if (grouping == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "state",
                "its grouping was made by another backend (supported: cuda; reset() it)");
  }
  if (grouping->device() != a.device.index) {
    throw Error(ErrorCode::kInvalidArgument, "state",
                fmt::format("its grouping lies on cuda:{}, the tensors on cuda:{} (supported: the "
                            "same device; reset() it)",
                            grouping->device(), a.device.index));
  }
  const cluster::Shape& its = grouping->shape();
  const bool usable = its.batch == shape.batch && its.heads == shape.heads &&
                      its.tokens == shape.tokens &&
                      grouping->has_lengths() == (a.key_lengths != nullptr);
  return usable ? grouping : nullptr;
}

}  // namespace

Smoothing plan_smoothing(const Plan& plan, const VSmoothState* state) {
  const VSmooth mode = plan.recipe().v_smooth;
  Smoothing smoothing;
  if (mode == VSmooth::kOff) return smoothing;
  if (mode == VSmooth::kSequence) {
    smoothing.action.demean = state == nullptr || state->next_action(true).demean;
    return smoothing;
  }
  smoothing.shape = cluster::shape_of(plan.arguments(), plan.recipe());
  if (state == nullptr) {
    smoothing.action = {};
  } else {
    smoothing.previous = usable_grouping(*state, plan.arguments(), smoothing.shape);
    smoothing.action = state->next_action(smoothing.previous != nullptr);
  }
  smoothing.warm = smoothing.previous != nullptr && smoothing.previous->shape() == smoothing.shape;
  return smoothing;
}

std::shared_ptr<CudaGrouping> next_grouping(const Smoothing& smoothing, const Arguments& a,
                                            cudaStream_t stream) {
  constexpr long kHolders = 2;  // the state and `smoothing`; a copied state shares its grouping
  if (smoothing.warm && smoothing.previous.use_count() <= kHolders) return smoothing.previous;
  auto next =
      std::make_shared<CudaGrouping>(smoothing.shape, a.device.index, a.key_lengths != nullptr);
  if (smoothing.warm) next->copy_from(*smoothing.previous, stream);
  return next;
}

}  // namespace vcattn::cuda
