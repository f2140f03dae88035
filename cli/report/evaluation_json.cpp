#include "cli/report/evaluation_json.h"

#include <fmt/format.h>

#include <cmath>

namespace vcattn::cli {

using nlohmann::ordered_json;

ordered_json number_json(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json to_json(const Evaluation& e) {
  const CallShape& s = e.shape;
  ordered_json object = {
      {"recipe", e.recipe.name},
      {"backend", e.backend},
      {"kernel", e.kernel},
      {"shape",
       {{"b", s.b}, {"hq", s.hq}, {"hkv", s.hkv}, {"sq", s.sq}, {"skv", s.skv}, {"d", s.d}}},
      {"time_ms", number_json(e.timing.median_ms)},
      {"rel_l2", nullptr},
      {"cosine", nullptr},
      {"max_abs", nullptr},
      {"lse_max_abs", nullptr},
      {"finite", e.finite},
      {"worst_head", nullptr},
      {"worst_row", nullptr}};
  if (!e.metrics) return object;
  const Metrics& m = *e.metrics;
  object["rel_l2"] = number_json(m.rel_l2);
  object["cosine"] = number_json(m.cosine);
  object["max_abs"] = number_json(m.max_abs);
  object["lse_max_abs"] = number_json(m.lse_max_abs);
  const HeadError& head = m.worst_head();
  object["worst_head"] = {
      {"batch", head.batch}, {"head", head.head}, {"rel_l2", number_json(head.rel_l2)}};
  const HeadError& row = worst_row(m);
  object["worst_row"] = {{"batch", row.batch},
                         {"head", row.head},
                         {"row", row.worst_row},
                         {"cosine", number_json(row.worst_row_cosine)}};
  return object;
}

void add_spread(ordered_json& object, const Timing& timing) {
  object["time_min_ms"] = number_json(timing.min_ms);
  object["time_max_ms"] = number_json(timing.max_ms);
  object["warmup"] = timing.protocol.warmup;
  object["repeats"] = timing.protocol.repeats;
}

void print_json(const ordered_json& object) {
  // Names from files may be no UTF-8.
  const auto replace = ordered_json::error_handler_t::replace;
  fmt::print("{}\n", object.dump(2, ' ', false, replace));
}

}  // namespace vcattn::cli
