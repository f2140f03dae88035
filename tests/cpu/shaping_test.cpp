// Noise-shaped rounding against a float64 implementation of its definition: regressions by solving
// normal equations, errors and factors without rounding.
#include "cpu/shaping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "bug_cases/call.h"
#include "cpu/prepare.h"
#include "support/portable_random.h"
#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/noise_shaping.h"

namespace vcattn::cpu {
namespace {

using Matrix = std::vector<double>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows whose energy falls by half every `half_life` directions of an orthogonal basis: what real
/// heads look like.
Rows correlated_rows(std::int64_t count, std::int64_t dim, std::uint32_t seed, double half_life) {
  Rows rows(count, dim);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < dim; ++c) {
      rows.row(i)[c] = static_cast<float>(std::exp2(-0.5 * static_cast<double>(c) / half_life)) *
                       test::portable_normal(seed, static_cast<std::uint32_t>(i * dim + c));
    }
  }
  rotate_hadamard(rows);
  return rows;
}

/// Solves a x = b, a symmetric positive definite n x n, by Gaussian elimination.
std::vector<double> solve(Matrix a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = k + 1; i < n; ++i) {
      const double l = a[i * n + k] / a[k * n + k];
      for (std::size_t j = k; j < n; ++j) a[i * n + j] -= l * a[k * n + j];
      b[i] -= l * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k * n + j] * b[j];
    b[k] /= a[k * n + k];
  }
  return b;
}

Matrix gram_of(const Rows& rows) {
  const std::int64_t dim = rows.dim;
  Matrix gram(static_cast<std::size_t>(dim * dim), 0.0);
  for (std::int64_t s = 0; s < rows.count; ++s) {
    for (std::int64_t i = 0; i < dim; ++i) {
      for (std::int64_t j = 0; j < dim; ++j) {
        gram[i * dim + j] += double{rows.row(s)[i]} * rows.row(s)[j];
      }
    }
  }
  return gram;
}

/// factor[i][c], c < i: the coefficients of the regression of channel i on the channels before it.
Matrix regressions(Matrix gram, std::int64_t dim) {
  double trace = 0.0;
  for (std::int64_t c = 0; c < dim; ++c) trace += gram[c * dim + c];
  for (std::int64_t c = 0; c < dim; ++c)
    gram[c * dim + c] += 0.01 * trace / static_cast<double>(dim);
  Matrix factors(gram.size(), 0.0);
  for (std::int64_t i = 1; i < dim; ++i) {
    Matrix head(static_cast<std::size_t>(i * i));
    std::vector<double> target(static_cast<std::size_t>(i));
    for (std::int64_t r = 0; r < i; ++r) {
      std::copy_n(gram.begin() + r * dim, i, head.begin() + r * i);
      target[r] = gram[i * dim + r];
    }
    const std::vector<double> x = solve(std::move(head), std::move(target));
    std::copy(x.begin(), x.end(), factors.begin() + i * dim);
  }
  return factors;
}

/// The recursion with exact errors and factors. `round` takes a channel to its format.
template <class Round>
Rows shaped_in_float64(const Rows& rows, const Matrix& factors, const Round& round) {
  Rows result(rows.count, rows.dim);
  for (std::int64_t s = 0; s < rows.count; ++s) {
    std::vector<double> t(rows.row(s), rows.row(s) + rows.dim);
    for (std::int64_t i = rows.dim; i-- > 0;) {
      const float z = round(static_cast<float>(t[i]));
      result.row(s)[i] = z;
      for (std::int64_t c = 0; c < i; ++c) t[c] += (t[i] - z) * factors[i * rows.dim + c];
    }
  }
  return result;
}

/// Root mean square of q . (k - k') over all pairs, from the Gram matrix of Q.
double score_error(const Rows& keys, const Rows& rounded, const Matrix& gram,
                   std::int64_t queries) {
  double total = 0.0;
  for (std::int64_t s = 0; s < keys.count; ++s) {
    std::vector<double> d(static_cast<std::size_t>(keys.dim));
    for (std::int64_t c = 0; c < keys.dim; ++c) d[c] = double{keys.row(s)[c]} - rounded.row(s)[c];
    for (std::int64_t i = 0; i < keys.dim; ++i) {
      for (std::int64_t j = 0; j < keys.dim; ++j) total += d[i] * gram[i * keys.dim + j] * d[j];
    }
  }
  return std::sqrt(total / static_cast<double>(keys.count * queries));
}

Rows scaled(Rows rows, float factor) {
  for (float& x : rows.data) x *= factor;
  return rows;
}

struct Format {
  const char* name;
  QkFormat format;
  float largest;  ///< code value that the largest element becomes
};
const Format kFormats[] = {{"Int8", QkFormat::kInt8, 127.0F}, {"E4m3", QkFormat::kE4M3, 16.0F}};

class ShapingFormats : public testing::TestWithParam<Format> {
 protected:
  static float round(float t) {
    return GetParam().format == QkFormat::kInt8 ? std::clamp(std::nearbyint(t), -127.0F, 127.0F)
                                                : numerics::e4m3_round(t);
  }
  /// Rows in code units, rounded by the library.
  static Rows shape(const Rows& rows, const Feedback& feedback) {
    Rows values(rows.count, rows.dim);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows.dim));
    for (std::int64_t s = 0; s < rows.count; ++s) {
      shape_row(rows.row(s), GetParam().format, 1.0F, feedback, codes.data(), values.row(s));
    }
    return values;
  }
  static Rows in_code_units(const Rows& rows) {
    float most = 0.0F;
    for (const float x : rows.data) most = std::max(most, std::abs(x));
    return scaled(rows, GetParam().largest / most);
  }
};

TEST_P(ShapingFormats, ErrorOfTheScoresIsThatOfTheExactRecursion) {
  for (const std::int64_t dim : {64, 128}) {
    const Rows queries = correlated_rows(1000, dim, 1, static_cast<double>(dim) / 10.0);
    const Rows keys = in_code_units(correlated_rows(200, dim, 2, static_cast<double>(dim) / 10.0));
    const Matrix gram = gram_of(queries);
    const auto error = [&](const Rows& rounded) {
      return score_error(keys, rounded, gram, queries.count);
    };
    Rows nearest = keys;
    for (float& x : nearest.data) x = round(x);
    const double shaped = error(shape(keys, make_feedback(gram, dim)));
    const double exact = error(shaped_in_float64(keys, regressions(gram, dim), round));
    EXPECT_NEAR(shaped, exact, 0.03 * exact) << dim;
    EXPECT_LT(shaped, 0.65 * error(nearest)) << dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Shaping, ShapingFormats, testing::ValuesIn(kFormats),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Shaping, FactorsAreRegressions) {
  const std::int64_t dim = 64;
  const Matrix gram = gram_of(correlated_rows(500, dim, 3, 8.0));
  const Feedback feedback = make_feedback(gram, dim);
  const Matrix expected = regressions(gram, dim);
  for (std::int64_t c = 0; c < dim; ++c) {
    for (std::int64_t i = 0; i < dim; ++i) {
      const double factor = double{feedback.scales[c]} * feedback.factors[c * dim + i];
      // Half a step of the INT8 factors, and float32 elimination at a condition number of 10^4.
      const double bound = 0.51 * feedback.scales[c] + 1e-4;
      ASSERT_NEAR(factor, i > c ? expected[i * dim + c] : 0.0, bound) << c << " " << i;
    }
  }
}

TEST(Shaping, GramIsOfTheSample) {
  // Row s has s in channel s mod 2: of 5,000 rows one of two is taken, s / 2 of each pair known.
  Rows rows(5000, 64);
  for (std::int64_t s = 0; s < rows.count; ++s) rows.row(s)[s % 2] = static_cast<float>(s);
  const auto sample = numerics::gram_sample(5000, true);
  ASSERT_EQ(sample.count, 2500);
  Matrix gram;
  add_gram(rows, sample, gram);
  double even = 0.0, odd = 0.0;
  for (int i = 0; i < 2500; ++i) {
    const double s = sample.row(i);
    (sample.row(i) % 2 == 0 ? even : odd) += s * s;
  }
  EXPECT_EQ(gram[0], even);
  EXPECT_EQ(gram[65], odd);
  EXPECT_EQ(std::accumulate(gram.begin(), gram.end(), 0.0), even + odd);
}

/// Codes of nearest rounding from a Gram matrix that gives nothing to go by.
TEST(Shaping, WithoutCorrelationsEveryChannelGoesToNearest) {
  const std::int64_t dim = 64;
  const Rows rows = scaled(correlated_rows(20, dim, 4, 10.0), 3.0F);
  Matrix identity(static_cast<std::size_t>(dim * dim), 0.0);
  for (std::int64_t c = 0; c < dim; ++c) identity[c * dim + c] = 5.0;
  Matrix with_nan = gram_of(rows), infinite = with_nan;
  with_nan[3] = with_nan[3 * dim + 3] = kNan;
  infinite[0] = std::numeric_limits<double>::infinity();
  for (const Matrix& gram : {identity, Matrix(identity.size(), 0.0), with_nan, infinite}) {
    const Feedback feedback = make_feedback(gram, dim);
    EXPECT_EQ(quantize_keys_half(rows, &feedback).codes, quantize_keys_half(rows).codes);
    EXPECT_EQ(quantize_rows(rows, QkFormat::kInt8, 1, Nvfp4Scale::kSix, &feedback).codes,
              quantize_rows(rows, QkFormat::kInt8, 1, Nvfp4Scale::kSix).codes);
  }
}

TEST(Shaping, OneRowAndConstantChannelsStayFinite) {
  const std::int64_t dim = 128;
  Rows one = correlated_rows(1, dim, 5, 10.0), constant(300, dim);
  for (std::int64_t s = 0; s < constant.count; ++s) {
    for (std::int64_t c = 0; c < 5; ++c) constant.row(s)[c] = 7.0F;
  }
  for (const Rows& rows : {one, constant}) {
    const Matrix gram = gram_of(rows);
    const Feedback feedback = make_feedback(gram, dim);
    for (const float scale : feedback.scales) ASSERT_TRUE(std::isfinite(scale));
    // A Gram matrix of rank one has one direction that counts: q . k' = q . k but for what the last
    // channel cannot take up any more.
    const QkOperand k = quantize_rows(rows, QkFormat::kInt8, 0, Nvfp4Scale::kSix, &feedback);
    double product = 0.0, expected = 0.0;
    for (std::int64_t c = 0; c < dim; ++c) {
      product += double{k.values.row(0)[c]} * k.row_scales[0] * rows.row(0)[c];
      expected += double{rows.row(0)[c]} * rows.row(0)[c];
    }
    EXPECT_NEAR(product, expected, 0.01 * expected);
  }
}

TEST(Shaping, ErrorsOfARowStayInIt) {
  const std::int64_t dim = 64;
  Rows rows = correlated_rows(4, dim, 6, 8.0);
  const Feedback feedback = make_feedback(gram_of(rows), dim);
  const QkOperand clean = quantize_queries_half(rows, 1.0F, 1.0F, &feedback);
  rows.row(1)[5] = kNan;
  rows.row(2)[0] = kInfinity;
  const QkOperand k = quantize_queries_half(rows, 1.0F, 1.0F, &feedback);
  for (const std::int64_t row : {0, 3}) {
    EXPECT_TRUE(std::equal(k.values.row(row), k.values.row(row) + dim, clean.values.row(row)));
  }
  EXPECT_TRUE(std::isnan(k.row_scales[1]) && std::isnan(k.row_scales[2]));
}

TEST(Shaping, ANanQueryTouchesOnlyItsOwnRow) {
  test::Inputs inputs({.q_heads = 2, .kv_heads = 1, .queries = 40, .keys = 300});
  inputs.q.set(0, 1, 7, 3, kNan);
  const test::Outcome outcome = test::run(inputs.arguments(), recipe("vc8-shaped"));
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t s = 0; s < 40; ++s) {
      EXPECT_EQ(std::isnan(outcome.out.get(0, h, s, 0)), h == 1 && s == 7) << h << " " << s;
    }
  }
}

}  // namespace
}  // namespace vcattn::cpu
