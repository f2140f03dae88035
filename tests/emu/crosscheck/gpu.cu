// Runs every case on the GPU and writes what came out: vcattn_crosscheck_gpu FILE.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../pipeline_data.h"
#include "cases/pipeline.cuh"
#include "cuda/ptx/shell.cuh"
#include "inputs.h"
#include "record.h"
#include "table.cuh"

namespace vcattn::crosscheck {
namespace {

void check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), cudaGetErrorString(error));
  std::exit(1);
}

class DeviceBytes {
 public:
  DeviceBytes(const void* data, size_t bytes) : DeviceBytes(bytes) {
    check(cudaMemcpy(p_, data, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
  }
  explicit DeviceBytes(size_t bytes) {
    check(cudaMalloc(&p_, bytes), "cudaMalloc");
    check(cudaMemset(p_, 0xFF, bytes), "cudaMemset");
  }
  ~DeviceBytes() { cudaFree(p_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  template <class T>
  T* as() {
    return static_cast<T*>(p_);
  }

 private:
  void* p_ = nullptr;
};

template <class Kernel>
void launch(const std::string& name, int blocks, int cluster, typename Kernel::Params params) {
  void (*kernel)(typename Kernel::Params) = ptx::shell<Kernel>;
  const auto bytes = static_cast<int>(ptx::shared_bytes<Kernel>);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(Kernel::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, params), name);
  check(cudaDeviceSynchronize(), name);
}

struct RunOnGpu {
  Recording* recording;

  template <class Case>
  void operator()(const std::string& name) {
    for (int regime = 0; regime < kRegimes; ++regime) {
      InputMaker maker(name, regime);
      const auto a = maker.make(Case::kInputs[0]), b = maker.make(Case::kInputs[1]),
                 c = maker.make(Case::kInputs[2]);
      DeviceBytes da(a.data(), a.size()), db(b.data(), b.size()), dc(c.data(), c.size());
      std::vector<uint32_t> out(Case::kOutputWords);
      DeviceBytes dout(out.size() * 4);
      launch<Case>(name, blocks_of<Case>(), cluster_of<Case>(),
                   {{da.as<uint8_t>(), db.as<uint8_t>(), dc.as<uint8_t>()}, dout.as<uint32_t>()});
      check(cudaMemcpy(out.data(), dout.as<uint32_t>(), out.size() * 4, cudaMemcpyDeviceToHost),
            name);
      (*recording)[name + "/" + std::to_string(regime)] = std::move(out);
    }
  }
};

void run_pipeline(Recording& recording) {
  const PipelineData data(kPipelineBlocks, kPipelineTiles, 21);
  DeviceBytes q(data.q.data(), data.q.size()), k(data.k.data(), data.k.size()),
      v(data.v.data(), data.v.size());
  std::vector<uint32_t> out(static_cast<size_t>(kPipelineBlocks) * 128 * 136);
  DeviceBytes dout(out.size() * 4);
  launch<Pipeline<Mistake::kNone>>(
      "pipeline", kPipelineBlocks, 1,
      {q.as<uint8_t>(), k.as<uint8_t>(), v.as<uint8_t>(), dout.as<float>(), kPipelineTiles});
  check(cudaMemcpy(out.data(), dout.as<uint32_t>(), out.size() * 4, cudaMemcpyDeviceToHost),
        "pipeline");
  recording["pipeline"] = std::move(out);
}

}  // namespace
}  // namespace vcattn::crosscheck

int main(int argc, char** argv) {
  using namespace vcattn::crosscheck;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  Recording recording;
  RunOnGpu run{&recording};
  visit_all(run);
  run_pipeline(recording);
  save(recording, argv[1]);
  std::printf("%zu results written to %s\n", recording.size(), argv[1]);
}
