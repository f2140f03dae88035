// Encoders over all 2^32 floats. The referee searches a table of decoded values; it shares no code
// with the encoder.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "numerics/referee.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/e2m1.h"
#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/exp_log.h"
#include "vcattn/numerics/f16.h"

namespace vcattn::numerics {
namespace {

using test::float_of;
using test::NearestTable;

struct Tally {
  std::atomic<std::uint64_t> mismatches{0};
  std::atomic<std::uint64_t> checked{0};
  std::atomic<std::uint32_t> example{0};
};

// Calls agrees(float) for every float, on every core, and counts the refusals.
template <typename Agrees>
void check_all_floats(const Agrees& agrees) {
  Tally tally;
  const unsigned workers = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<std::uint32_t> next{0};
  const auto work = [&] {
    constexpr std::uint32_t kChunks = 1u << 12;
    constexpr std::uint32_t kChunk = 1u << 20;
    for (std::uint32_t chunk = next++; chunk < kChunks; chunk = next++) {
      std::uint64_t bad = 0;
      for (std::uint32_t i = 0; i < kChunk; ++i) {
        const std::uint32_t bits = chunk * kChunk + i;
        if (!agrees(float_of(bits))) {
          ++bad;
          tally.example = bits;
        }
      }
      tally.mismatches += bad;
      tally.checked += kChunk;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < workers; ++i) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(tally.checked, std::uint64_t{1} << 32);
  EXPECT_EQ(tally.mismatches, 0u) << "for example bits 0x" << std::hex << tally.example;
}

unsigned expected_code(const NearestTable& table, float x, unsigned sign_bit, unsigned nan) {
  if (std::isnan(x)) return nan;
  const std::size_t code = table.nearest(std::abs(static_cast<double>(x)));
  return static_cast<unsigned>(code) | (std::signbit(x) ? sign_bit : 0u);
}

TEST(AllFloats, E4m3) {
  const NearestTable table = test::e4m3_table();
  check_all_floats(
      [&](float x) { return e4m3_encode(x) == expected_code(table, x, 0x80u, kE4m3Nan); });
}

TEST(AllFloats, E2m1) {
  const NearestTable table = test::e2m1_table();
  check_all_floats(
      [&](float x) { return e2m1_encode(x) == expected_code(table, x, 0x8u, kE2m1MaxCode); });
}

TEST(AllFloats, Bf16) {
  const NearestTable table = test::bf16_table();
  check_all_floats(
      [&](float x) { return bf16_from_float(x) == expected_code(table, x, 0x8000u, kBf16Nan); });
}

TEST(AllFloats, F16) {
  const NearestTable table = test::f16_table();
  check_all_floats(
      [&](float x) { return f16_from_float(x) == expected_code(table, x, 0x8000u, kF16Nan); });
}

TEST(AllFloats, Rne) {
  check_all_floats([](float x) {
    if (std::isnan(x)) return std::isnan(rne(x)) && rne_i32(x) == 0;
    const float expected = std::nearbyint(x);
    if (test::bits_of(rne(x)) != test::bits_of(expected)) return false;
    const double saturated = std::min(2147483647.0, std::max(-2147483648.0, double{expected}));
    return rne_i32(x) == static_cast<std::int32_t>(saturated);
  });
}

TEST(AllFloats, ExpCastNeverGivesNanForANumber) {
  check_all_floats([](float t) { return (exp_cast_round(t) >= 0x7F) == std::isnan(t); });
}

// Below 2^-150 the nearest float is zero, beyond the largest float infinity.
bool within_one_ulp(float got, double exact) {
  if (exact < 0x1p-150) return got == 0.0f;
  if (exact >= 0x1p128) return got == HUGE_VALF;
  return test::ulp_error(got, exact) <= 1.0;
}

TEST(AllFloats, Exp2IsWithinOneUlp) {
  check_all_floats([](float x) {
    if (std::isnan(x)) return std::isnan(exp2_f32(x));
    return within_one_ulp(exp2_f32(x), std::exp2(static_cast<double>(x)));
  });
}

TEST(AllFloats, ExpIsWithinOneUlp) {
  check_all_floats([](float x) {
    if (std::isnan(x)) return std::isnan(exp_f32(x));
    return within_one_ulp(exp_f32(x), std::exp(static_cast<double>(x)));
  });
}

}  // namespace
}  // namespace vcattn::numerics
