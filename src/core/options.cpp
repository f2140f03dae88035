// Recipe fields as text, for the command line, files and other languages: one table.
#include "vcattn/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <functional>
#include <limits>
#include <utility>

#include "vcattn/error.h"

namespace vcattn {
namespace {

[[noreturn]] void reject(std::string_view field, std::string_view given,
                         std::string_view supported) {
  throw Error(ErrorCode::kInvalidArgument, std::string(field),
              fmt::format("\"{}\" was given (supported: {})", given, supported));
}

template <class Enum>
using Names = std::vector<std::pair<Enum, std::string_view>>;

struct Field {
  std::string_view name;
  std::function<void(Recipe&, std::string_view)> set;
  std::function<std::string(const Recipe&)> get;
};

template <class Enum>
Field enum_field(std::string_view name, Enum Recipe::*member, Names<Enum> names) {
  const auto set = [=](Recipe& recipe, std::string_view value) {
    std::vector<std::string_view> known;
    for (const auto& [key, text] : names) {
      if (text == value) {
        recipe.*member = key;
        return;
      }
      known.push_back(text);
    }
    reject(name, value, fmt::format("{}", fmt::join(known, ", ")));
  };
  const auto get = [=](const Recipe& recipe) {
    for (const auto& [key, text] : names) {
      if (key == recipe.*member) return std::string(text);
    }
    return std::string("?");
  };
  return {name, set, get};
}

template <class Number>
Field number_field(std::string_view name, Number Recipe::*member, Number low, Number high) {
  const auto set = [=](Recipe& recipe, std::string_view value) {
    Number parsed{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    const bool whole = error == std::errc{} && end == value.data() + value.size();
    if (!whole || !(parsed >= low && parsed <= high)) {
      reject(name, value, fmt::format("a number from {} to {}", low, high));
    }
    recipe.*member = parsed;
  };
  return {name, set, [=](const Recipe& recipe) { return fmt::format("{}", recipe.*member); }};
}

Field bool_field(std::string_view name, bool Recipe::*member) {
  return enum_field<bool>(name, member, {{true, "on"}, {false, "off"}});
}

constexpr int kMaxRows = std::numeric_limits<int>::max();

const std::vector<Field>& field_table() {
  static const std::vector<Field> kFields{
      enum_field<QkFormat>("qk", &Recipe::qk,
                           {{QkFormat::kFloat, "float"},
                            {QkFormat::kInt8, "int8"},
                            {QkFormat::kE4M3, "e4m3"},
                            {QkFormat::kNvfp4, "nvfp4"}}),
      number_field("q_scale_rows", &Recipe::q_scale_rows, 0, kMaxRows),
      number_field("k_scale_rows", &Recipe::k_scale_rows, 0, kMaxRows),
      enum_field<ScoreFormat>("scores", &Recipe::scores,
                              {{ScoreFormat::kFloat, "float"},
                               {ScoreFormat::kWindow, "window"},
                               {ScoreFormat::kHalf, "half"}}),
      bool_field("k_mean", &Recipe::k_mean),
      bool_field("k_tile_mean", &Recipe::k_tile_mean),
      bool_field("q_block_mean", &Recipe::q_block_mean),
      bool_field("qk_balance", &Recipe::qk_balance),
      bool_field("qk_sample", &Recipe::qk_sample),
      bool_field("hadamard", &Recipe::hadamard),
      bool_field("qk_shaping", &Recipe::qk_shaping),
      enum_field<PFormat>("p", &Recipe::p,
                          {{PFormat::kFloat, "float"},
                           {PFormat::kE4M3Exp, "e4m3-exp"},
                           {PFormat::kExpCast, "expcast"},
                           {PFormat::kNvfp4, "nvfp4"}}),
      enum_field<PReference>("p_reference", &Recipe::p_reference,
                             {{PReference::kTile, "tile"}, {PReference::kRunning, "running"}}),
      number_field("p_top", &Recipe::p_top, 1.0F, 126.0F),
      number_field("p_beta", &Recipe::p_beta, -4.0F, 4.0F),
      enum_field<VFormat>("v", &Recipe::v,
                          {{VFormat::kFloat, "float"},
                           {VFormat::kE4M3Channel, "e4m3-channel"},
                           {VFormat::kE4M3Head, "e4m3-head"},
                           {VFormat::kNvfp4, "nvfp4"}}),
      enum_field<Nvfp4Scale>("nvfp4_scale", &Recipe::nvfp4_scale,
                             {{Nvfp4Scale::kSix, "six"}, {Nvfp4Scale::kFourSix, "four-six"}}),
      enum_field<VSmooth>("v_smooth", &Recipe::v_smooth,
                          {{VSmooth::kOff, "off"},
                           {VSmooth::kSequence, "sequence"},
                           {VSmooth::kClustered, "clustered"}}),
      bool_field("v_mean_refit", &Recipe::v_mean_refit),
      enum_field<ClusterOrder>("cluster_order", &Recipe::cluster_order,
                               {{ClusterOrder::kLabel, "label"}, {ClusterOrder::kChain, "chain"}}),
      number_field("keys_per_cluster", &Recipe::keys_per_cluster, 1, kMaxRows),
      number_field("kmeans_iterations", &Recipe::kmeans_iterations, 1, 1000),
  };
  return kFields;
}

}  // namespace

void set_field(Recipe& recipe, std::string_view field, std::string_view value) {
  std::vector<std::string_view> known;
  for (const Field& entry : field_table()) {
    if (entry.name == field) return entry.set(recipe, value);
    known.push_back(entry.name);
  }
  reject("recipe field", field, fmt::format("{}", fmt::join(known, ", ")));
}

std::vector<std::pair<std::string, std::string>> fields(const Recipe& recipe) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Field& entry : field_table()) {
    result.emplace_back(std::string(entry.name), entry.get(recipe));
  }
  return result;
}

}  // namespace vcattn
