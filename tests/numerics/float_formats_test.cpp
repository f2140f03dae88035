// bf16, f16 and tf32 against a search in a table of their values and against the machine's own
// conversions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/referee.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/f16.h"
#include "vcattn/numerics/tf32.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vcattn::numerics {
namespace {

using test::bits_of;
using test::float_of;
using test::NearestTable;

// Low halves that matter to a rounding of the high half: exact, just above, around the tie, just
// below the next.
constexpr std::uint32_t kLowHalves[] = {0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000,
                                        0x7FFF, 0x8000, 0x8001, 0xEFFF, 0xF000, 0xFFFF};

template <typename Check>
void for_each_sampled_float(const Check& check) {
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    for (const std::uint32_t low : kLowHalves) {
      check(float_of((high << 16) | low));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

std::uint16_t expected_code(const NearestTable& table, float x, std::uint16_t nan) {
  if (std::isnan(x)) return nan;
  const std::size_t code = table.nearest(std::abs(static_cast<double>(x)));
  return static_cast<std::uint16_t>(code | (std::signbit(x) ? 0x8000u : 0u));
}

TEST(Bf16, RoundTripOfEveryCode) {
  const NearestTable table = test::bf16_table();
  for (std::uint32_t code = 0; code < 0x10000u; ++code) {
    const auto h = static_cast<std::uint16_t>(code);
    const float x = bf16_to_float(h);
    const std::uint32_t magnitude = code & 0x7FFFu;
    if (magnitude > 0x7F80u) {
      ASSERT_TRUE(std::isnan(x));
      ASSERT_EQ(bf16_from_float(x), kBf16Nan);
      continue;
    }
    if (magnitude < 0x7F80u) {
      ASSERT_EQ(std::abs(static_cast<double>(x)), table.value(magnitude));
    } else {
      ASSERT_TRUE(std::isinf(x));
    }
    ASSERT_EQ(std::signbit(x), code >= 0x8000u);
    ASSERT_EQ(bf16_from_float(x), h);
  }
}

TEST(Bf16, FromFloatIsNearestEven) {
  const NearestTable table = test::bf16_table();
  for_each_sampled_float([&](float x) {
    ASSERT_EQ(bf16_from_float(x), expected_code(table, x, kBf16Nan)) << std::hexfloat << x;
  });
}

TEST(Bf16, SaturatingFormKeepsFiniteFinite) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  EXPECT_EQ(bits_of(kBf16Max), 0x7F7F'0000u);
  EXPECT_EQ(bf16_from_float(kHuge), 0x7F80);
  EXPECT_EQ(bf16_from_float_satfinite(kHuge), 0x7F7F);
  EXPECT_EQ(bf16_from_float_satfinite(-kHuge), 0xFF7F);
  EXPECT_EQ(bf16_from_float_satfinite(-HUGE_VALF), 0xFF80);
  EXPECT_EQ(bf16_from_float_satfinite(std::nanf("")), kBf16Nan);
  EXPECT_EQ(bf16_from_float_satfinite(1.5f), bf16_from_float(1.5f));
  EXPECT_EQ(bf16_round(1.00390625f), 1.0f);       // 1 + 2^-8: a tie, to even
  EXPECT_EQ(bf16_round(1.01171875f), 1.015625f);  // 1 + 3 * 2^-8: a tie, to even
}

TEST(F16, RoundTripOfEveryCode) {
  const NearestTable table = test::f16_table();
  for (std::uint32_t code = 0; code < 0x10000u; ++code) {
    const auto h = static_cast<std::uint16_t>(code);
    const float x = f16_to_float(h);
    const std::uint32_t magnitude = code & 0x7FFFu;
    if (magnitude > 0x7C00u) {
      ASSERT_EQ(bits_of(x), kFloatNanBits);
      ASSERT_EQ(f16_from_float(x), kF16Nan);
      continue;
    }
    if (magnitude < 0x7C00u) {
      ASSERT_EQ(std::abs(static_cast<double>(x)), table.value(magnitude));
    } else {
      ASSERT_TRUE(std::isinf(x));
    }
    ASSERT_EQ(std::signbit(x), code >= 0x8000u);
    ASSERT_EQ(f16_from_float(x), h);
  }
}

TEST(F16, FromFloatIsNearestEven) {
  const NearestTable table = test::f16_table();
  for_each_sampled_float([&](float x) {
    ASSERT_EQ(f16_from_float(x), expected_code(table, x, kF16Nan)) << std::hexfloat << x;
  });
}

TEST(F16, FromFloatAtEveryBoundary) {
  const NearestTable table = test::f16_table();
  for (std::size_t code = 0; code + 1 < table.size(); ++code) {
    const auto middle = static_cast<float>((table.value(code) + table.value(code + 1)) / 2.0);
    for (std::uint32_t bits = bits_of(middle) - 1; bits <= bits_of(middle) + 1; ++bits) {
      ASSERT_EQ(f16_from_float(float_of(bits)), expected_code(table, float_of(bits), kF16Nan));
    }
  }
  EXPECT_EQ(f16_round(65504.0f), kF16Max);
  EXPECT_EQ(f16_round(65519.0f), kF16Max);
  EXPECT_TRUE(std::isinf(f16_round(65520.0f)));
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) std::uint16_t machine_f16(float x) {
  return static_cast<std::uint16_t>(
      _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0));
}

__attribute__((target("f16c"))) float machine_f16_to_float(std::uint16_t h) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

TEST(F16, AgreesWithF16c) {
  // clang 14 cannot ask for f16c; every processor with AVX2 has it.
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no F16C";
  for_each_sampled_float([](float x) {
    // F16C keeps sign and payload of a NaN; the contract here is PTX's single NaN.
    const std::uint16_t expected = std::isnan(x) ? kF16Nan : machine_f16(x);
    ASSERT_EQ(f16_from_float(x), expected) << std::hexfloat << x;
  });
  for (std::uint32_t code = 0; code < 0x10000u; ++code) {
    const auto h = static_cast<std::uint16_t>(code);
    if ((code & 0x7FFFu) > 0x7C00u) continue;
    ASSERT_EQ(bits_of(f16_to_float(h)), bits_of(machine_f16_to_float(h)));
  }
}
#endif

#if defined(__FLT16_MAX__) && !defined(__clang__)
TEST(F16, AgreesWithTheCompiler) {
  for_each_sampled_float([](float x) {
    if (std::isnan(x)) return;
    __extension__ const auto half = static_cast<_Float16>(x);
    ASSERT_EQ(f16_from_float(x), std::bit_cast<std::uint16_t>(half)) << std::hexfloat << x;
  });
}
#endif

// Scaling by a power of two turns rounding to 10 mantissa bits into rounding to an integer.
double tf32_referee(float x, bool ties_away) {
  const double value = static_cast<double>(x);
  if (value == 0.0) return value;
  const int exponent = std::max(std::ilogb(value), -126);
  const double scaled = std::ldexp(value, 10 - exponent);
  const double rounded = ties_away ? std::round(scaled) : std::nearbyint(scaled);
  const double result = std::ldexp(rounded, exponent - 10);
  return std::abs(result) > 3.4e38 && std::abs(result) >= std::ldexp(1.0, 128)
             ? std::copysign(HUGE_VAL, value)
             : result;
}

TEST(Tf32, RoundsToTenMantissaBits) {
  for_each_sampled_float([](float x) {
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(tf32_round(x)));
      ASSERT_TRUE(std::isnan(tf32_round_away(x)));
      return;
    }
    if (std::isinf(x)) {
      ASSERT_EQ(tf32_round(x), x);
      ASSERT_EQ(tf32_round_away(x), x);
      ASSERT_EQ(tf32_truncate(x), x);
      return;
    }
    ASSERT_EQ(static_cast<double>(tf32_round(x)), tf32_referee(x, false)) << std::hexfloat << x;
    ASSERT_EQ(static_cast<double>(tf32_round_away(x)), tf32_referee(x, true)) << std::hexfloat << x;
    const float cut = tf32_truncate(x);
    ASSERT_EQ(bits_of(cut) & 0x1FFFu, 0u);
    ASSERT_LE(std::abs(cut), std::abs(x));
    ASSERT_LT(bits_of(x) - bits_of(cut), 0x2000u);
  });
}

}  // namespace
}  // namespace vcattn::numerics
