#include "cuda/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/smoothing.h"
#include "cuda/host/device.h"
#include "vcattn/error.h"

namespace vcattn::cuda {

CudaGrouping::CudaGrouping(std::vector<cluster::Shape> shapes, int device, bool has_lengths)
    : shapes_(std::move(shapes)), offsets_{0}, device_(device), has_lengths_(has_lengths) {
  for (const cluster::Shape& shape : shapes_) {
    offsets_.push_back(offsets_.back() + cluster::grouping_bytes(shape));
  }
  const DeviceGuard guard(device);
  void* data = nullptr;
  check(cudaMalloc(&data, offsets_.back()), "state");
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
  check(cudaMemcpyAsync(data_, other.data_, offsets_.back(), cudaMemcpyDeviceToDevice, stream),
        "state");
}

CudaGrouping::Head CudaGrouping::head_at(std::int64_t entry, std::int64_t head) const {
  // Entries are those of the one dense call, or a call each.
  const bool packed = shapes_.size() > 1;
  const auto entries = packed ? static_cast<std::int64_t>(shapes_.size()) : shapes_[0].batch;
  require_task(entry, entries, head, shapes_[0].heads);
  const std::size_t call = packed ? static_cast<std::size_t>(entry) : 0;
  const cluster::Shape& shape = shapes_[call];
  Head result{shape, buffers(call), (packed ? 0 : entry) * shape.heads + head, shape.tokens};
  if (has_lengths_ && shape.tokens > 0) {
    check(cudaMemcpy(&result.keys, result.grouping.lengths + entry, sizeof result.keys,
                     cudaMemcpyDeviceToHost),
          "state");
  }
  return result;
}

std::vector<std::int32_t> CudaGrouping::permutation(std::int64_t entry, std::int64_t head) const {
  const DeviceGuard guard(device_);
  const Head from = head_at(entry, head);
  std::vector<std::int32_t> order(static_cast<std::size_t>(from.keys));
  check(cudaMemcpy(order.data(), from.grouping.order + from.task * from.shape.tokens,
                   order.size() * sizeof(std::int32_t), cudaMemcpyDeviceToHost),
        "state");
  return order;
}

std::vector<float> CudaGrouping::centroids(std::int64_t entry, std::int64_t head) const {
  const DeviceGuard guard(device_);
  const Head from = head_at(entry, head);
  const std::int64_t count = (from.keys + from.shape.keys_per_cluster - 1) /
                             static_cast<std::int64_t>(from.shape.keys_per_cluster);
  std::vector<float> result(static_cast<std::size_t>(count * from.shape.dim));
  check(cudaMemcpy(result.data(),
                   from.grouping.centroids + from.task * from.shape.clusters * from.shape.dim,
                   result.size() * sizeof(float), cudaMemcpyDeviceToHost),
        "state");
  return result;
}

namespace {

bool same_keys(const cluster::Shape& a, const cluster::Shape& b) {
  return a.batch == b.batch && a.heads == b.heads && a.tokens == b.tokens;
}

/// The state's grouping if it is of keys of these shapes: an order of others says nothing. (Whether
/// the key lengths are the same only the device knows.)
std::shared_ptr<CudaGrouping> usable_grouping(const VSmoothState* state, const Arguments& a,
                                              const std::vector<cluster::Shape>& shapes) {
  if (state == nullptr || state->grouping() == nullptr) return nullptr;
  auto grouping = std::dynamic_pointer_cast<CudaGrouping>(state->grouping());
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
  const auto& its = grouping->shapes();
  const bool usable = std::equal(its.begin(), its.end(), shapes.begin(), shapes.end(), same_keys) &&
                      grouping->has_lengths() == (a.key_lengths != nullptr);
  return usable ? grouping : nullptr;
}

}  // namespace

Smoothing plan_smoothing(const std::vector<Arguments>& calls, const Recipe& recipe,
                         const VSmoothState* state) {
  const Arguments& a = calls.front();
  Smoothing smoothing;
  if (recipe.v_smooth == VSmooth::kClustered) {
    for (const Arguments& call : calls) {
      smoothing.shapes.push_back(cluster::shape_of(call, recipe));
    }
    smoothing.previous = usable_grouping(state, a, smoothing.shapes);
    smoothing.warm =
        smoothing.previous != nullptr && smoothing.previous->shapes() == smoothing.shapes;
  }
  smoothing.action = smoothing_action(recipe.v_smooth, state, smoothing.previous != nullptr);
  if (state == nullptr || !smoothing.action.regroup) return smoothing;

  constexpr long kHolders = 2;  // the state and `smoothing`; a copied state shares its grouping
  if (smoothing.warm && smoothing.previous.use_count() <= kHolders) {
    smoothing.next = smoothing.previous;
    return smoothing;
  }
  smoothing.next =
      std::make_shared<CudaGrouping>(smoothing.shapes, a.device.index, a.key_lengths != nullptr);
  if (smoothing.warm) {
    smoothing.next->copy_from(*smoothing.previous, static_cast<cudaStream_t>(a.stream));
  }
  return smoothing;
}

}  // namespace vcattn::cuda
