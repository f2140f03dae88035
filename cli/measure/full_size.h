// Cases at full size on a GPU: inputs made on the device, the stages of a call timed one by one.
#pragma once

#include <memory>

#include "cli/bench_cases.h"
#include "cli/measure/evaluation.h"
#include "core/stage_times.h"

namespace vcattn::cli {

struct FullSizeResult {
  Evaluation evaluation;  ///< `timing` is that of a whole call, with the order of the keys at hand
  StageTimes stages;
};

/// One case, which its recipes share.
class FullSizeCase {
 public:
  /// Rows per head held against float64: enough to see a broken kernel, and a second of work.
  static constexpr std::int64_t kCheckedRows = 8;

  /// Makes the inputs on the device, and the float64 answer for some rows of the first and the last
  /// head.
  /// @throws Failure if no backend of that choice makes tensors of its own
  FullSizeCase(const BenchCase& size, BackendChoice backend);

  FullSizeResult run(const Options& options, int repeats);

 private:
  /// A part of a view, on the host: the first and the last head, and some tokens.
  struct Sample {
    explicit Sample(DeviceCall& call, TensorView view, std::int64_t tokens);
    std::vector<std::byte> bytes;
    TensorView view;
  };

  BenchCase size_;
  std::unique_ptr<DeviceCall> call_;
  Reference reference_;
};

}  // namespace vcattn::cli
