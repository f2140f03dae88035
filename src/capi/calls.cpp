// Calls, their explanation, and what this build can do.
#include <algorithm>
#include <functional>

#include "capi/boundary.h"
#include "capi/convert.h"
#include "capi/handles.h"
#include "vcattn/plan.h"

using namespace vcattn;        // NOLINT: this file is the C side of that namespace
using namespace vcattn::capi;  // NOLINT

namespace {

Plan plan_of(const vcattn_arguments* arguments, const vcattn_recipe* recipe,
             vcattn_backend backend) {
  return make_plan(to_arguments(required(arguments, "arguments")),
                   {required(recipe, "recipe").recipe, to_backend(backend)});
}

std::string lines(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : "\n") + item;
  return text;
}

}  // namespace

uint32_t vcattn_abi_version(void) { return VCATTN_ABI_VERSION; }

const char* vcattn_version(void) { return version().data(); }  // a string literal

size_t vcattn_arguments_size(void) { return sizeof(vcattn_arguments); }

const char* vcattn_last_error(void) { return thread_text().error.c_str(); }

const char* vcattn_last_error_where(void) { return thread_text().where.c_str(); }

vcattn_status vcattn_attention(const vcattn_arguments* arguments, const vcattn_recipe* recipe,
                               vcattn_backend backend, vcattn_state* state) {
  return guarded(
      [&] { plan_of(arguments, recipe, backend).run(state == nullptr ? nullptr : &state->state); });
}

vcattn_status vcattn_can_use(const vcattn_arguments* arguments, const vcattn_recipe* recipe,
                             vcattn_backend backend) {
  return guarded([&] { plan_of(arguments, recipe, backend); });
}

vcattn_status vcattn_explain(const vcattn_arguments* arguments, const vcattn_recipe* recipe,
                             vcattn_backend backend, const char** kernel, const char** text) {
  return guarded([&] {
    const Plan plan = plan_of(arguments, recipe, backend);
    std::vector<std::string>& results = thread_text().results;
    results = {plan.kernel(), plan.explain()};
    required(kernel, "kernel") = results[0].c_str();
    required(text, "text") = results[1].c_str();
  });
}

vcattn_status vcattn_backend_at(size_t index, vcattn_backend_info* info) {
  return guarded([&] {
    const std::vector<BackendInfo> all = backends();
    if (index >= all.size()) {
      throw Error(ErrorCode::kInvalidArgument, "index", "past the last backend");
    }
    std::vector<std::string>& text = thread_text().results;
    text = {all[index].name, all[index].status, lines(all[index].kernels)};
    required(info, "info") = {text[0].c_str(), all[index].available ? 1 : 0, text[1].c_str(),
                              text[2].c_str()};
  });
}
