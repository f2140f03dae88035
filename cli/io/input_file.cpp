#include "cli/io/input_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "core/element.h"
#include "core/visibility.h"
#include "io/text.h"
#include "vcattn/error.h"

namespace vcattn::cli {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& message) {
  throw Failure(ExitCode::kBadInput, fmt::format("{}: {}", file, message));
}

io::SafetensorsFile open(const std::filesystem::path& path) {
  try {
    return io::SafetensorsFile::open(path);
  } catch (const Error& error) {
    throw Failure(ExitCode::kBadInput, error.what());
  }
}

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kBool}) {
    if (io::dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

bool rows_finite(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t row) {
  for (std::int64_t c = 0; c < view.dim(); ++c) {
    if (!std::isfinite(load_element(view, view.offset(b, h, row, c)))) return false;
  }
  return true;
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path, const AttentionFlags& flags)
    : file_(open(path)) {
  try {
    read_layout(flags);
    rank_ = file_.at("q").shape.size();
    arguments_.q = read_tensor("q");
    arguments_.k = read_tensor("k");
    arguments_.v = read_tensor("v");
    if (file_.contains("mask")) arguments_.mask = read_mask();
    if (file_.contains("key_lengths")) read_key_lengths();
  } catch (const Error& error) {
    throw Failure(ExitCode::kBadInput, error.what());
  }
  arguments_.scale = flags.scale;
  arguments_.causal = flags.causal;
}

void InputFile::read_layout(const AttentionFlags& flags) {
  std::string text = flags.layout;
  const auto noted = file_.metadata().find("layout");
  if (text.empty() && noted != file_.metadata().end()) text = noted->second;
  if (text.empty()) return;
  const auto layout = layout_of(text);
  if (!layout) {
    refuse(name(), fmt::format("its metadata give layout \"{}\" (supported: BHSD, BSHD; --layout "
                               "overrides)",
                               io::printable(text)));
  }
  layout_ = *layout;
}

TensorView InputFile::read_tensor(const std::string& tensor) const {
  const io::TensorEntry& entry = file_.at(tensor);
  const auto dtype = dtype_of(entry.dtype);
  if (!dtype || *dtype == DType::kBool) {
    refuse(name(),
           fmt::format("tensor '{}' is {} (supported: F32, F16, BF16)", tensor, entry.dtype));
  }
  std::vector<std::int64_t> axes = entry.shape;
  if (axes.size() == 3) axes.insert(axes.begin(), 1);
  if (axes.size() != 4) {
    refuse(name(), fmt::format("tensor '{}' has shape [{}] (supported: 4 axes, or 3 for batch 1)",
                               tensor, fmt::join(entry.shape, ", ")));
  }
  if (layout_ == Layout::kBSHD) std::swap(axes[1], axes[2]);
  // Without channels the other sizes are bounded by nothing in the file, and outputs are sized by
  // them.
  if (axes[3] == 0) refuse(name(), fmt::format("tensor '{}' has head dimension 0", tensor));
  return dense_view<const void>(entry.bytes.data(), *dtype, layout_,
                                {axes[0], axes[1], axes[2], axes[3]});
}

TensorView InputFile::read_mask() const {
  const io::TensorEntry& entry = file_.at("mask");
  const auto dtype = dtype_of(entry.dtype);
  if (!dtype) {
    refuse(name(),
           fmt::format("tensor 'mask' is {} (supported: BOOL, F32, F16, BF16)", entry.dtype));
  }
  std::vector<std::int64_t> axes = entry.shape;
  if (axes.size() == 2) axes.insert(axes.begin(), {1, 1});
  if (axes.size() != 4) {
    refuse(name(), fmt::format("tensor 'mask' has shape [{}] (supported: (batch, heads, queries, "
                               "keys) or (queries, keys))",
                               fmt::join(entry.shape, ", ")));
  }
  return dense_view<const void>(entry.bytes.data(), *dtype, Layout::kBHSD,
                                {axes[0], axes[1], axes[2], axes[3]});
}

void InputFile::read_key_lengths() {
  const io::TensorEntry& entry = file_.at("key_lengths");
  const bool wide = entry.dtype == "I64";
  if (!wide && entry.dtype != "I32") {
    refuse(name(), fmt::format("tensor 'key_lengths' is {} (supported: I32, I64)", entry.dtype));
  }
  const std::int64_t batch = arguments_.q.batch();
  if (entry.shape != std::vector<std::int64_t>{batch}) {
    refuse(name(), fmt::format("tensor 'key_lengths' has shape [{}] for batch {}",
                               fmt::join(entry.shape, ", "), batch));
  }
  const std::int64_t keys = arguments_.k.tokens();
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t length = 0;
    if (wide) {
      length = reinterpret_cast<const std::int64_t*>(entry.bytes.data())[b];
    } else {
      length = reinterpret_cast<const std::int32_t*>(entry.bytes.data())[b];
    }
    // Checked before it is narrowed to 32 bits.
    if (length < 0 || length > keys) {
      refuse(name(),
             fmt::format("key_lengths: entry {} is {} (supported: 0 to {})", b, length, keys));
    }
    key_lengths_.push_back(static_cast<std::int32_t>(length));
  }
  arguments_.key_lengths = key_lengths_.data();
}

bool visible_inputs_finite(const Arguments& arguments) {
  const TensorView& q = arguments.q;
  for (std::int64_t b = 0; b < q.batch(); ++b) {
    for (std::int64_t h = 0; h < q.heads(); ++h) {
      for (std::int64_t row = 0; row < q.tokens(); ++row) {
        if (!rows_finite(q, b, h, row)) return false;
      }
    }
  }
  for (const Entry& entry : entries(arguments)) {
    for (std::int64_t h = 0; h < arguments.k.heads(); ++h) {
      for (const std::int32_t key : visible_keys(arguments, entry, h)) {
        const std::int64_t row = entry.k_begin + key;
        if (!rows_finite(arguments.k, entry.batch, h, row)) return false;
        if (!rows_finite(arguments.v, entry.batch, h, row)) return false;
      }
    }
  }
  return true;
}

}  // namespace vcattn::cli
