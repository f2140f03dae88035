// The CUDA backend's part of VSmoothState, and what a call does with it.
#pragma once

#include <memory>

#include "cuda/cluster/cluster.h"
#include "vcattn/plan.h"
#include "vcattn/state.h"

namespace vcattn::cuda {

/// Order and centroids of every (entry, KV head), in memory of its device that is allocated once
/// and written again by later calls of the same shape. The memory is the state's own, not the
/// call's allocator's, because it outlives the call; freeing it waits for the device.
class CudaGrouping final : public VSmoothState::Grouping {
 public:
  CudaGrouping(const cluster::Shape& shape, int device, bool has_lengths);
  ~CudaGrouping() override;
  CudaGrouping(const CudaGrouping&) = delete;
  CudaGrouping& operator=(const CudaGrouping&) = delete;

  const cluster::Shape& shape() const { return shape_; }
  int device() const { return device_; }
  bool has_lengths() const { return has_lengths_; }
  cluster::Grouping buffers() const { return cluster::grouping_at(shape_, data_); }
  void copy_from(const CudaGrouping& other, cudaStream_t stream);

  /// Both wait for the device.
  std::vector<std::int32_t> permutation(std::int64_t entry, std::int64_t head) const override;
  std::vector<float> centroids(std::int64_t entry, std::int64_t head) const override;

 private:
  std::int32_t key_count(std::int64_t entry) const;

  cluster::Shape shape_;
  int device_;
  bool has_lengths_;
  std::byte* data_ = nullptr;
};

/// What the V-Smooth state asks of a call.
struct Smoothing {
  VSmoothAction action{.regroup = false, .demean = false};
  cluster::Shape shape;
  std::shared_ptr<CudaGrouping> previous;  ///< of keys of this shape, or empty
  bool warm = false;                       ///< its centroids are a start for this call's
};

/// @throws Error if the state's grouping is another backend's or another device's.
Smoothing plan_smoothing(const Plan& plan, const VSmoothState* state);

/// The grouping a call that regroups writes: the previous one again where nobody else holds it.
std::shared_ptr<CudaGrouping> next_grouping(const Smoothing& smoothing, const Arguments& arguments,
                                            cudaStream_t stream);

}  // namespace vcattn::cuda
