#include "vcattn/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <utility>

#include "core/backend.h"
#include "core/validate.h"
#include "dispatch/explain.h"
#include "dispatch/measure.h"
#include "dispatch/registry.h"
#include "vcattn/error.h"
#include "vcattn/staging.h"

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

namespace {

Error no_backend(BackendChoice choice, std::vector<std::string> refusals) {
  if (refusals.empty()) {
    refusals.push_back(fmt::format("{} is not part of this build", to_string(choice)));
  }
  return {ErrorCode::kUnsupported, "backend",
          fmt::format("no backend can run this call ({})", fmt::join(refusals, "; "))};
}

/// A backend that accepts a call, and what the better ones said against it.
struct Chosen {
  const Backend* backend = nullptr;
  Arguments arguments;  ///< as that backend gets them
  std::vector<std::string> refusals;
};

/// The first backend that accepts `place(backend)`.
template <class Place>
Chosen choose(const Options& options, const Place& place) {
  Chosen chosen;
  for (const Backend* backend : registry()) {
    const BackendInfo info = backend->info();
    if (!admitted(options.backend, info.name)) continue;
    chosen.arguments = place(*backend);
    const std::string refusal =
        info.available ? backend->refuses(chosen.arguments, options.recipe) : info.status;
    if (refusal.empty()) {
      chosen.backend = backend;
      return chosen;
    }
    chosen.refusals.push_back(fmt::format("{}: {}", info.name, refusal));
  }
  throw no_backend(options.backend, chosen.refusals);
}

/// The backend for a host call moved to its home: the first that accepts it or, where the caller
/// has no preference, a later one that is done sooner because nothing is copied.
Chosen choose_home(const Arguments& host, const Options& options) {
  validate(host, options.recipe);
  const auto place = [&](const Backend& backend) {
    Arguments placed = host;
    placed.device = backend.home();
    return placed;
  };
  Chosen chosen = choose(options, place);
  if (options.backend != BackendChoice::kAuto) return chosen;
  for (const Backend* other : registry()) {
    if (other == chosen.backend || !other->info().available ||
        !other->refuses(place(*other), options.recipe).empty()) {
      continue;
    }
    const double first_ms = 1e3 * chosen.backend->host_call_seconds(host);
    const double other_ms = 1e3 * other->host_call_seconds(host);
    if (other_ms >= first_ms) continue;
    chosen.refusals.push_back(
        fmt::format("{}: estimated at {:.2g} ms with the copies there and back, {} at {:.2g} ms",
                    chosen.backend->info().name, first_ms, other->info().name, other_ms));
    chosen.backend = other;
    chosen.arguments = place(*other);
  }
  return chosen;
}

Plan plan_of(const Chosen& chosen, const Arguments& arguments, const Recipe& recipe) {
  Backend::Choice choice = chosen.backend->choose(arguments, recipe);
  std::vector<std::string> lines;
  for (const std::string& reason : chosen.refusals) lines.push_back("Not chosen: " + reason + ".");
  lines.insert(lines.end(), choice.reasons.begin(), choice.reasons.end());
  for (std::string& line : describe_stages(arguments, recipe)) lines.push_back(std::move(line));
  return {arguments, recipe, *chosen.backend, choice.kernel, std::move(lines)};
}

}  // namespace

Plan make_plan(const Arguments& arguments, const Options& options) {
  validate(arguments, options.recipe);
  const Chosen chosen = choose(options, [&](const Backend&) { return arguments; });
  return plan_of(chosen, arguments, options.recipe);
}

StagedCall stage(const Arguments& host, const Options& options) {
  const Chosen chosen = choose_home(host, options);
  auto call = chosen.backend->stage(host);
  Plan plan = plan_of(chosen, call->arguments(), options.recipe);
  return {std::move(call), std::move(plan)};
}

Plan preview(const Arguments& host, const Options& options) {
  const Chosen chosen = choose_home(host, options);
  return plan_of(chosen, chosen.arguments, options.recipe);
}

std::unique_ptr<DeviceCall> random_call(const CallSizes& sizes, BackendChoice choice) {
  std::vector<std::string> refusals;
  for (const Backend* backend : registry()) {
    const BackendInfo info = backend->info();
    if (!admitted(choice, info.name)) continue;
    if (info.available) {
      if (auto call = backend->random_call(sizes)) return call;
    }
    refusals.push_back(fmt::format("{}: {}", info.name,
                                   info.available ? "makes no tensors of its own" : info.status));
  }
  throw no_backend(choice, refusals);
}

std::optional<StageTimes> time_stages(const Plan& plan, int repeats) {
  for (const Backend* backend : registry()) {
    if (backend->info().name == plan.backend()) return backend->time_stages(plan, repeats);
  }
  return std::nullopt;
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
