// Warp collectives, shared memory, atomics and indices, against closed forms.
#include "support.h"

namespace vcattn::emu::test {
namespace {

constexpr int kResults = 12;

struct Collectives : BlockOf<64> {
  struct Params {
    uint32_t* out;
  };
  struct SharedStorage {
    uint32_t total;
  };
  VC_DEVICE static void run(const Params& p, SharedStorage&) {
    const auto t = static_cast<uint32_t>(ptx::thread_index());
    const uint32_t lane = t % 32;
    const uint32_t v = t * t + 7;
    const uint32_t r[kResults] = {
        ptx::shuffle_xor(v, 5),
        ptx::shuffle(v, static_cast<int>(lane * 3)),
        ptx::shuffle_up(v, 3),
        ptx::shuffle_down(v, 3),
        ptx::vote_ballot(v % 3 == 0),
        ptx::vote_any(t == 40),
        ptx::vote_all(t < 32),
        static_cast<uint32_t>(ptx::warp_add(static_cast<int32_t>(t) - 20)),
        static_cast<uint32_t>(ptx::warp_max(-static_cast<int32_t>(t) - 5)),
        ptx::elect_one(),
        static_cast<uint32_t>(ptx::warp_index()),
        ptx::bits_as<uint32_t>(ptx::shuffle_xor(static_cast<float>(t), 1)),
    };
    for (int i = 0; i < kResults; ++i) ptx::store_global(p.out + t * kResults + i, r[i]);
  }
};

TEST(Warp, Collectives) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::vector<uint32_t> out(64 * kResults);
    run<Collectives>({out.data()}, seed);
    const auto value = [](uint32_t t) { return t * t + 7; };
    int elected[2] = {0, 0};
    for (uint32_t t = 0; t < 64; ++t) {
      const uint32_t* r = out.data() + t * kResults;
      const uint32_t lane = t % 32, warp = t / 32, base = warp * 32;
      EXPECT_EQ(r[0], value(t ^ 5));
      EXPECT_EQ(r[1], value(base + lane * 3 % 32));
      EXPECT_EQ(r[2], value(lane < 3 ? t : t - 3));
      EXPECT_EQ(r[3], value(lane > 28 ? t : t + 3));
      uint32_t mask = 0;
      for (uint32_t i = 0; i < 32; ++i)
        mask |= static_cast<uint32_t>(value(base + i) % 3 == 0) << i;
      EXPECT_EQ(r[4], mask);
      EXPECT_EQ(r[5], warp);
      EXPECT_EQ(r[6], 1 - warp);
      EXPECT_EQ(static_cast<int32_t>(r[7]), warp == 0 ? 496 - 640 : 1520 - 640);
      EXPECT_EQ(static_cast<int32_t>(r[8]), warp == 0 ? -5 : -37);
      elected[warp] += static_cast<int>(r[9]);
      EXPECT_EQ(r[10], warp);
      EXPECT_EQ(ptx::bits_as<float>(r[11]), static_cast<float>(t ^ 1));
    }
    EXPECT_EQ(elected[0], 1);
    EXPECT_EQ(elected[1], 1);
  }
}

struct Exchange : BlockOf<128> {
  struct Params {
    uint32_t* out;
    uint32_t* counter;
  };
  struct SharedStorage {
    alignas(16) uint32_t words[512];
    uint32_t sum;
    uint8_t bytes[128];
  };
  VC_DEVICE static void run(const Params& p, SharedStorage& s) {
    const int t = ptx::thread_index();
    const auto b = static_cast<uint32_t>(ptx::block_index().x * 1000 + ptx::block_index().y);
    const auto u = static_cast<uint32_t>(t);
    ptx::store_shared(&s.words[4 * t], ptx::Vec<uint32_t, 4>{{u + b, 2 * u, 3 * u, 4 * u}});
    ptx::store_shared(&s.bytes[t], static_cast<uint8_t>(t));  // neighbours share a word, not a byte
    if (t == 0) ptx::store_shared(&s.sum, 0u);
    ptx::block_sync();
    ptx::atomic_add(&s.sum, u);
    const auto other = ptx::load_shared<ptx::Vec<uint32_t, 2>>(&s.words[4 * (127 - t)]);
    const auto byte = ptx::load_shared<uint8_t>(&s.bytes[(t + 1) % 128]);
    ptx::block_sync();
    const uint32_t sum = ptx::load_shared<uint32_t>(&s.sum);
    const int block = ptx::block_index().x + ptx::grid_size().x * ptx::block_index().y;
    ptx::store_global(p.out + (block * 128 + t) * 4,
                      ptx::Vec<uint32_t, 4>{{other[0], other[1], byte, sum}});
    ptx::atomic_add(p.counter, 1u);
    ptx::atomic_max(p.counter + 1, u);
  }
};

TEST(Memory, SharedExchangeAndAtomics) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<uint32_t> out(6 * 128 * 4 + 4), counter(2, 0);  // + 4: room to align to 16 bytes
    uint32_t* aligned = out.data();
    while (reinterpret_cast<uintptr_t>(aligned) % 16 != 0) ++aligned;
    run<Exchange>({aligned, counter.data()}, seed, nullptr, {3, 2, 1});
    EXPECT_EQ(counter[0], 768u);
    EXPECT_EQ(counter[1], 127u);
    for (uint32_t block = 0; block < 6; ++block) {
      for (uint32_t t = 0; t < 128; ++t) {
        const uint32_t* r = aligned + (block * 128 + t) * 4;
        EXPECT_EQ(r[0], 127 - t + block % 3 * 1000 + block / 3);
        EXPECT_EQ(r[1], 2 * (127 - t));
        EXPECT_EQ(r[2], (t + 1) % 128);
        EXPECT_EQ(r[3], 127u * 64);
      }
    }
  }
}

TEST(Memory, OutputsMustBeInsideAndInputsReadOnly) {
  std::vector<uint32_t> out(128 * 4 + 4), counter(2, 0);
  GlobalMemory memory;
  memory.add_inout("counter", counter);
  uint32_t* aligned = out.data();
  while (reinterpret_cast<uintptr_t>(aligned) % 16 != 0) ++aligned;
  memory.add_output("out", aligned, 127 * 16);
  try {
    run<Exchange>({aligned, counter.data()}, 1, &memory);
    FAIL();
  } catch (const Fault& fault) {
    EXPECT_EQ(fault.kind, FaultKind::kBounds);
    EXPECT_TRUE(contains(fault.what(), "bytes 2032 to 2047 of 'out', which has 2032"))
        << fault.what();
  }
}

}  // namespace
}  // namespace vcattn::emu::test
