#include "vcattn/plan.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "core/backend.h"
#include "core/validate.h"
#include "dispatch/explain.h"
#include "dispatch/registry.h"
#include "vcattn/error.h"

namespace vcattn {
namespace {

/// Whether the caller's choice admits this backend at all.
bool admitted(BackendChoice choice, const std::string& name) {
  switch (choice) {
    case BackendChoice::kCpu:
      return name == "cpu";
    case BackendChoice::kCuda:
      return name == "cuda";
    case BackendChoice::kAuto:
      break;
  }
  return true;
}

std::string_view to_string(BackendChoice choice) {
  switch (choice) {
    case BackendChoice::kCpu:
      return "cpu";
    case BackendChoice::kCuda:
      return "cuda";
    case BackendChoice::kAuto:
      break;
  }
  return "auto";
}

}  // namespace

void Plan::run(VSmoothState* state, const Progress& progress) const {
  backend_->run(*this, state, progress);
}

std::string Plan::backend() const { return backend_->info().name; }

std::string Plan::explain() const { return fmt::format("{}", fmt::join(reasons_, "\n")); }

Plan make_plan(const Arguments& arguments, const Options& options) {
  validate(arguments, options.recipe);
  std::vector<std::string> refusals;
  for (const Backend* backend : registry()) {
    const BackendInfo info = backend->info();
    if (!admitted(options.backend, info.name)) continue;
    const std::string refusal =
        info.available ? backend->refuses(arguments, options.recipe) : info.status;
    if (!refusal.empty()) {
      refusals.push_back(fmt::format("{}: {}", info.name, refusal));
      continue;
    }
    Backend::Choice choice = backend->choose(arguments, options.recipe);
    std::vector<std::string> lines;
    lines.reserve(refusals.size());
    for (const std::string& reason : refusals) lines.push_back("Not chosen: " + reason + ".");
    lines.insert(lines.end(), choice.reasons.begin(), choice.reasons.end());
    for (std::string& line : describe_stages(arguments, options.recipe)) {
      lines.push_back(std::move(line));
    }
    return {arguments, options.recipe, *backend, choice.kernel, std::move(lines)};
  }
  if (refusals.empty()) {
    refusals.push_back(fmt::format("{} is not part of this build", to_string(options.backend)));
  }
  throw Error(ErrorCode::kUnsupported, "backend",
              fmt::format("no backend can run this call ({})", fmt::join(refusals, "; ")));
}

std::string why_not(const Arguments& arguments, const Options& options) noexcept {
  try {
    make_plan(arguments, options);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> result;
  for (const Backend* backend : registry()) result.push_back(backend->info());
  return result;
}

std::string_view version() noexcept { return VCATTN_VERSION; }

}  // namespace vcattn
