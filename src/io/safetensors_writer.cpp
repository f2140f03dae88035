#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "io/text.h"
#include "vcattn/error.h"

namespace vcattn::io {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

void check(const TensorEntry& entry) {
  const auto bits = bits_of(entry.dtype);
  std::int64_t total = bits.value_or(0);
  for (const std::int64_t size : entry.shape) total *= size;
  if (!bits || total % 8 != 0 || static_cast<std::size_t>(total / 8) != entry.bytes.size()) {
    throw Error(ErrorCode::kInvalidArgument, printable(entry.name),
                fmt::format("{} bytes do not fit its {} shape", entry.bytes.size(),
                            printable(entry.dtype)));
  }
}

std::string header_text(const std::vector<TensorEntry>& tensors, const Metadata& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const TensorEntry& entry : tensors) {
    if (header.contains(entry.name)) {
      throw Error(ErrorCode::kInvalidArgument, printable(entry.name), "is written twice");
    }
    const std::size_t end = offset + entry.bytes.size();
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                       const Metadata& metadata) {
  for (const TensorEntry& entry : tensors) check(entry);
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(-*bits_of(a.dtype), a.name) < std::pair(-*bits_of(b.dtype), b.name);
  });
  const std::string header = header_text(tensors, metadata);

  std::array<std::byte, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xFF);
  }
  AtomicFile file(path);
  file.write(length);
  file.write(std::as_bytes(std::span(header)));
  for (const TensorEntry& entry : tensors) file.write(entry.bytes);
  file.commit();
}

}  // namespace vcattn::io
