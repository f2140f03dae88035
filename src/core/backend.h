// What a backend is to the dispatcher.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "vcattn/plan.h"
#include "vcattn/staging.h"

namespace vcattn {

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

  /// Copies a host call, accepted by `refuses` when placed on `home()`, to that device.
  virtual std::unique_ptr<DeviceCall> stage(const Arguments& host) const = 0;
};

}  // namespace vcattn
