// The caller's stream, memory, device and threads; CUDA graphs. GPU only: the emulator has one
// stream.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "bug_cases/segments.h"
#include "cuda/device_call.h"

namespace vcattn::test {
namespace {

void check(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A dense call whose tensors stay on one device, to be run more than once.
class ResidentCall {
 public:
  explicit ResidentCall(const Inputs& inputs, int device = 0)
      : host_(inputs.arguments()),
        bytes_(bytes_of(host_.q)),
        lse_bytes_(
            static_cast<std::size_t>(host_.q.shape[0] * host_.q.shape[1] * host_.q.shape[2]) *
            sizeof(float)),
        q_(host_.q.data, bytes_),
        k_(host_.k.data, bytes_of(host_.k)),
        v_(host_.v.data, bytes_of(host_.v)),
        out_(std::vector<std::byte>(bytes_, kPoison).data(), bytes_),
        lse_(std::vector<std::byte>(lse_bytes_, kPoison).data(), lse_bytes_),
        arguments(host_) {
    arguments.q.data = q_.data();
    arguments.k.data = k_.data();
    arguments.v.data = v_.data();
    arguments.out =
        dense_view(static_cast<void*>(out_.data()), host_.q.dtype, Layout::kBHSD, host_.q.shape);
    const Shape& shape = host_.q.shape;
    arguments.lse = LseView{reinterpret_cast<float*>(lse_.data()),
                            {shape[1] * shape[2], shape[2], std::int64_t{1}}};
    arguments.device = {Device::Kind::kCuda, device};
  }

  Plan plan(const Recipe& recipe) const {
    return make_plan(arguments, {.recipe = recipe, .backend = BackendChoice::kCuda});
  }
  /// Output and LSE, once everything is done.
  std::vector<std::byte> result() const {
    check(cudaDeviceSynchronize());
    std::vector<std::byte> both(bytes_ + lse_bytes_);
    out_.copy_back(both.data());
    lse_.copy_back(both.data() + bytes_);
    return both;
  }
  void poison() const {
    check(cudaMemset(out_.data(), static_cast<int>(kPoison), bytes_));
    check(cudaMemset(lse_.data(), static_cast<int>(kPoison), lse_bytes_));
    check(cudaDeviceSynchronize());
  }
  /// Another call's values in this call's memory, in stream order.
  void replace_inputs(const ResidentCall& other, cudaStream_t stream) const {
    const auto copy = [&](const DeviceBytes& to, const DeviceBytes& from, std::size_t bytes) {
      check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream));
    };
    copy(q_, other.q_, bytes_);
    copy(k_, other.k_, bytes_of(host_.k));
    copy(v_, other.v_, bytes_of(host_.v));
  }

 private:
  static constexpr std::byte kPoison{0xFF};
  static std::size_t bytes_of(const TensorView& view) {
    return static_cast<std::size_t>(view.shape[0] * view.shape[1] * view.shape[2] * view.shape[3]) *
           size_bytes(view.dtype);
  }
  Arguments host_;
  std::size_t bytes_, lse_bytes_;
  DeviceBytes q_, k_, v_, out_, lse_;

 public:
  Arguments arguments;
};

Inputs inputs_of(std::uint32_t seed, std::int64_t keys = 900) {
  return Inputs({.q_heads = 2,
                 .queries = 300,
                 .keys = keys,
                 .q = normal(seed),
                 .k = normal(seed + 1),
                 .v = normal(seed + 2)});
}

/// A captured graph, instantiated.
class Graph {
 public:
  template <class Enqueue>
  Graph(cudaStream_t stream, const Enqueue& enqueue) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    enqueue();
    check(cudaStreamEndCapture(stream, &graph_));
    check(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// INT-12 and PRF-08: a captured call, replayed on these and on other values.
TEST(CudaStreams, GraphsReplayBitForBit) {
  VCATTN_NEEDS_HOPPER();
  for (const char* name : {"vc8", "vc8-fast", "vc8-shaped"}) {
    SCOPED_TRACE(name);
    const Inputs first = inputs_of(1), second = inputs_of(11);
    const Stream stream;
    ResidentCall call(first);
    call.arguments.stream = stream;
    const Plan plan = call.plan(recipe(name));
    plan.run();
    const auto expected = call.result();
    const Graph graph(stream, [&] { plan.run(); });
    for (int replay = 0; replay < 3; ++replay) {
      call.poison();
      graph.launch(stream);
      EXPECT_EQ(call.result(), expected) << replay;
    }
    const ResidentCall fresh(second);
    call.replace_inputs(fresh, stream);
    graph.launch(stream);
    fresh.plan(recipe(name)).run();
    EXPECT_EQ(call.result(), fresh.result());
  }
}

/// Packed segments are host data: captured as they are, replayed on other values, with nothing
/// allocated or waited for between one segment and the next.
TEST(CudaStreams, GraphsReplayPackedSegments) {
  VCATTN_NEEDS_HOPPER();
  const Inputs first = inputs_of(1), second = inputs_of(11);
  const auto q_offsets = offsets_of({100, 0, 7, 193}), k_offsets = offsets_of({300, 150, 449, 1});
  const auto packed = [&](ResidentCall& call) {
    call.arguments.q_segments = segments_of(q_offsets);
    call.arguments.k_segments = segments_of(k_offsets);
  };
  const Stream stream;
  ResidentCall call(first), fresh(second);
  packed(call);
  packed(fresh);
  call.arguments.stream = stream;
  const Plan plan = call.plan(recipe("vc8"));
  plan.run();
  const auto expected = call.result();
  const Graph graph(stream, [&] { plan.run(); });
  call.poison();
  graph.launch(stream);
  EXPECT_EQ(call.result(), expected);
  call.replace_inputs(fresh, stream);
  graph.launch(stream);
  fresh.plan(recipe("vc8")).run();
  EXPECT_EQ(call.result(), fresh.result());
  EXPECT_NE(call.result(), expected);
}

/// The steps of a schedule, captured one by one: those that regroup and those that do not.
TEST(CudaStreams, GraphsReplayWithAState) {
  VCATTN_NEEDS_HOPPER();
  const VSmoothSchedule schedule{.steps = 8, .window = 0.5, .refresh = 2};
  Recipe r = recipe("vc8");
  r.keys_per_cluster = 64;
  const Inputs inputs = inputs_of(1);
  const Stream stream;
  ResidentCall captured(inputs), direct(inputs);
  captured.arguments.stream = stream;
  VSmoothState captured_state(schedule), direct_state(schedule);
  captured.plan(r).run(&captured_state);  // makes the state's buffers
  direct.plan(r).run(&direct_state);
  EXPECT_EQ(captured.result(), direct.result());
  for (const int step : {1, 2, 3, 5}) {  // 2 regroups, 5 is behind the window
    SCOPED_TRACE(step);
    captured_state.begin_step(step);
    direct_state.begin_step(step);
    const Plan plan = captured.plan(r);
    const Graph graph(stream, [&] { plan.run(&captured_state); });
    captured.poison();
    graph.launch(stream);
    direct.plan(r).run(&direct_state);
    EXPECT_EQ(captured.result(), direct.result());
    EXPECT_EQ(captured_state.grouping()->permutation(0, 1),
              direct_state.grouping()->permutation(0, 1));
  }
}

/// INT-10: inputs that are written on the stream just before, and a stream that is still busy when
/// the call returns.
TEST(CudaStreams, WorkIsEnqueuedOnTheCallersStream) {
  VCATTN_NEEDS_HOPPER();
  const Inputs before = inputs_of(1), inputs = inputs_of(21);
  const Stream stream;
  const ResidentCall fresh(inputs);
  ResidentCall call(before);
  call.arguments.stream = stream;
  const Plan plan = call.plan(recipe("vc8"));
  plan.run();  // kernels are loaded
  call.poison();

  // The stream waits for this thread, so a call that waited for the stream would not return. A
  // watchdog ends the wait then.
  struct Gate {
    std::atomic<bool> open = false, timed_out = false;
  } gate;
  check(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        auto* g = static_cast<Gate*>(data);
        for (int i = 0; i < 5000 && !g->open; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        g->timed_out = !g->open;
      },
      &gate));
  call.replace_inputs(fresh, stream);
  plan.run();
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  gate.open = true;
  const auto result = call.result();
  EXPECT_FALSE(gate.timed_out) << "the call waited for its stream";
  fresh.plan(recipe("vc8")).run();
  EXPECT_EQ(result, fresh.result());
}

/// What a caller's allocator was asked for.
struct Ledger {
  std::map<void*, std::size_t> live;
  std::size_t total = 0, calls = 0;
  cudaStream_t stream = nullptr;
  bool wrong_stream = false;

  Allocator allocator() {
    return {[](void* context, std::size_t bytes, void* on) -> void* {
              auto* self = static_cast<Ledger*>(context);
              self->wrong_stream = self->wrong_stream || on != self->stream;
              void* pointer = nullptr;
              if (cudaMalloc(&pointer, bytes) != cudaSuccess) return nullptr;
              cudaMemset(pointer, 0xFF, bytes);  // NaN wherever it is read before it is written
              self->live[pointer] = bytes;
              self->total += bytes;
              ++self->calls;
              return pointer;
            },
            [](void* context, void* pointer, void* on) {
              auto* self = static_cast<Ledger*>(context);
              self->wrong_stream = self->wrong_stream || on != self->stream;
              EXPECT_EQ(self->live.erase(pointer), 1U);
              cudaFree(pointer);
            },
            this};
  }
};

/// Bytes that stream-ordered allocation ever held at once since the last reset.
std::uint64_t pool_high_water(bool reset) {
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t high = 0;
  if (reset) check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
  check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
  return high;
}

TEST(CudaStreams, WorkspaceComesFromTheCallersAllocator) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs = inputs_of(1);
  for (const char* name : {"vc8", "vc8-fast", "vc8-shaped", "vc8:sequence"}) {
    SCOPED_TRACE(name);
    Recipe r = recipe(std::string(name).substr(0, std::string(name).find(':')));
    if (std::string(name).find(':') != std::string::npos) r.v_smooth = VSmooth::kSequence;
    const Stream stream;
    ResidentCall call(inputs);
    call.arguments.stream = stream;
    pool_high_water(true);
    call.plan(r).run();
    const auto expected = call.result();
    EXPECT_GT(pool_high_water(false), 0U) << "the default is the device's pool";

    Ledger ledger;
    ledger.stream = stream;
    call.arguments.allocator = ledger.allocator();
    call.poison();
    pool_high_water(true);
    std::size_t free_before = 0, free_after = 0, all = 0;
    check(cudaMemGetInfo(&free_before, &all));
    call.plan(r).run();
    EXPECT_EQ(call.result(), expected);
    EXPECT_EQ(pool_high_water(false), 0U) << "memory from elsewhere";
    check(cudaMemGetInfo(&free_after, &all));
    EXPECT_EQ(free_after, free_before) << "memory that stayed";
    EXPECT_GT(ledger.total, 0U);
    EXPECT_TRUE(ledger.live.empty()) << "memory that was not given back";
    EXPECT_FALSE(ledger.wrong_stream);
  }
}

TEST(CudaStreams, AnAllocatorWithoutMemoryIsAnError) {
  VCATTN_NEEDS_HOPPER();
  ResidentCall call(inputs_of(1));
  call.arguments.allocator.allocate = [](void*, std::size_t, void*) -> void* { return nullptr; };
  try {
    call.plan(recipe("vc8")).run();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("allocator"), std::string::npos) << error.what();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

/// DST-03: threads with streams of their own, each with its own values, several times over.
TEST(CudaStreams, ThreadsDoNotDisturbEachOther) {
  VCATTN_NEEDS_HOPPER();
  constexpr int kThreads = 8;
  std::vector<Inputs> inputs;
  std::vector<std::vector<std::byte>> expected, found(kThreads);
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    inputs.push_back(inputs_of(100 + 10 * i, 700 + 37 * i));
    const ResidentCall call(inputs.back());
    call.plan(recipe(i % 2 == 0 ? "vc8" : "vc8-fast")).run();
    expected.push_back(call.result());
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Stream stream;
      ResidentCall call(inputs[i]);
      call.arguments.stream = stream;
      for (int repeat = 0; repeat < 10; ++repeat) {
        call.plan(recipe(i % 2 == 0 ? "vc8" : "vc8-fast")).run();
      }
      found[i] = call.result();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kThreads; ++i) EXPECT_EQ(found[i], expected[i]) << "thread " << i;
}

/// CRA-02, DST-04: the tensors' device is used whatever the current one is, which stays.
TEST(CudaStreams, TheCurrentDeviceStays) {
  VCATTN_NEEDS_HOPPER();
  int devices = 0, current = -1;
  check(cudaGetDeviceCount(&devices));
  const Inputs inputs = inputs_of(1);
  std::vector<std::byte> expected;
  for (int device = 0; device < std::min(devices, 2); ++device) {
    check(cudaSetDevice(device));
    const ResidentCall call(inputs, device);
    check(cudaSetDevice(0));
    call.plan(recipe("vc8")).run();
    check(cudaGetDevice(&current));
    EXPECT_EQ(current, 0);
    check(cudaSetDevice(device));
    const auto result = call.result();
    if (device == 0) expected = result;
    EXPECT_EQ(result, expected) << "device " << device;
  }
  check(cudaSetDevice(0));
}

/// CRA-02: a device that is not there is refused by name, and no error is left behind.
TEST(CudaStreams, AnAbsentDeviceIsRefused) {
  VCATTN_NEEDS_HOPPER();
  const Inputs inputs = inputs_of(1);
  const ResidentCall call(inputs);
  Arguments a = call.arguments;
  a.device.index = 63;
  const std::string reason = why_not(a, {.backend = BackendChoice::kCuda});
  EXPECT_NE(reason.find("63"), std::string::npos) << reason;
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  call.plan(recipe("vc8")).run();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace
}  // namespace vcattn::test
