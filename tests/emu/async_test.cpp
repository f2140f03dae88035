// Asynchronous copies, clusters, mbarriers and register redistribution, used as they should be.
#include "cases/cluster_case.cuh"
#include "support.h"

namespace vcattn::emu::test {
namespace {

TEST(Async, ClusterMulticastAndRemoteArrivals) {
  using crosscheck::ClusterCase;
  alignas(16) static uint32_t in[ClusterCase::kRounds * 128];
  for (uint32_t i = 0; i < ClusterCase::kRounds * 128; ++i) in[i] = i * i % 911;
  std::vector<uint32_t> out(ClusterCase::kOutputWords);
  const auto* bytes = reinterpret_cast<const uint8_t*>(in);
  for (uint64_t seed = 0; seed < seed_count(200); ++seed) {
    run<ClusterCase>({{bytes, bytes, bytes}, out.data()}, seed, nullptr,
                     {ClusterCase::kBlocks, 1, 1});
    const auto sum = [&](int t) {
      uint32_t v = 0;
      for (int r = 0; r < ClusterCase::kRounds; ++r)
        v += in[r * 128 + t] + 1000 * in[r * 128 + 127 - t];
      return v;
    };
    for (int block = 0; block < ClusterCase::kBlocks; ++block) {
      for (int t = 0; t < 64; ++t) {
        const uint32_t mail = 2 * (sum(5) + static_cast<uint32_t>(1 - block % 2));
        ASSERT_EQ(out[static_cast<size_t>(block * 64 + t)], t == 5 ? mail : sum(t))
            << "seed " << seed;
      }
    }
  }
}

// Bulk store, and cp.async with a tail filled by zeros.
struct CopyThrough : BlockOf<128> {
  struct Params {
    const uint8_t* in;
    uint8_t* out;
    int valid;  // chunks of 16 bytes that exist
  };
  struct SharedStorage {
    alignas(16) uint8_t tile[2048];
  };
  VC_DEVICE static void run(const Params& p, SharedStorage& s) {
    const int t = ptx::thread_index();
    ptx::copy16_async(&s.tile[16 * t], p.in + 16 * t, t < p.valid);
    ptx::copy_commit();
    ptx::copy_wait<0>();
    ptx::fence_proxy_async();
    ptx::block_sync();
    if (ptx::warp_index() == 1 && ptx::elect_one()) {
      ptx::bulk_store(p.out, s.tile, 1024);
      ptx::bulk_commit();
      ptx::bulk_store(p.out + 1024, s.tile + 1024, 1024);
      ptx::bulk_commit();
      ptx::bulk_wait_read<1>();
      ptx::store_shared(&s.tile[0], uint8_t{99});  // the first group has read its source
      ptx::bulk_wait<0>();
    }
  }
};

TEST(Async, CopyInAndOutWithATail) {
  alignas(16) static uint8_t in[2048], out[2048];
  for (int i = 0; i < 2048; ++i) in[i] = static_cast<uint8_t>(i * 7 + 1);
  for (uint64_t seed = 0; seed < seed_count(100); ++seed) {
    GlobalMemory memory;
    memory.add_input("in", in, 77 * 16);
    memory.add_output("out", out, sizeof(out));
    run<CopyThrough>({in, out, 77}, seed, &memory);
    for (int i = 0; i < 2048; ++i)
      ASSERT_EQ(out[i], i < 77 * 16 ? in[i] : 0) << "seed " << seed << " byte " << i;
  }
}

// A consumer that polls, an invalidated barrier whose bytes are used again, and arrivals by every
// thread.
struct Polling : BlockOf<64> {
  struct Params {
    uint32_t* out;
  };
  struct SharedStorage {
    ptx::Mbarrier bar;
    uint32_t value;
  };
  VC_DEVICE static void run(const Params& p, SharedStorage& s) {
    const int t = ptx::thread_index();
    if (t == 0) {
      ptx::mbarrier_init(s.bar, 32);
      ptx::fence_mbarrier_init();
    }
    ptx::block_sync();
    if (t >= 32) {
      if (t == 40) ptx::store_shared(&s.value, 17u);
      ptx::mbarrier_arrive(s.bar);
    } else {
      while (!ptx::mbarrier_try_wait(s.bar, 0)) {
      }
      ptx::store_global(p.out + t, ptx::load_shared<uint32_t>(&s.value));
    }
    ptx::block_sync();
    if (t == 0) {
      ptx::mbarrier_invalidate(s.bar);
      ptx::store_shared(&s.bar, 5u);
      ptx::store_global(p.out + 32, ptx::load_shared<uint32_t>(&s.bar));
    }
  }
};

TEST(Async, PollingAndReuseOfABarrier) {
  for (uint64_t seed = 0; seed < seed_count(50); ++seed) {
    std::vector<uint32_t> out(33);
    run<Polling>({out.data()}, seed);
    for (int i = 0; i < 32; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], 17u);
    ASSERT_EQ(out[32], 5u);
  }
}

struct Registers : BlockOf<384> {
  struct Params {
    int unused;
  };
  struct SharedStorage {
    uint32_t none;
  };
  VC_DEVICE static void run(const Params&, SharedStorage&) {
    if (ptx::warpgroup_index() == 0) {
      ptx::registers_decrease<24>();
    } else {
      ptx::registers_increase<240>();
    }
  }
};

TEST(Async, RegistersMove) {
  for (uint64_t seed = 0; seed < seed_count(20); ++seed) run<Registers>({0}, seed);
}

}  // namespace
}  // namespace vcattn::emu::test
