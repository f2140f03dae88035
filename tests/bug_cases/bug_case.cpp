#include "bug_cases/bug_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "bug_cases/call.h"

namespace vcattn::test {
namespace {

class RecipeTest : public testing::Test {
 public:
  RecipeTest(std::function<void(const Recipe&)> body, std::string recipe_name)
      : body_(std::move(body)), recipe_name_(std::move(recipe_name)) {}
  void TestBody() override {
    try {
      const Recipe recipe = recipe_name_.empty() ? Recipe{} : vcattn::recipe(recipe_name_);
      const std::string refusal = target().refuses(recipe);
      if (!refusal.empty()) throw NotHere(refusal);
      body_(recipe);
    } catch (const NotHere& reason) {
      GTEST_SKIP() << reason.what();
    }
  }

 private:
  std::function<void(const Recipe&)> body_;
  std::string recipe_name_;
};

}  // namespace

void need_host(const char* elsewhere) {
  if (target().device.kind != Device::Kind::kCpu) throw NotHere(elsewhere);
}

bool register_cases(const char* suite, const std::vector<BugCase>& cases) {
  for (const BugCase& bug : cases) {
    const std::vector<std::string> none{""};
    for (const std::string& name : bug.recipes.empty() ? none : bug.recipes) {
      std::string test = name.empty() ? bug.id : bug.id + "_" + name;
      // A '-' in a test's name would end the list of wanted tests in --gtest_filter.
      std::replace(test.begin(), test.end(), '-', '_');
      testing::RegisterTest(
          suite, test.c_str(), nullptr, nullptr, __FILE__, __LINE__,
          [body = bug.body, name]() -> testing::Test* { return new RecipeTest(body, name); });
    }
  }
  return true;
}

}  // namespace vcattn::test
