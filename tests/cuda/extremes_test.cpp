// Scores of hundreds and thousands of nats, in some rows and not in others.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/device_call.h"
#include "support/portable_random.h"

namespace vcattn::test {
namespace {

/// One key wins every row by more nats than binary16 can tell apart: its value comes back.
TEST(CudaExtremes, OneHotRowsKeepTheirKey) {
  VCATTN_NEEDS_HOPPER();
  constexpr std::int64_t kWinner = 77;
  const auto along = [](const Index& at) {  // a direction of squared length about 128
    return portable_normal(5, static_cast<std::uint32_t>(at.d));
  };
  const Values queries = [=](const Index& at) {
    return along(at) * (2.0F + 0.25F * static_cast<float>(at.s));
  };
  const Values keys = [=](const Index& at) {
    return at.s == kWinner ? 8.0F * along(at) : 0.02F * normal(2)(at);
  };
  const Inputs inputs({.queries = 200, .keys = 300, .dtype = DType::kF32, .q = queries, .k = keys});
  for (const char* name : {"vc8", "vc8-fast", "vc8-shaped"}) {
    const Outcome gpu = run_on_device(inputs.arguments(), device_recipe(name));
    for (std::int64_t s = 0; s < 200; ++s) {
      const float value = inputs.v.get(0, 0, kWinner, 3);
      ASSERT_NEAR(gpu.out.get(0, 0, s, 3), value, 0.05F * std::abs(value) + 0.02F)
          << name << " " << s << " scores "
          << 11.3F * 8.0F * (2.0F + 0.25F * static_cast<float>(s));
    }
  }
}

/// A key that only every eighth query knows, which a row's neighbours in the registers must not
/// notice.
TEST(CudaExtremes, ASharpRowLeavesItsNeighboursAlone) {
  VCATTN_NEEDS_HOPPER();
  constexpr std::int64_t kSink = 5;
  for (const float nats : {50.0F, 150.0F, 400.0F, 1500.0F}) {
    SCOPED_TRACE(nats);
    const Values queries = [=](const Index& at) {
      const float plain = portable_normal(1, at.i);
      if (at.s % 16 >= 8) return at.d == 0 ? nats * std::sqrt(128.0F) / 16.0F : plain;
      return at.d == 0 ? 0.0F : plain;
    };
    const Values keys = [](const Index& at) {
      if (at.d == 0) return at.s == kSink ? 16.0F : 0.0F;
      return portable_normal(2, at.i);
    };
    const Inputs inputs(
        {.queries = 64, .keys = 400, .dtype = DType::kF32, .q = queries, .k = keys});
    const Reference reference = referee(inputs.arguments());
    for (const char* name : {"vc8", "vc8-fast"}) {
      expect_errors_of_the_cpu(inputs.arguments(), device_recipe(name), reference,
                               "sink " + std::to_string(nats) + " nats");
    }
  }
}

/// Queries of thousands, orthogonal to both keys: one unit of the score window is hundreds of
/// octaves, and yet every row has weights.
TEST(CudaExtremes, ASharpRowWithoutALargeScoreKeepsItsKeys) {
  VCATTN_NEEDS_HOPPER();
  const Values queries = [](const Index& at) {
    return at.d == 0 ? 0.0F : 10000.0F * portable_normal(1, at.i);
  };
  const Values keys = [](const Index& at) {
    if (at.d != 0) return 0.0F;
    return at.s == 0 ? 40.0F : -40.0F;
  };
  const Inputs inputs({.queries = 200, .keys = 2, .dtype = DType::kF32, .q = queries, .k = keys});
  const Recipe r = device_recipe("vc8");
  const Outcome gpu = run_on_device(inputs.arguments(), r);
  const Outcome cpu = run_on_host(inputs.arguments(), r);
  for (std::int64_t s = 0; s < 200; ++s) {
    const float lse = cpu.lse.get(0, 0, s, 0);
    ASSERT_NEAR(gpu.lse.get(0, 0, s, 0), lse, 1e-3F * std::abs(lse) + 0.05F) << s;
    for (std::int64_t c = 0; c < 128; ++c) {
      ASSERT_NEAR(gpu.out.get(0, 0, s, c), cpu.out.get(0, 0, s, c), 0.02F) << s << " " << c;
    }
  }
}

}  // namespace
}  // namespace vcattn::test
