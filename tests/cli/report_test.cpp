// Parts of the reports that the binary's output shows only indirectly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cli/bench_cases.h"
#include "cli/measure/evaluation.h"
#include "cli/report/evaluation_json.h"
#include "cli/report/html/axis.h"
#include "cli/report/html/charts.h"
#include "cli/report/html/text.h"
#include "cli/report/table.h"

namespace vcattn::cli {
namespace {

TEST(Table, AlignsColumns) {
  Table table({"recipe", "error"});
  table.add({"vc8", "0.0119"});
  table.add({"vc8-paper", "1"});
  EXPECT_EQ(table.text(),
            "recipe      error\n"
            "-----------------\n"
            "vc8        0.0119\n"
            "vc8-paper       1\n");
}

TEST(Numbers, AsText) {
  EXPECT_EQ(number_text(0.0), "0.00");
  EXPECT_EQ(number_text(0.011912), "0.0119");
  EXPECT_EQ(number_text(2.13e-7), "2.1e-07");
  EXPECT_EQ(number_text(std::nan("")), "-");
  EXPECT_EQ(cosine_text(0.99993), "0.999930");
  EXPECT_EQ(time_text(1234.0), "1.23 s");
  EXPECT_EQ(time_text(12.34), "12.3 ms");
  EXPECT_EQ(to_string(CallShape{1, 28, 4, 10, 20, 64}), "1 x 28(4) x 10 x 20 x 64");
}

TEST(Json, NonFiniteNumbersAreNull) {
  EXPECT_EQ(number_json(1.5).dump(), "1.5");
  EXPECT_EQ(number_json(std::nan("")).dump(), "null");
  EXPECT_EQ(number_json(std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(ReferenceRows, SpreadFromFirstToLast) {
  const CallShape shape{1, 1, 1, 100, 100, 64};
  EXPECT_TRUE(reference_rows(shape, 0).empty());
  EXPECT_TRUE(reference_rows(shape, 100).empty());
  EXPECT_EQ(reference_rows(shape, 4), (std::vector<std::int64_t>{0, 33, 66, 99}));
  EXPECT_EQ(reference_rows(shape, 1), (std::vector<std::int64_t>{0}));
  const auto huge = reference_rows({1, 40, 40, 75600, 75600, 128}, 0);
  EXPECT_GE(huge.size(), 16U);
  EXPECT_LT(huge.size(), 1000U);
  EXPECT_TRUE(std::is_sorted(huge.begin(), huge.end()));
  EXPECT_TRUE(reference_rows({0, 0, 0, 0, 0, 0}, 0).empty());
}

TEST(BenchCases, ScaleKeepsTheGroupAndSmallSizes) {
  for (const BenchCase& full : kBenchCases) {
    const BenchCase size = scaled(full, {.tokens = 1024, .heads = 2});
    EXPECT_EQ(full.hq / full.hkv, size.hq / size.hkv) << full.name;
    EXPECT_EQ(size.skv, std::min<std::int64_t>(full.skv, 1024)) << full.name;
    EXPECT_EQ(size.d, full.d) << full.name;
    const BenchCase whole = scaled(full, {});
    EXPECT_EQ(whole.hq, full.hq);
    EXPECT_EQ(whole.hkv, full.hkv);
    EXPECT_EQ(whole.sq, full.sq);
  }
}

TEST(Recipes, CompeteWithinTheirPrecision) {
  using html::Precision;
  EXPECT_EQ(html::precision_of(recipe("exact")), Precision::kFloat);
  for (const char* name : {"fp8", "sage2", "vc8", "vc8-paper", "vc8-exp", "vc8-fast"}) {
    EXPECT_EQ(html::precision_of(recipe(name)), Precision::k8Bit) << name;
  }
  EXPECT_EQ(html::precision_of(recipe("sage3")), Precision::k4Bit);
  EXPECT_EQ(html::precision_of(recipe("vc4")), Precision::k4Bit);
}

TEST(Html, EscapesAndSuperscripts) {
  EXPECT_EQ(html::escape("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
  EXPECT_EQ(html::power_of_ten(-12), "10⁻¹²");
  EXPECT_EQ(html::power_of_ten(3), "10³");
}

TEST(Axis, CoversItsDataWithRoundTicks) {
  for (const double highest : {1e-9, 0.0187, 0.12, 0.999, 1.0, 7.3, 12345.0}) {
    const html::Axis axis = html::zero_based_axis(highest, "");
    EXPECT_EQ(axis.low, 0.0);
    EXPECT_GE(axis.high, highest);
    EXPECT_LE(axis.high, 1.6 * highest);
    EXPECT_GE(axis.ticks.size(), 4U);
    EXPECT_LE(axis.ticks.size(), 7U);
  }
  EXPECT_EQ(html::zero_based_axis(0.0, "").high, 1.0);
  EXPECT_EQ(html::zero_based_axis(std::nan(""), "").high, 1.0);
  const html::Axis decades = html::decade_axis(-3.5, 0.2, "");
  ASSERT_EQ(decades.ticks.size(), 4U);
  EXPECT_EQ(decades.ticks.front().label, "10⁻³");
  EXPECT_EQ(html::category_axis(std::vector<std::string>(500, "b0 h00"), "").ticks.size(), 10U);
}

}  // namespace
}  // namespace vcattn::cli
