#include "vcattn/numerics/row_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace vcattn::numerics {
namespace {

TEST(RowSample, FewRowsAreAllTaken) {
  for (const int rows : {0, 1, 127, 8191}) {
    const RowSample sample = row_sample(rows, true);
    ASSERT_EQ(sample.count, rows);
    for (int i = 0; i < rows; ++i) ASSERT_EQ(sample.row(i), i);
  }
  const RowSample without = row_sample(100000, false);
  EXPECT_EQ(without.count, 100000);
  EXPECT_EQ(without.row(99999), 99999);
}

TEST(RowSample, ManyRowsGiveOneOfEachSixteen) {
  for (const int rows : {8192, 8207, 32760, 75600, 2147483391}) {
    const RowSample sample = row_sample(rows, true);
    ASSERT_EQ(sample.count, rows / 16);
    for (int i = 0; i < std::min(sample.count, 100000); ++i) {
      ASSERT_EQ(sample.row(i) / 16, i);
    }
    ASSERT_EQ(sample.row(sample.count - 1) / 16, sample.count - 1);
    ASSERT_LT(sample.row(sample.count - 1), rows);
  }
}

TEST(RowSample, GramMatricesHaveTwoThousandRowsOrAll) {
  const std::pair<int, int> cases[] = {{0, 0},     {2048, 0},  {4095, 0},  {4096, 1},
                                       {16383, 2}, {32760, 3}, {32768, 4}, {2147483391, 4}};
  for (const auto& [rows, shift] : cases) {
    const RowSample sample = gram_sample(rows, true);
    ASSERT_EQ(sample.shift, shift) << rows;
    ASSERT_EQ(sample.count, rows >> shift);
    for (int i = 0; i < std::min(sample.count, 100000); ++i) {
      ASSERT_EQ(sample.row(i) >> shift, i);
    }
  }
  EXPECT_EQ(gram_sample(100000, false).shift, 0);
}

// A line of a video is a period of its tokens: each of its columns must be met about equally often,
// also where it is a multiple of 16.
TEST(RowSample, NoPeriodOfTheRowsIsPreferred) {
  constexpr int kRows = 75600;
  const RowSample sample = row_sample(kRows, true);
  for (const int period : {8, 13, 16, 32, 45, 48, 52, 64, 80, 104, 120}) {
    std::vector<int> hits(period, 0);
    for (int i = 0; i < sample.count; ++i) ++hits[sample.row(i) % period];
    const double expected = static_cast<double>(sample.count) / period;
    const auto [least, most] = std::minmax_element(hits.begin(), hits.end());
    EXPECT_GT(*least, 0.75 * expected) << period;
    EXPECT_LT(*most, 1.25 * expected) << period;
  }
}

}  // namespace
}  // namespace vcattn::numerics
