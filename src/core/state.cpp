#include "vcattn/state.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "vcattn/error.h"

namespace vcattn {

VSmoothState::VSmoothState(const VSmoothSchedule& schedule)
    : schedule_(schedule), scheduled_(true) {
  const auto reject = [](const char* field, const std::string& given, const char* supported) {
    throw Error(ErrorCode::kInvalidArgument, field,
                fmt::format("{} was given (supported: {})", given, supported));
  };
  if (schedule.steps < 1) reject("schedule.steps", std::to_string(schedule.steps), "at least 1");
  if (!(schedule.window >= 0.0 && schedule.window <= 1.0)) {
    reject("schedule.window", fmt::format("{}", schedule.window), "0 to 1");
  }
  if (schedule.refresh < 1) {
    reject("schedule.refresh", std::to_string(schedule.refresh), "at least 1");
  }
}

void VSmoothState::Grouping::require_task(std::int64_t entry, std::int64_t entries,
                                          std::int64_t head, std::int64_t heads) {
  const auto require = [](const char* name, std::int64_t given, std::int64_t count) {
    if (given >= 0 && given < count) return;
    throw Error(ErrorCode::kInvalidArgument, name,
                fmt::format("{} was given (supported: 0 to {})", given, count - 1));
  };
  require("entry", entry, entries);
  require("head", head, heads);
}

void VSmoothState::begin_step(int step) {
  if (step < 0 || (scheduled_ && step >= schedule_.steps)) {
    throw Error(ErrorCode::kInvalidArgument, "step",
                scheduled_
                    ? fmt::format("{} was given (supported: 0 to {})", step, schedule_.steps - 1)
                    : fmt::format("{} was given (supported: 0 or more)", step));
  }
  step_ = step;
}

VSmoothAction VSmoothState::next_action(bool has_grouping) const {
  if (!scheduled_) return {};
  const int window_steps =
      // 0.28 * 50 is a hair above 14 in binary.
      static_cast<int>(std::ceil(schedule_.window * static_cast<double>(schedule_.steps) - 1e-9));
  if (step_ >= window_steps) {
    return {.regroup = false, .demean = schedule_.means_after_window, .in_window = false};
  }
  const bool due = step_ % schedule_.refresh == 0 && grouped_at_ != step_;
  return {.regroup = !has_grouping || due};
}

void VSmoothState::reset() {
  grouping_.reset();
  grouped_at_ = -1;
  step_ = 0;
}

void VSmoothState::set_grouping(std::shared_ptr<Grouping> grouping) {
  grouping_ = std::move(grouping);
  grouped_at_ = step_;
}

}  // namespace vcattn
