// Calls on the GPU from host tensors: inputs are copied to the device with their strides, outputs
// come back with their guard bands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bug_cases/call.h"

namespace vcattn::test {

/// Whether a device that the kernels run on is present; tests skip themselves otherwise.
bool has_hopper();

#define VCATTN_NEEDS_HOPPER() \
  if (!has_hopper()) GTEST_SKIP() << "no device of compute capability 9.0"

/// Device memory with the bytes of a host buffer.
class DeviceBytes {
 public:
  DeviceBytes(const void* host, std::size_t bytes);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  std::byte* data() const { return data_; }
  void copy_back(void* host) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

struct DeviceOptions {
  OutputLayout layout = {};
  std::vector<std::int32_t> key_lengths = {};  ///< empty: all keys
  bool lse = true;
  void* stream = nullptr;
  Allocator allocator = {};
};

/// Runs a call whose arguments name host tensors on the GPU, on poisoned outputs, and fails the
/// test unless exactly they were written. `key_lengths` of the arguments is ignored.
Outcome run_on_device(const Arguments& host, const Recipe& recipe,
                      const DeviceOptions& options = {}, VSmoothState* state = nullptr);

/// The same call on the CPU backend.
Outcome run_on_host(const Arguments& host, const Recipe& recipe, const DeviceOptions& options = {});

/// A recipe the Hopper kernels run: `name` with V-Smooth in sequence order.
Recipe device_recipe(const char* name);

/// Runs a call of host tensors on both backends and expects the GPU's errors against `reference` to
/// be the CPU backend's; prints them after `label`.
void expect_errors_of_the_cpu(const Arguments& host, const Recipe& recipe,
                              const Reference& reference, const std::string& label);

}  // namespace vcattn::test
