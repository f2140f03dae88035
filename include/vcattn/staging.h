// Calls whose tensors lie in host memory, run wherever it is best: the tensors are copied to the
// device of the backend that will run the call, and the results back.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "vcattn/plan.h"

namespace vcattn {

/// Copies of a call's tensors in the memory of one backend's device.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;

  /// The call on the device: dense copies of the inputs, outputs of its own.
  virtual const Arguments& arguments() const = 0;
  /// Waits until every run that was enqueued is done.
  virtual void synchronize() = 0;
  /// Waits, then copies out and lse into the host call's own, if there is one.
  virtual void fetch() = 0;
  /// Waits, then copies a view of the call's memory, dense in (batch, heads, tokens, d) order. The
  /// view's channels must lie side by side.
  virtual std::vector<std::byte> read(const TensorView& view) = 0;
};

/// A plan and the copies it runs on.
struct StagedCall {
  std::unique_ptr<DeviceCall> call;
  Plan plan;

  /// Runs and waits until the results lie in the device's memory; `call->fetch()` brings them.
  void run(VSmoothState* state = nullptr, const Progress& progress = {}) const {
    plan.run(state, progress);
    call->synchronize();
  }
};

/// Validates, chooses among all backends of this build (not only those of the tensors' own memory),
/// and copies. The plan's explanation says which backends were passed over and why.
/// @param host  tensors in host memory; they must outlive the result
/// @throws Error as make_plan does
StagedCall stage(const Arguments& host, const Options& options = {});

/// What `stage` would choose, and why, without copying: no tensor is read, and the plan must not be
/// run.
Plan preview(const Arguments& host, const Options& options = {});

}  // namespace vcattn
