// The rows of the public bug table on the GPU: bug_cases_cuda_test is bug_cases_test with this
// runner.
#include "bug_cases/bug_case.h"
#include "cuda/device_call.h"
#include "vcattn/error.h"

namespace vcattn::test {
namespace {

Outcome run_on_gpu(const Arguments& arguments, const Recipe& recipe, VSmoothState* state,
                   const OutputLayout& layout) {
  if (!has_hopper()) throw NotHere("no device of compute capability 9.0");
  DeviceOptions options{.layout = layout};
  if (arguments.key_lengths != nullptr) {
    options.key_lengths.assign(arguments.key_lengths, arguments.key_lengths + arguments.q.batch());
  }
  try {
    return run_on_device(arguments, recipe, options, state);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) throw NotHere(error.what());
    throw;
  }
}

const bool kInstalled = [] {
  runner() = run_on_gpu;
  return true;
}();

}  // namespace
}  // namespace vcattn::test
