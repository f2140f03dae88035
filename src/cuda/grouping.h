// The CUDA backend's part of VSmoothState, and what a call does with it.
#pragma once

#include <memory>
#include <vector>

#include "cuda/cluster/cluster.h"
#include "vcattn/arguments.h"
#include "vcattn/options.h"
#include "vcattn/state.h"

namespace vcattn::cuda {

/// Order and centroids of every (entry, KV head), in memory of its device that is allocated once
/// and written again by later calls of the same shapes. The memory is the state's own, not the
/// call's allocator's, because it outlives the call; freeing it waits for the device.
class CudaGrouping final : public VSmoothState::Grouping {
 public:
  /// @param shapes  of the dense calls that the keys belong to (core/segments.h)
  CudaGrouping(std::vector<cluster::Shape> shapes, int device, bool has_lengths);
  ~CudaGrouping() override;
  CudaGrouping(const CudaGrouping&) = delete;
  CudaGrouping& operator=(const CudaGrouping&) = delete;

  const std::vector<cluster::Shape>& shapes() const { return shapes_; }
  int device() const { return device_; }
  bool has_lengths() const { return has_lengths_; }
  cluster::Grouping buffers(std::size_t call) const {
    return cluster::grouping_at(shapes_[call], data_ + offsets_[call]);
  }
  void copy_from(const CudaGrouping& other, cudaStream_t stream);

  /// Both wait for the device.
  std::vector<std::int32_t> permutation(std::int64_t entry, std::int64_t head) const override;
  std::vector<float> centroids(std::int64_t entry, std::int64_t head) const override;

 private:
  /// One (entry, KV head).
  struct Head {
    cluster::Shape shape;
    cluster::Grouping grouping;  ///< of the whole call
    std::int64_t task;           ///< in that
    std::int32_t keys;           ///< visible ones
  };
  Head head_at(std::int64_t entry, std::int64_t head) const;

  std::vector<cluster::Shape> shapes_;
  std::vector<std::size_t> offsets_;  ///< of each call's buffers, and their end
  int device_;
  bool has_lengths_;
  std::byte* data_ = nullptr;
};

/// What the V-Smooth state asks of a call.
struct Smoothing {
  VSmoothAction action;
  std::vector<cluster::Shape> shapes;      ///< of the dense calls, if they are clustered
  std::shared_ptr<CudaGrouping> previous;  ///< of keys of these shapes, or empty
  bool warm = false;                       ///< its centroids are a start for this call's
  /// What the call writes for the state, `previous` again where nobody else holds that; empty
  /// unless the state asks for a grouping.
  std::shared_ptr<CudaGrouping> next;
};

/// @param calls  the dense calls of the plan
/// @throws Error if the state's grouping is another backend's or another device's.
Smoothing plan_smoothing(const std::vector<Arguments>& calls, const Recipe& recipe,
                         const VSmoothState* state);

}  // namespace vcattn::cuda
