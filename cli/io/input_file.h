// q, k, v and what goes with them from a safetensors file, as the arguments of a call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "io/safetensors.h"
#include "vcattn/arguments.h"

namespace vcattn::cli {

/// Tensors: `q`, `k` and `v` (rank 4 in the file's layout, or rank 3 for batch 1), optionally
/// `key_lengths` (I32 or I64, one per batch entry) and `mask` (BOOL or float, rank 4 (batch, heads,
/// queries, keys) or rank 2 (queries, keys)). The views point into the mapped file.
class InputFile {
 public:
  /// @throws Failure{kBadInput} in one line that names the file.
  InputFile(const std::filesystem::path& path, const AttentionFlags& flags);

  /// Everything but the outputs.
  const Arguments& arguments() const { return arguments_; }
  Layout layout() const { return layout_; }
  /// Axes of q in the file, 3 or 4.
  std::size_t rank() const { return rank_; }
  const std::string& name() const { return file_.name(); }
  const io::Metadata& metadata() const { return file_.metadata(); }

 private:
  void read_layout(const AttentionFlags& flags);
  TensorView read_tensor(const std::string& tensor) const;
  TensorView read_mask() const;
  void read_key_lengths();

  io::SafetensorsFile file_;
  Layout layout_ = Layout::kBHSD;
  std::size_t rank_ = 4;
  std::vector<std::int32_t> key_lengths_;
  Arguments arguments_;
};

/// Whether every element the call can see is a number: all of q, and the keys and values that no
/// length, causality or mask hides from every query.
bool visible_inputs_finite(const Arguments& arguments);

}  // namespace vcattn::cli
