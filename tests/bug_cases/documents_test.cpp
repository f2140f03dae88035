// docs/bug-cases.md against the tests: every row of the table is accounted for, once, and the
// tolerances it publishes are those the tests use (row ACC-18).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "bug_cases/bug_case.h"
#include "bug_cases/tolerance.h"

namespace vcattn::test {
namespace {

/// Cells of every table line of the document, without the blanks around them.
std::vector<std::vector<std::string>> table_lines() {
  std::ifstream file(VCATTN_BUG_CASES_DOC);
  EXPECT_TRUE(file) << VCATTN_BUG_CASES_DOC;
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| ", 0) != 0) continue;
    std::vector<std::string> cells;
    std::istringstream rest(line.substr(1));
    for (std::string cell; std::getline(rest, cell, '|');) {
      const auto first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    lines.push_back(cells);
  }
  return lines;
}

/// The 116 rows by category.
std::set<std::string> all_ids() {
  const std::map<std::string, int> counts{{"ACC", 18}, {"NAN", 17}, {"SIL", 19},
                                          {"CRA", 13}, {"API", 11}, {"BLD", 10},
                                          {"PRF", 9},  {"INT", 12}, {"DST", 7}};
  std::set<std::string> ids;
  for (const auto& [category, count] : counts) {
    for (int i = 1; i <= count; ++i) {
      ids.insert(category + (i < 10 ? "-0" : "-") + std::to_string(i));
    }
  }
  return ids;
}

/// The rows that have at least one test in this program.
std::set<std::string> tested_ids() {
  const std::set<std::string> ids = all_ids();
  std::set<std::string> tested;
  const testing::UnitTest& program = *testing::UnitTest::GetInstance();
  for (int suite = 0; suite < program.total_test_suite_count(); ++suite) {
    const testing::TestSuite& tests = *program.GetTestSuite(suite);
    for (int i = 0; i < tests.total_test_count(); ++i) {
      std::string id = std::string(tests.GetTestInfo(i)->name()).substr(0, 6);
      std::replace(id.begin(), id.end(), '_', '-');
      if (ids.count(id) == 1) tested.insert(id);
    }
  }
  return tested;
}

TEST(Documents, EveryRowIsAccountedForOnce) {
  std::map<std::string, int> seen;
  std::set<std::string> marked;
  const std::set<std::string> ids = all_ids();
  EXPECT_EQ(ids.size(), 116U);
  for (const auto& cells : table_lines()) {
    if (ids.count(cells[0]) == 0) continue;
    ++seen[cells[0]];
    ASSERT_GE(cells.size(), 3U) << cells[0];
    EXPECT_FALSE(cells[2].empty()) << cells[0] << " needs a reason or a remark";
    if (cells[1] == "here" || cells[1] == "here in part") marked.insert(cells[0]);
  }
  for (const std::string& id : ids) EXPECT_EQ(seen[id], 1) << id;
  EXPECT_EQ(marked, tested_ids());
}

void published_tolerances(const Recipe&) {
  std::map<std::string, std::vector<std::string>> published;
  for (const auto& cells : table_lines()) published[cells[0]] = cells;
  for (const Tolerance& tolerance : {kT8, kT8F, kT4, kT32}) {
    const std::vector<std::string>& cells = published[tolerance.name];
    ASSERT_GE(cells.size(), 5U) << tolerance.name;
    EXPECT_EQ(std::stod(cells[1]), tolerance.rel_l2) << tolerance.name;
    EXPECT_EQ(std::stod(cells[2]), tolerance.cosine) << tolerance.name;
    EXPECT_EQ(std::stod(cells[3]), tolerance.row_cosine) << tolerance.name;
    EXPECT_EQ(std::stod(cells[4]), tolerance.lse) << tolerance.name;
  }
}

const bool kRegistered =
    register_cases("DocumentedNumbers", {{"ACC-18", {}, published_tolerances}});

}  // namespace
}  // namespace vcattn::test
