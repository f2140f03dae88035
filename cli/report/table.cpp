#include "cli/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace vcattn::cli {
namespace {

constexpr const char* kGap = "  ";

std::string place_text(const HeadError& head) {
  if (head.batch == 0) return fmt::format("h{}", head.head);
  return fmt::format("b{} h{}", head.batch, head.head);
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      if (i == 0) {
        line += fmt::format("{:<{}}", rows_[r][i], widths[i]);
      } else {
        line += fmt::format("{}{:>{}}", kGap, rows_[r][i], widths[i]);
      }
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    if (r == 0) text += std::string(line.size(), '-') + "\n";
  }
  return text;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0.0 || std::abs(value) >= 1e-4) return fmt::format("{:#.3g}", value);
  return fmt::format("{:.1e}", value);
}

std::string cosine_text(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.6f}", value);
}

std::string time_text(double milliseconds) {
  if (std::isnan(milliseconds)) return "-";
  if (milliseconds >= 1000.0) return fmt::format("{:.2f} s", milliseconds / 1000.0);
  return fmt::format("{:.3g} ms", milliseconds);
}

std::string head_text(const HeadError& head) {
  return fmt::format("{}: {}", place_text(head), number_text(head.rel_l2));
}

std::string row_text(const HeadError& head) {
  return fmt::format("{} row {}: {}", place_text(head), head.worst_row,
                     cosine_text(head.worst_row_cosine));
}

}  // namespace vcattn::cli
