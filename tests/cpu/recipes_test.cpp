// Recipes on real activations: the figures the project promises, and the published ones it must
// reproduce.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "bug_cases/call.h"
#include "io/safetensors.h"

namespace vcattn::test {
namespace {

struct Capture {
  const char* file;
  /// relative L2 published for plain FP8 and for a SageAttention2-like recipe on this capture.
  double fp8, sage2;
  /// and for NVFP4 with K mean only, which SageAttention3 must not be worse than.
  double nvfp4;
};

const Capture kCaptures[] = {{"videodit-layer1-step12.safetensors", 0.0459, 0.0169, 0.1443},
                             {"videodit-layer5-step4.safetensors", 0.0243, 0.0091, 0.0850}};

std::filesystem::path find(const Capture& capture) {
  for (const char* folder : {VCATTN_EXAMPLES, VCATTN_MORE_CAPTURES}) {
    const auto path = std::filesystem::path(folder) / capture.file;
    if (std::filesystem::exists(path)) return path;
  }
  return {};
}

class Captures : public testing::TestWithParam<Capture> {
 protected:
  void SetUp() override {
    const auto path = find(GetParam());
    if (path.empty()) GTEST_SKIP() << GetParam().file << " is not part of this checkout";
    file_.emplace(io::SafetensorsFile::open(path));
    const auto view = [&](const char* name) {
      const io::TensorEntry& entry = file_->at(name);
      return dense_view(static_cast<const void*>(entry.bytes.data()), DType::kBF16, Layout::kBHSD,
                        {entry.shape[0], entry.shape[1], entry.shape[2], entry.shape[3]});
    };
    arguments_.q = view("q");
    arguments_.k = view("k");
    arguments_.v = view("v");
  }

  Metrics metrics(const Recipe& r) {
    // float64 takes seconds, so each capture's answer is computed once.
    static std::map<std::string, Reference> references;
    auto [at, missing] = references.try_emplace(GetParam().file);
    if (missing) at->second = referee(arguments_);
    return compare(run(arguments_, r, nullptr, {.dtype = DType::kF32}), at->second);
  }
  double rel_l2(const char* name) { return metrics(recipe(name)).rel_l2; }

  std::optional<io::SafetensorsFile> file_;
  Arguments arguments_;
};

TEST_P(Captures, ReproducesThePublishedRecipes) {
  EXPECT_NEAR(rel_l2("fp8"), GetParam().fp8, 0.05 * GetParam().fp8);
  EXPECT_NEAR(rel_l2("sage2"), GetParam().sage2, 0.10 * GetParam().sage2);
  EXPECT_LE(rel_l2("sage3"), GetParam().nvfp4);
  Recipe without_q_smoothing = recipe("sage3");
  without_q_smoothing.q_block_mean = false;
  EXPECT_NEAR(metrics(without_q_smoothing).rel_l2, GetParam().nvfp4, 0.05 * GetParam().nvfp4);
}

TEST_P(Captures, KeepsItsPromises) {
  const double vc8 = rel_l2("vc8");
  EXPECT_LE(vc8, 0.80 * rel_l2("sage2"));
  EXPECT_LT(vc8, 1.02 * rel_l2("vc8-exp"));
  EXPECT_LT(vc8, rel_l2("vc8-paper"));
  EXPECT_LE(rel_l2("vc4"), 0.75 * rel_l2("sage3"));
  EXPECT_LE(rel_l2("exact"), 3e-6);
}

TEST_P(Captures, ShapedRoundingOfE4m3ScoresIsAsExactAsSage2) {
  const double shaped = rel_l2("vc8-shaped");
  EXPECT_LE(shaped, rel_l2("sage2"));
  EXPECT_LE(shaped, 0.65 * rel_l2("vc8-fast"));
  Recipe int8 = recipe("vc8");
  int8.qk_shaping = true;
  EXPECT_LT(metrics(int8).rel_l2, rel_l2("vc8"));
}

TEST_P(Captures, EveryIdeaOfTheRecipeHelps) {
  // Dropping one idea at a time from vc8 must not make it better.
  const double vc8 = rel_l2("vc8");
  const std::pair<const char*, const char*> dropped[] = {
      {"hadamard", "off"},       {"v_smooth", "sequence"}, {"v_smooth", "off"},
      {"v_mean_refit", "off"},   {"qk", "e4m3"},           {"p_reference", "running"},
      {"cluster_order", "label"}};
  for (const auto& [field, value] : dropped) {
    Recipe without = recipe("vc8");
    set_field(without, field, value);
    EXPECT_GE(metrics(without).rel_l2, vc8) << field << " " << value;
  }
}

TEST_P(Captures, LseIsThatOfTheScores) {
  for (const char* name : {"vc8", "vc8-paper", "vc8-exp", "sage2"}) {
    EXPECT_LE(metrics(recipe(name)).lse_max_abs, 0.08) << name;
  }
  EXPECT_LE(metrics(recipe("exact")).lse_max_abs, 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Recipes, Captures, testing::ValuesIn(kCaptures), [](const auto& test) {
  std::string name = test.param.file;
  name.resize(name.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Recipes, NamesAreKnownAndSummarised) {
  for (const std::string& name : recipe_names()) {
    EXPECT_EQ(recipe(name).name, name);
    EXPECT_FALSE(recipe_summary(name).empty());
  }
  try {
    recipe("vc9");
    FAIL() << "an unknown recipe was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("vc8-paper"), std::string::npos) << error.what();
  }
}

TEST(Recipes, FieldsReadBackWhatTheyPrint) {
  for (const std::string& name : recipe_names()) {
    Recipe copy = recipe("vc8");
    copy.name = name;
    for (const auto& [field, value] : fields(recipe(name))) set_field(copy, field, value);
    EXPECT_EQ(copy, recipe(name)) << name;
  }
}

TEST(Recipes, BadFieldsAreNamedWithWhatIsSupported) {
  const std::vector<std::array<std::string, 3>> cases{
      {"hadamard", "maybe", "on, off"}, {"v_smooth", "kmeans", "clustered"},
      {"p_top", "127", "1 to 126"},     {"p_top", "12x", "1 to 126"},
      {"q_scale_rows", "-1", "0 to"},   {"smoothing", "on", "v_smooth"}};
  for (const auto& [field, value, hint] : cases) {
    Recipe r;
    try {
      set_field(r, field, value);
      ADD_FAILURE() << field << "=" << value << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(hint), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace vcattn::test
