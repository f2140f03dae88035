// Aligned tables for people.
#pragma once

#include <string>
#include <vector>

#include "core/metrics.h"

namespace vcattn::cli {

/// First column left-aligned, the others right-aligned; a rule under the header.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A ratio or error with three significant digits ("0.0119", "2.1e-07"); "-" if it is NaN.
std::string number_text(double value);
/// "0.99993" keeps what tells cosines apart.
std::string cosine_text(double value);
/// "1.24 s", "35.1 ms"; "-" if it is NaN.
std::string time_text(double milliseconds);

/// "h2: 0.0131" and "h2 row 17: 0.998132", with the batch entry ("b1 h2") if it is not 0.
std::string head_text(const HeadError& head);
std::string row_text(const HeadError& head);

}  // namespace vcattn::cli
