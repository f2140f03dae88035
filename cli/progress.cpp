#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace vcattn::cli {
namespace {

constexpr int kBarWidth = 30;

}  // namespace

ProgressLine::ProgressLine(std::string label)
    : label_(std::move(label)), enabled_(::isatty(STDERR_FILENO) == 1) {
  if (enabled_) draw(0.0);
}

ProgressLine::~ProgressLine() {
  if (enabled_) fmt::print(stderr, "\r\x1b[K");
}

Progress ProgressLine::callback() {
  if (!enabled_) return {};
  return [this](double fraction) { draw(fraction); };
}

void ProgressLine::draw(double fraction) {
  const int percent = static_cast<int>(100.0 * std::clamp(fraction, 0.0, 1.0));
  if (percent == percent_) return;
  percent_ = percent;
  const int filled = kBarWidth * percent / 100;
  fmt::print(stderr, "\r\x1b[K{} [{:#>{}}{:.>{}}] {:3}%", label_, "", filled, "",
             kBarWidth - filled, percent);
  std::fflush(stderr);
}

}  // namespace vcattn::cli
