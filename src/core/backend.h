// What a backend is to the dispatcher.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/stage_times.h"
#include "vcattn/plan.h"
#include "vcattn/staging.h"

namespace vcattn {

/// A dense call of one batch entry.
struct CallSizes {
  std::int64_t q_heads = 1, kv_heads = 1, queries = 1, keys = 1, dim = 128;
};

/// Stateless and thread safe; one instance per process.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendInfo info() const = 0;

  /// Empty if this backend can run the (already validated) call, else the reason why it cannot.
  virtual std::string refuses(const Arguments& arguments, const Recipe& recipe) const = 0;

  struct Choice {
    std::string kernel;
    std::vector<std::string> reasons;  ///< sentences for Plan::explain
  };
  /// The kernel for a call that `refuses` accepted.
  virtual Choice choose(const Arguments& arguments, const Recipe& recipe) const = 0;

  virtual void run(const Plan& plan, VSmoothState* state, const Progress& progress) const = 0;

  /// The device that host tensors are copied to for this backend.
  virtual Device home() const = 0;

  /// About how many seconds a call from host memory and back takes, copies included, in a process
  /// that has run one before.
  virtual double host_call_seconds(const Arguments& host) const = 0;

  /// Copies a host call, accepted by `refuses` when placed on `home()`, to that device.
  virtual std::unique_ptr<DeviceCall> stage(const Arguments& host) const = 0;

  /// A call on random bfloat16 tensors made on `home()`; nothing if this backend makes none.
  virtual std::unique_ptr<DeviceCall> random_call(const CallSizes&) const { return nullptr; }

  /// Times the stages of a plan of this backend; nothing if it does not run them one by one.
  virtual std::optional<StageTimes> time_stages(const Plan&, int /*repeats*/) const {
    return std::nullopt;
  }
};

}  // namespace vcattn
