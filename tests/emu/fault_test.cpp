// Small kernels with one mistake each, outside what the pipeline's mistakes cover. Every one must
// stop under every seed, with words that name the cause.
#include "support.h"

namespace vcattn::emu::test {
namespace {

// A kernel from a function: Tag::run(p, s).
struct FaultParams {
  uint8_t* global;  // 4,096 bytes, aligned to 16
};
struct FaultStorage {
  alignas(1024) uint8_t bytes[4096];
  uint32_t word;
  ptx::Mbarrier bar;
};
template <int kBlockThreads, int kCluster = 1>
struct FaultKernel {
  static constexpr int kThreads = kBlockThreads, kBlocksPerSm = 1, kClusterSize = kCluster;
  using Params = FaultParams;
  using SharedStorage = FaultStorage;
};

alignas(16) uint8_t global_bytes[4096];

template <class Kernel>
void expect_fault(FaultKind kind, const std::string& words, Dim3 grid = {1, 1, 1}) {
  const std::string message = fault_of<Kernel>(kind, {global_bytes}, 12, grid);
  EXPECT_TRUE(contains(message, words)) << message;
  EXPECT_TRUE(contains(message, "fault_test.cpp:") || kind == FaultKind::kExit) << message;
}

void start_barrier(FaultStorage& s, int arrivals) {
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(s.bar, arrivals);
    ptx::fence_mbarrier_init();
  }
  ptx::block_sync();
}

struct ReadsUnwritten : FaultKernel<32> {
  static void run(const Params&, SharedStorage& s) { ptx::load_shared<uint32_t>(&s.word); }
};
TEST(Fault, ReadsUnwrittenSharedMemory) {
  expect_fault<ReadsUnwritten>(FaultKind::kUninitialized, "nobody has written");
}

struct NoBlockSync : FaultKernel<128> {
  static void run(const Params&, SharedStorage& s) {
    const int t = ptx::thread_index();
    ptx::store_shared(&s.bytes[4 * t], 1u);
    ptx::warp_sync();
    ptx::load_shared<uint32_t>(&s.bytes[4 * (t ^ 32)]);
  }
};
TEST(Fault, MissingBlockBarrier) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    try {
      run<NoBlockSync>({global_bytes}, seed);
      ADD_FAILURE();
    } catch (const Fault& fault) {  // whichever comes first
      EXPECT_TRUE(fault.kind == FaultKind::kRace || fault.kind == FaultKind::kUninitialized)
          << fault.what();
    }
  }
}

struct NoWarpSync : FaultKernel<32> {
  static void run(const Params&, SharedStorage& s) {
    const int t = ptx::thread_index();
    ptx::store_shared(&s.bytes[4 * t], 1u);
    ptx::vote_any(true);  // lanes meet, but memory is not ordered
    ptx::load_shared<uint32_t>(&s.bytes[4 * (t ^ 1)]);
  }
};
TEST(Fault, MissingWarpSync) { expect_fault<NoWarpSync>(FaultKind::kRace, "st.shared"); }

struct ReadThenOverwrite : FaultKernel<64> {
  static void run(const Params&, SharedStorage& s) {
    const int t = ptx::thread_index();
    if (t == 0) ptx::store_shared(&s.word, 1u);
    ptx::block_sync();
    ptx::load_shared<uint32_t>(&s.word);
    if (t == 0) ptx::store_shared(&s.word, 2u);
  }
};
TEST(Fault, OverwritesWhatOthersMayStillRead) {
  expect_fault<ReadThenOverwrite>(FaultKind::kRace, "ld.shared");
}

struct Misaligned : FaultKernel<32> {
  static void run(const Params&, SharedStorage& s) { ptx::store_shared(&s.bytes[2], 1u); }
};
TEST(Fault, MisalignedStore) {
  expect_fault<Misaligned>(FaultKind::kAlignment, "not aligned to 4");
}

struct OutOfShared : FaultKernel<32> {
  static void run(const Params&, SharedStorage& s) { ptx::store_shared(&s + 1, 1u); }
};
TEST(Fault, OutsideSharedMemory) {
  expect_fault<OutOfShared>(FaultKind::kBounds, "outside the block's");
}

struct TouchesBarrier : FaultKernel<32> {
  static void run(const Params&, SharedStorage& s) {
    start_barrier(s, 1);
    ptx::load_shared<uint32_t>(&s.bar);
  }
};
TEST(Fault, OrdinaryAccessToABarrier) {
  expect_fault<TouchesBarrier>(FaultKind::kInvalid, "live mbarrier");
}

struct UsesBarrierTooEarly : FaultKernel<64> {
  static void run(const Params&, SharedStorage& s) {
    if (ptx::thread_index() == 0) ptx::mbarrier_init(s.bar, 64);
    ptx::mbarrier_arrive(s.bar);
  }
};
TEST(Fault, BarrierUsedBeforeItIsKnownToExist) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    try {
      run<UsesBarrierTooEarly>({global_bytes}, seed);
      ADD_FAILURE();
    } catch (const Fault& fault) {
      EXPECT_TRUE(fault.kind == FaultKind::kRace || fault.kind == FaultKind::kBarrier)
          << fault.what();
    }
  }
}

struct ArrivesTooOften : FaultKernel<32> {
  static void run(const Params&, SharedStorage& s) {
    start_barrier(s, 1);
    if (ptx::thread_index() != 0) return;
    ptx::mbarrier_expect_tx(s.bar, 16);
    ptx::mbarrier_arrive(s.bar);
    ptx::mbarrier_arrive(s.bar);
  }
};
TEST(Fault, MoreArrivalsThanCounted) {
  expect_fault<ArrivesTooOften>(FaultKind::kBarrier, "more arrivals");
}

struct WrongParity : FaultKernel<64> {
  static void run(const Params&, SharedStorage& s) {
    start_barrier(s, 64);
    ptx::mbarrier_arrive(s.bar);
    ptx::mbarrier_wait(s.bar, 0);
    ptx::mbarrier_wait(s.bar, 0 ^ (ptx::thread_index() == 63 ? 1u : 0u));
  }
};
TEST(Fault, WaitForAPhaseThatNeverCompletes) {
  expect_fault<WrongParity>(FaultKind::kDeadlock, "64 of 64 arrivals missing");
}

struct PollsForever : FaultKernel<64> {
  static void run(const Params&, SharedStorage& s) {
    start_barrier(s, 2);
    if (ptx::thread_index() == 0) ptx::mbarrier_arrive(s.bar);
    while (!ptx::mbarrier_try_wait(s.bar, 0)) {
    }
  }
};
TEST(Fault, PollingForever) {
  expect_fault<PollsForever>(FaultKind::kDeadlock, "1 of 2 arrivals missing");
}

struct SkipsBlockSync : FaultKernel<96> {
  static void run(const Params&, SharedStorage&) {
    if (ptx::warp_index() != 1) ptx::block_sync();
  }
};
TEST(Fault, AWarpSkipsABarrier) {
  expect_fault<SkipsBlockSync>(FaultKind::kDeadlock, "barrier 0 of 96");
}

struct DifferentCollectives : FaultKernel<32> {
  static void run(const Params&, SharedStorage&) {
    if (ptx::lane_index() < 7) {
      ptx::vote_any(true);
    } else {
      ptx::warp_sync();
    }
  }
};
TEST(Fault, LanesAtDifferentCollectives) {
  expect_fault<DifferentCollectives>(FaultKind::kDivergence, "other lanes of the warp");
}

struct CountsDiffer : FaultKernel<128> {
  static void run(const Params&, SharedStorage&) {
    ptx::named_barrier_sync(1, ptx::warp_index() == 0 ? 96 : 128);
  }
};
TEST(Fault, NamedBarrierWithDifferentCounts) {
  expect_fault<CountsDiffer>(FaultKind::kBarrier, "barrier 1 is being used");
}

struct UnevenCopy : FaultKernel<32> {
  static void run(const Params& p, SharedStorage& s) {
    start_barrier(s, 1);
    if (ptx::thread_index() == 0) ptx::bulk_load(s.bytes, p.global, 40, s.bar);
  }
};
TEST(Fault, CopySizeNotAMultipleOf16) {
  expect_fault<UnevenCopy>(FaultKind::kAlignment, "40 bytes");
}

struct CopyNotAwaited : FaultKernel<32> {
  static void run(const Params& p, SharedStorage& s) {
    start_barrier(s, 1);
    if (ptx::thread_index() != 0) return;
    ptx::mbarrier_arrive_expect_tx(s.bar, 256);
    ptx::bulk_load(s.bytes, p.global, 256, s.bar);
  }
};
TEST(Fault, BlockEndsDuringACopy) {
  expect_fault<CopyNotAwaited>(FaultKind::kExit, "no thread has waited");
}

struct StoreBeforeCopy : FaultKernel<32> {
  static void run(const Params& p, SharedStorage& s) {
    start_barrier(s, 1);
    if (ptx::thread_index() != 0) return;
    ptx::store_shared(&s.bytes[16], 1u);
    ptx::mbarrier_arrive_expect_tx(s.bar, 256);
    ptx::bulk_load(s.bytes, p.global, 256, s.bar);
    ptx::mbarrier_wait(s.bar, 0);
  }
};
TEST(Fault, OrdinaryStoreThenCopyWithoutFence) {
  expect_fault<StoreBeforeCopy>(FaultKind::kProxyFence, "st.shared");
}

struct NoCopyWait : FaultKernel<32> {
  static void run(const Params& p, SharedStorage& s) {
    const int t = ptx::thread_index();
    ptx::copy16_async(&s.bytes[16 * t], p.global + 16 * t, true);
    ptx::copy_commit();
    ptx::load_shared<uint32_t>(&s.bytes[16 * t]);
  }
};
TEST(Fault, CpAsyncNotAwaited) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    try {
      run<NoCopyWait>({global_bytes}, seed);
      ADD_FAILURE();
    } catch (const Fault& fault) {
      EXPECT_TRUE(fault.kind == FaultKind::kInFlight || fault.kind == FaultKind::kRace)
          << fault.what();
    }
  }
}

struct RemoteAfterExit : FaultKernel<32, 2> {
  static void run(const Params&, SharedStorage& s) {
    if (ptx::thread_index() == 0) {
      ptx::mbarrier_init(s.bar, 1);
      ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();
    if (ptx::cluster_rank() == 1) return;
    start_late(s);
  }
  static void start_late(SharedStorage& s) {
    for (int i = 0; i < 200; ++i) ptx::warp_sync();  // long enough for the other block to end
    if (ptx::thread_index() == 0) ptx::mbarrier_arrive_remote(s.bar, 1);
  }
};
TEST(Fault, RemoteArriveAtABlockThatHasEnded) {
  int caught = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    try {
      run<RemoteAfterExit>({global_bytes}, seed, nullptr, {2, 1, 1});
    } catch (const Fault& fault) {
      EXPECT_EQ(fault.kind, FaultKind::kExit) << fault.what();
      ++caught;
    }
  }
  EXPECT_GT(caught, 8);  // only a schedule that ends the block in time shows it
}

struct TooManyRegisters : FaultKernel<384> {
  static void run(const Params&, SharedStorage&) {
    if (ptx::warpgroup_index() == 0) {
      ptx::registers_decrease<40>();
    } else {
      ptx::registers_increase<240>();
    }
  }
};
TEST(Fault, RegistersThatAreNotThere) {
  expect_fault<TooManyRegisters>(FaultKind::kDeadlock, "setmaxnreg.inc");
}

// Blocks of a grid are not ordered against each other.
struct BlocksOverlap : FaultKernel<32> {
  static void run(const Params& p, SharedStorage&) {
    const int t = ptx::thread_index() + 31 * ptx::block_index().x;
    ptx::store_global(p.global + 4 * t, 1u);
  }
};
struct ReadsAnotherBlock : FaultKernel<32> {
  static void run(const Params& p, SharedStorage&) {
    const int block = ptx::block_index().x, t = ptx::thread_index();
    ptx::store_global(p.global + 4 * (32 * block + t), 1u);
    ptx::load_global<uint32_t>(p.global + 4 * (32 * (block ^ 1) + t));
  }
};
struct AddsUp : FaultKernel<32> {
  static void run(const Params& p, SharedStorage&) {
    ptx::atomic_add(reinterpret_cast<uint32_t*>(p.global), 1u);
  }
};
template <class Kernel>
std::string global_fault() {
  GlobalMemory memory;
  memory.add_inout("bytes", global_bytes, sizeof(global_bytes));
  try {
    run<Kernel>({global_bytes}, 1, &memory, {2, 1, 1});
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}
TEST(Fault, BlocksTouchEachOthersGlobalMemory) {
  EXPECT_TRUE(
      contains(global_fault<BlocksOverlap>(), "byte 124 of 'bytes' was written by another block"));
  EXPECT_TRUE(contains(global_fault<ReadsAnotherBlock>(), "was written by another block"));
  EXPECT_EQ(global_fault<AddsUp>(), "");
}

// ---- wgmma ----

void fill_tiles(FaultStorage& s) {
  for (int i = ptx::thread_index() * 16; i < 4096; i += 128 * 16) {
    ptx::store_shared(&s.bytes[i], ptx::Vec<uint32_t, 4>{{1, 2, 3, 4}});
  }
  ptx::fence_proxy_async();
  ptx::block_sync();
}

struct DescriptorOutside : FaultKernel<128> {
  static void run(const Params&, SharedStorage& s) {
    fill_tiles(s);
    const auto d = ptx::make_descriptor(s.bytes, ptx::Swizzle::k128Bytes, 8192);
    ptx::Fragment<int32_t, 32> c;
    ptx::wgmma_fence();
    ptx::wgmma_s8(c, d, d, false);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(c);
  }
};
TEST(Fault, DescriptorReachesOutside) {
  expect_fault<DescriptorOutside>(FaultKind::kBounds, "matrix descriptor");
}

struct AccumulatesGarbage : FaultKernel<128> {
  static void run(const Params&, SharedStorage& s) {
    fill_tiles(s);
    const auto d = ptx::make_descriptor(s.bytes, ptx::Swizzle::k32Bytes, 256);
    ptx::Fragment<int32_t, 32> c;
    ptx::wgmma_fence();
    ptx::wgmma_s8(c, d, d, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(c);
  }
};
TEST(Fault, AccumulatesOnNothing) {
  expect_fault<AccumulatesGarbage>(FaultKind::kUninitialized, "has no value");
}

struct OneWarpDiffers : FaultKernel<128> {
  static void run(const Params&, SharedStorage& s) {
    fill_tiles(s);
    const auto d = ptx::make_descriptor(s.bytes, ptx::Swizzle::k32Bytes, 256);
    ptx::Fragment<int32_t, 32> c;
    ptx::wgmma_fence();
    ptx::wgmma_s8(c, d, ptx::warp_index() == 2 ? ptx::advance(d, 256) : d, false);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(c);
  }
};
TEST(Fault, WarpsOfAWarpgroupDiffer) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    try {
      run<OneWarpDiffers>({global_bytes}, seed);
      ADD_FAILURE();
    } catch (const Fault& fault) {  // whichever warp is first
      EXPECT_TRUE(fault.kind == FaultKind::kDivergence || fault.kind == FaultKind::kUninitialized ||
                  fault.kind == FaultKind::kBounds)
          << fault.what();
    }
  }
}

struct LeavesScope : FaultKernel<128> {
  static void run(const Params&, SharedStorage& s) {
    fill_tiles(s);
    const auto d = ptx::make_descriptor(s.bytes, ptx::Swizzle::k32Bytes, 256);
    {
      ptx::Fragment<int32_t, 32> c;
      ptx::wgmma_fence();
      ptx::wgmma_s8(c, d, d, false);
      ptx::wgmma_commit();
    }
    ptx::wgmma_wait<0>();
  }
};
TEST(Fault, AccumulatorLeavesScopeInFlight) {
  expect_fault<LeavesScope>(FaultKind::kRegister, "goes out of scope");
}

}  // namespace
}  // namespace vcattn::emu::test
