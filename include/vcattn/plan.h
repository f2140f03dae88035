// Arguments -> Plan -> run. The plan validates everything, says in words what will run and why, and
// is the only way to a kernel.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "vcattn/arguments.h"
#include "vcattn/options.h"
#include "vcattn/state.h"

namespace vcattn {

class Backend;

/// Called with the fraction done, in [0, 1], never from two threads at once.
using Progress = std::function<void(double)>;

/// A validated call bound to one kernel.
class Plan {
 public:
  Plan(Arguments arguments, Recipe recipe, const Backend& backend, std::string kernel,
       std::vector<std::string> reasons)
      : arguments_(arguments),
        recipe_(std::move(recipe)),
        backend_(&backend),
        kernel_(std::move(kernel)),
        reasons_(std::move(reasons)) {}

  /// Runs the call. May be repeated: the tensors are read again each time. `progress` is called on
  /// the CPU backend, whose calls can take seconds.
  void run(VSmoothState* state = nullptr, const Progress& progress = {}) const;

  const Arguments& arguments() const { return arguments_; }
  const Recipe& recipe() const { return recipe_; }
  std::string backend() const;                           ///< "cpu" or "cuda"
  const std::string& kernel() const { return kernel_; }  ///< e.g. "cpu/tiles-avx3"

  /// Why this backend and kernel, and what each stage does; one sentence per line.
  std::string explain() const;

 private:
  Arguments arguments_;
  Recipe recipe_;
  const Backend* backend_;
  std::string kernel_;
  std::vector<std::string> reasons_;
};

/// Validates and chooses. Throws Error naming the argument, what was given and what is supported.
Plan make_plan(const Arguments& arguments, const Options& options = {});

/// Empty if the call can run, else the reason why not; never throws for bad arguments.
std::string why_not(const Arguments& arguments, const Options& options = {}) noexcept;

/// One row per compiled-in backend: is it usable here, on what device, with which kernels.
struct BackendInfo {
  std::string name;
  bool available = false;
  std::string status;  ///< device names, or the reason why it cannot be used
  std::vector<std::string> kernels;
};
std::vector<BackendInfo> backends();

std::string_view version() noexcept;

}  // namespace vcattn
