// Recipes and V-Smooth states behind opaque pointers.
#include <algorithm>
#include <memory>

#include "capi/boundary.h"
#include "capi/handles.h"

using namespace vcattn;        // NOLINT: this file is the C side of that namespace
using namespace vcattn::capi;  // NOLINT

const char* vcattn_recipe_name(size_t index) {
  return index < recipe_names().size() ? recipe_names()[index].c_str() : nullptr;
}

const char* vcattn_recipe_summary(size_t index) {
  if (index >= recipe_names().size()) return nullptr;
  return recipe_summary(recipe_names()[index]).data();  // views of string literals
}

vcattn_status vcattn_recipe_create(const char* name, vcattn_recipe** recipe) {
  return guarded([&] {
    required(recipe, "recipe") = nullptr;
    *recipe = new vcattn_recipe{vcattn::recipe(&required(name, "name"))};
  });
}

vcattn_status vcattn_recipe_set(vcattn_recipe* recipe, const char* field, const char* value) {
  return guarded([&] {
    set_field(required(recipe, "recipe").recipe, &required(field, "field"),
              &required(value, "value"));
  });
}

vcattn_status vcattn_recipe_field(const vcattn_recipe* recipe, size_t index, const char** field,
                                  const char** value) {
  return guarded([&] {
    const auto all = fields(required(recipe, "recipe").recipe);
    if (index >= all.size()) {
      throw Error(ErrorCode::kInvalidArgument, "index", "past the last recipe field");
    }
    std::vector<std::string>& text = thread_text().results;
    text = {all[index].first, all[index].second};
    required(field, "field") = text[0].c_str();
    required(value, "value") = text[1].c_str();
  });
}

void vcattn_recipe_destroy(vcattn_recipe* recipe) { delete recipe; }

vcattn_status vcattn_state_create(vcattn_state** state) {
  return guarded([&] { required(state, "state") = new vcattn_state{}; });
}

vcattn_status vcattn_state_create_scheduled(int32_t steps, double window, int32_t refresh,
                                            int32_t means_after_window, vcattn_state** state) {
  return guarded([&] {
    required(state, "state") = nullptr;
    const VSmoothSchedule schedule{steps, window, refresh, means_after_window != 0};
    *state = new vcattn_state{VSmoothState(schedule)};
  });
}

vcattn_status vcattn_state_begin_step(vcattn_state* state, int32_t step) {
  return guarded([&] { required(state, "state").state.begin_step(step); });
}

vcattn_status vcattn_state_reset(vcattn_state* state) {
  return guarded([&] { required(state, "state").state.reset(); });
}

vcattn_status vcattn_state_action(const vcattn_state* state, int32_t* regroup, int32_t* demean) {
  return guarded([&] {
    const VSmoothState& held = required(state, "state").state;
    const VSmoothAction action = held.next_action(held.grouping() != nullptr);
    required(regroup, "regroup") = action.regroup ? 1 : 0;
    required(demean, "demean") = action.demean ? 1 : 0;
  });
}

vcattn_status vcattn_state_permutation(const vcattn_state* state, int64_t entry, int64_t head,
                                       int32_t* keys, size_t* count) {
  return guarded([&] {
    const auto& grouping = required(state, "state").state.grouping();
    const std::size_t capacity = required(count, "count");
    *count = 0;
    if (grouping == nullptr) return;
    const std::vector<std::int32_t> order = grouping->permutation(entry, head);
    *count = order.size();
    if (keys != nullptr) std::copy_n(order.begin(), std::min(capacity, order.size()), keys);
  });
}

void vcattn_state_destroy(vcattn_state* state) { delete state; }
