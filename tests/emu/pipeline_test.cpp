// The pipeline kernel under many seeds, and with every planted mistake.
#include "cases/pipeline.cuh"

#include <algorithm>

#include "pipeline_data.h"
#include "support.h"

namespace vcattn::emu::test {
namespace {

using crosscheck::Mistake;
using crosscheck::Pipeline;
using crosscheck::PipelineData;

template <Mistake kMistake>
std::vector<float> run_pipeline(const PipelineData& data, int blocks, int tiles, uint64_t seed) {
  std::vector<float> out(static_cast<size_t>(blocks) * 128 * 136);
  GlobalMemory memory;
  memory.add_input("q", data.q);
  memory.add_input("k", data.k);
  memory.add_input("v", data.v);
  memory.add_output("out", out);
  run<Pipeline<kMistake>>({data.q.data(), data.k.data(), data.v.data(), out.data(), tiles}, seed,
                          &memory, {blocks, 1, 1});
  EXPECT_EQ(memory.unwritten_bytes("out"), 0u);
  return out;
}

TEST(Pipeline, ExactUnderManySchedules) {
  const PipelineData data(1, 5, 3);
  const std::vector<float> expected = data.expected();
  for (uint64_t seed = 0; seed < seed_count(25); ++seed) {
    ASSERT_EQ(run_pipeline<Mistake::kNone>(data, 1, 5, seed), expected) << "seed " << seed;
  }
}

TEST(Pipeline, SeveralBlocksAndShortRuns) {
  for (const int tiles : {1, 2, 3}) {
    const PipelineData data(3, tiles, 4);
    EXPECT_EQ(run_pipeline<Mistake::kNone>(data, 3, tiles, 9), data.expected())
        << tiles << " tiles";
  }
}

TEST(Pipeline, PermutedCodesGiveWrongNumbers) {
  const PipelineData data(1, 2, 3);
  EXPECT_NE(run_pipeline<Mistake::kPermutedCodes>(data, 1, 2, 1), data.expected());
}

// Under every seed the mistake is found, as one of these kinds, in these words. Which kind depends
// on how far the asynchronous unit happens to be.
template <Mistake kMistake>
void expect_mistake(const std::vector<FaultKind>& kinds, const std::string& words) {
  const PipelineData data(1, 4, 3);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    try {
      run_pipeline<kMistake>(data, 1, 4, seed);
      ADD_FAILURE() << "not found with seed " << seed;
    } catch (const Fault& fault) {
      EXPECT_TRUE(std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end()) << fault.what();
      EXPECT_TRUE(contains(fault.what(), words)) << fault.what();
    }
  }
}

TEST(PlantedMistake, NoFullWait) {
  expect_mistake<Mistake::kNoFullWait>(
      {FaultKind::kInFlight, FaultKind::kRace, FaultKind::kUninitialized}, "wgmma.mma_async");
}
TEST(PlantedMistake, NoEmptyWait) {
  // Either the copy is caught, or a second arrival in the phase it did not wait for.
  expect_mistake<Mistake::kNoEmptyWait>(
      {FaultKind::kRace, FaultKind::kInFlight, FaultKind::kBarrier}, "by block (0, 0, 0) thread 0");
}
TEST(PlantedMistake, OneWarpArrives) {
  expect_mistake<Mistake::kOneWarpArrives>({FaultKind::kRace, FaultKind::kInFlight},
                                           "wgmma.mma_async");
}
TEST(PlantedMistake, EarlyRelease) {
  expect_mistake<Mistake::kEarlyRelease>({FaultKind::kRace, FaultKind::kInFlight},
                                         "wgmma.mma_async");
}
TEST(PlantedMistake, NoProxyFence) {
  expect_mistake<Mistake::kNoProxyFence>({FaultKind::kProxyFence}, "fence_proxy_async");
}
TEST(PlantedMistake, NoInitFence) {
  expect_mistake<Mistake::kNoInitFence>({FaultKind::kProxyFence}, "fence_mbarrier_init");
}
TEST(PlantedMistake, ExpectTooFew) {
  expect_mistake<Mistake::kExpectTooFew>({FaultKind::kTransaction}, "more bytes are copied");
}
TEST(PlantedMistake, ExpectTooMany) {
  expect_mistake<Mistake::kExpectTooMany>({FaultKind::kDeadlock}, "16 bytes missing");
}
TEST(PlantedMistake, NoWgmmaFence) {
  expect_mistake<Mistake::kNoWgmmaFence>({FaultKind::kWgmmaFence}, "wgmma_fence");
}
TEST(PlantedMistake, NoWgmmaWait) {
  expect_mistake<Mistake::kNoWgmmaWait>({FaultKind::kRegister}, "still accumulates into");
}
TEST(PlantedMistake, NoRegisterFence) {
  expect_mistake<Mistake::kNoRegisterFence>({FaultKind::kRegister}, "without a register_fence");
}
TEST(PlantedMistake, CodesOverwritten) {
  expect_mistake<Mistake::kCodesOverwritten>({FaultKind::kRegister}, "still reads");
}
TEST(PlantedMistake, NoTurnArrive) {
  expect_mistake<Mistake::kNoTurnArrive>({FaultKind::kDeadlock}, "for barrier 2 of 256 threads");
}
TEST(PlantedMistake, DivergentBarrier) {
  expect_mistake<Mistake::kDivergentBarrier>({FaultKind::kDivergence}, "bar.sync");
}
TEST(PlantedMistake, NoStoreFence) {
  expect_mistake<Mistake::kNoStoreFence>({FaultKind::kProxyFence}, "cp.async.bulk.global.shared");
}
TEST(PlantedMistake, ExitInStore) {
  expect_mistake<Mistake::kExitInStore>({FaultKind::kExit}, "bulk stores");
}

}  // namespace
}  // namespace vcattn::emu::test
