// Progress of long work, on stderr if that is a terminal.
#pragma once

#include <string>

#include "vcattn/plan.h"

namespace vcattn::cli {

/// One line that is redrawn in place and removed at the end of the scope.
class ProgressLine {
 public:
  explicit ProgressLine(std::string label);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Empty if stderr is no terminal, so that nothing is called. Refers to this object.
  Progress callback();

 private:
  void draw(double fraction);

  std::string label_;
  bool enabled_;
  int percent_ = -1;
};

}  // namespace vcattn::cli
