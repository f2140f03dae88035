// The arithmetic of the matrix units where it differs from FP32, against sums worked out by hand.
#include <algorithm>
#include <cmath>

#include "emu/convert.h"
#include "emu/matrix_math.h"
#include "support.h"

namespace vcattn::emu::test {
namespace {

uint8_t e4m3(double v) { return e4m3_from_double(v); }

// One output: 32 products a[k] * b[k] added to c.
float e4m3_step(const std::vector<double>& a, const std::vector<double>& b, float c) {
  uint8_t x[32] = {}, y[32] = {};
  for (size_t k = 0; k < a.size(); ++k) x[k] = e4m3(a[k]), y[k] = e4m3(b[k]);
  uint32_t bits = ptx::bits_as<uint32_t>(c);
  multiply(Element::kE4M3, Accumulate::kF32, x, 1, y, 1, &bits, true);
  return ptx::bits_as<float>(bits);
}

TEST(Fp8Accumulator, OnesStopAtTwoToThe14) {
  const std::vector<double> ones(32, 1.0);
  float sum = 0;
  for (int i = 0; i < 512; ++i) {
    sum = e4m3_step(ones, ones, sum);
    EXPECT_EQ(sum, static_cast<float>(32 * (i + 1)));
  }
  ASSERT_EQ(sum, 16384.0f);
  for (int i = 0; i < 100; ++i) sum = e4m3_step(ones, ones, sum);
  EXPECT_EQ(sum, 16384.0f);
  // Twos are still seen there, and stop one octave later.
  const std::vector<double> twos(32, 2.0);
  for (int i = 0; i < 1000; ++i) sum = e4m3_step(ones, twos, sum);
  EXPECT_EQ(sum, 32768.0f);
}

TEST(Fp8Accumulator, EachTermIsCutNotTheSum) {
  // The largest exponent is 4 + 4 = 8 (16 * 16), so a term keeps multiples of 2^(8 - 13) = 1/32.
  std::vector<double> a(32, 0.0), b(32, 1.0);
  a[0] = 16, b[0] = 16;
  for (size_t k = 1; k < 32; ++k) a[k] = 0x1p-6;  // half of that unit: each is lost
  EXPECT_EQ(e4m3_step(a, b, 0), 256.0f);
  for (size_t k = 1; k < 32; ++k)
    a[k] = -0x1p-6 * 1.5;  // and so are negative ones: cut towards zero
  EXPECT_EQ(e4m3_step(a, b, 0), 256.0f);
  for (size_t k = 1; k < 32; ++k) a[k] = 0x1p-5 * 1.5;  // one unit of each survives
  EXPECT_EQ(e4m3_step(a, b, 0), 256.0f + 31.0f / 32);
}

TEST(Fp8Accumulator, AlignmentLooksAtExponentsNotAtProducts) {
  // 1.875 * 1.875 = 3.515625 has exponent 0 for the alignment, so terms keep multiples of 2^-13;
  // the sum has its leading one at 2, so it keeps multiples of 2^-12.
  EXPECT_EQ(e4m3_step({1.875, 0x1p-9}, {1.875, 0x1p-4}, 0), 3.515625f);
  EXPECT_EQ(e4m3_step({1.875, 0x1p-9}, {1.875, 0x1p-3}, 0), 3.515625f + 0x1p-12f);
  EXPECT_EQ(e4m3_step({1.875, 0x1p-9}, {1.875, 0x1p-4}, -2.5f), 1.015625f);  // 2 aligns: unit 2^-12
  EXPECT_EQ(e4m3_step({1.875, 0x1p-9}, {1.875, 0x1p-3}, -2.0f), 1.515625f + 0x1p-12f);
}

TEST(Fp8Accumulator, SubnormalsAlignAsTheSmallestExponent) {
  // 2^-9 is stored with exponent -6: 2^-9 * 2^-9 = 2^-18 has alignment exponent -12, unit 2^-25.
  EXPECT_EQ(e4m3_step({0x1p-9}, {0x1p-9}, 0), 0x1p-18f);
  EXPECT_EQ(e4m3_step({0x1p-9}, {0x1p-9}, 0x1p-26f), 0x1p-18f);
}

TEST(Fp8Accumulator, TheAccumulatorIsCutToo) {
  EXPECT_EQ(e4m3_step({0.0}, {0.0}, 1.0f + 0x1p-13f), 1.0f + 0x1p-13f);
  EXPECT_EQ(e4m3_step({0.0}, {0.0}, 1.0f + 0x1p-14f), 1.0f);
  EXPECT_EQ(e4m3_step({0.0}, {0.0}, -1.0f - 0x1p-14f), -1.0f);
}

TEST(Fp8Accumulator, NanSpreads) {
  EXPECT_TRUE(std::isnan(e4m3_step({NAN, 1}, {1, 1}, 0)));
  EXPECT_TRUE(std::isnan(e4m3_step({1}, {1}, NAN)));
}

// Relative error left in the accumulator over 8,192 keys when it is promoted every `promote` tiles
// of 128: what was measured on an H200 with the same distributions (absolute normals times 32;
// normals times 64 around `mean`).
double error_over_8192_keys(double mean, int promote) {
  constexpr int kColumns = 48;
  Random random(1);
  const auto normal = [&] {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.next() >> 11) * 0x1p-53;
    return sum;
  };
  std::vector<double> promoted(kColumns, 0.0), exact(kColumns, 0.0);
  std::vector<uint32_t> bits(kColumns, 0);
  for (int step = 0; step < 256; ++step) {
    uint8_t p[32], v[kColumns * 32];
    for (uint8_t& x : p) x = e4m3(std::fabs(normal()) * 32);
    for (uint8_t& x : v) x = e4m3(normal() * 64 + mean);
    for (size_t c = 0; c < kColumns; ++c) {
      for (size_t k = 0; k < 32; ++k)
        exact[c] += double_from_e4m3(p[k]) * double_from_e4m3(v[c * 32 + k]);
    }
    multiply(Element::kE4M3, Accumulate::kF32, p, 1, v, kColumns, bits.data(), true);
    if (step % (4 * promote) != 4 * promote - 1 && step != 255) continue;
    for (size_t c = 0; c < kColumns; ++c)
      promoted[c] += static_cast<double>(ptx::bits_as<float>(bits[c]));
    std::fill(bits.begin(), bits.end(), 0);
  }
  double error = 0, norm = 0;
  for (size_t c = 0; c < kColumns; ++c) {
    error += (promoted[c] - exact[c]) * (promoted[c] - exact[c]);
    norm += exact[c] * exact[c];
  }
  return std::sqrt(error / norm);
}

TEST(Fp8Accumulator, ErrorsOverManyKeysAreThoseMeasured) {
  EXPECT_NEAR(error_over_8192_keys(64, 64), 0.10, 0.005);     // measured: 10 %
  EXPECT_NEAR(error_over_8192_keys(64, 8), 0.009, 0.0005);    // 0.9 %
  EXPECT_NEAR(error_over_8192_keys(64, 1), 0.0003, 0.00005);  // 0.03 %
  EXPECT_NEAR(error_over_8192_keys(0, 64), 0.002, 0.0005);    // 0.2 %
  EXPECT_NEAR(error_over_8192_keys(0, 8), 0.0006, 0.0002);    // 0.06 %
  EXPECT_NEAR(error_over_8192_keys(0, 1), 0.00014, 0.00004);  // 0.014 %
}

TEST(Fp8ToHalf, RoundsToNearestEvenOnce) {
  const auto step = [](const std::vector<double>& a, const std::vector<double>& b, double c) {
    uint8_t x[32] = {}, y[32] = {};
    for (size_t k = 0; k < a.size(); ++k) x[k] = e4m3(a[k]), y[k] = e4m3(b[k]);
    uint32_t bits = f16_from_double(c);
    multiply(Element::kE4M3, Accumulate::kF16, x, 1, y, 1, &bits, true);
    return double_from_f16(static_cast<uint16_t>(bits));
  };
  EXPECT_EQ(step({1, 1}, {1, 0x1p-9}, 1024.0), 1025.0);
  EXPECT_EQ(step({0.5}, {1}, 1024.0), 1024.0);  // tie to even
  EXPECT_EQ(step({0.5}, {1}, 1025.0), 1026.0);  // tie to even
  EXPECT_EQ(step({0.5, 0.25}, {1, 1}, 1024.0), 1025.0);
  EXPECT_EQ(step({448}, {448}, 0), INFINITY);  // 200,704
}

TEST(Fp8MmaSync, TwoStepsOfHalvesThenARoundedAddition) {
  struct Term {
    int k;
    double a, b;
  };
  const auto step = [](const std::vector<Term>& terms, float c) {
    uint8_t x[32] = {}, y[32] = {};
    for (const Term& t : terms) x[t.k] = e4m3(t.a), y[t.k] = e4m3(t.b);
    uint32_t bits = ptx::bits_as<uint32_t>(c);
    multiply_e4m3_as_f16(x, 1, y, 1, &bits);
    return ptx::bits_as<float>(bits);
  };
  // Beside 2^16, terms keep multiples of 2^-9. k = 0 and 17 are both in the first step.
  const Term big{0, 256, 256}, minus_big{17, -256, 256};
  for (int k = 1; k < 32; ++k) {
    if (k == 17) continue;
    const float kept = k % 4 < 2 ? 0.0f : 0x1p-18f;
    EXPECT_EQ(step({big, minus_big, {k, 0x1p-9, 0x1p-9}}, 0), kept) << k;
  }
  // k = 2 is in the second, which starts from the first one's sum, cut to multiples of 2^-7.
  EXPECT_EQ(step({big, {2, -256, 256}, {1, 0x1p-7, 1}}, 0), 0x1p-7f);
  EXPECT_EQ(step({big, {2, -256, 256}, {1, 0x1p-8, 1}}, 0), 0.0f);
  EXPECT_EQ(step({big, {2, -256, 256}, {3, 0x1p-9, 1}}, 0), 0x1p-9f);
  EXPECT_EQ(step({big, {2, -256, 256}, {3, 0x1p-9, 0.5}}, 0), 0.0f);
  // c is not aligned with the products, and the last addition rounds to nearest even.
  EXPECT_EQ(step({{0, 1, 1}}, 0x1p24f), 0x1p24f);
  EXPECT_EQ(step({{0, 1.5, 2}}, 0x1p24f), 0x1p24f + 4);
  EXPECT_EQ(step({{0, -1.5, 2}}, -0x1p24f), -0x1p24f - 4);
  EXPECT_EQ(step({{0, 1, 1}, {2, 0x1p-9, 0x1p-9}}, 0x1p24f), 0x1p24f + 2);
  EXPECT_TRUE(std::isnan(step({{0, NAN, 1}}, 0)));
}

TEST(TensorFloat, TermsKeep25BitsAndResultsAreCutTo23) {
  const auto step = [](const std::vector<float>& a, const std::vector<float>& b, float c) {
    float x[8] = {}, y[8] = {};
    std::copy(a.begin(), a.end(), x);
    std::copy(b.begin(), b.end(), y);
    uint32_t bits = ptx::bits_as<uint32_t>(c);
    multiply(Element::kTF32, Accumulate::kF32, reinterpret_cast<uint8_t*>(x), 1,
             reinterpret_cast<uint8_t*>(y), 1, &bits, true);
    return ptx::bits_as<float>(bits);
  };
  EXPECT_EQ(step({3, 5}, {7, -2}, 0.5f), 11.5f);
  EXPECT_EQ(step({0x1p-24f}, {1}, 1.0f), 1.0f);  // towards zero, not to nearest
  EXPECT_EQ(step({0x1p-24f, 0x1p-24f}, {1, 1}, 1.0f),
            1.0f + 0x1p-23f);  // two terms of 2^-24 make one unit
  EXPECT_EQ(step({0x1p-25f, 0x1p-25f, 0x1p-25f, 0x1p-25f}, {1, 1, 1, 1}, 1.0f), 1.0f + 0x1p-23f);
  EXPECT_EQ(step({0x1p-26f, 0x1p-26f, 0x1p-26f, 0x1p-26f}, {1, 1, 1, 1}, 1.0f),
            1.0f);  // each is lost
  EXPECT_EQ(step({ptx::bits_as<float>(0x3F801FFFu)}, {1}, 0.0f),
            1.0f);  // the low 13 bits are ignored
}

}  // namespace
}  // namespace vcattn::emu::test
