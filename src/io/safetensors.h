// Reader and writer of the safetensors format: an 8-byte little-endian header length, a JSON header
// that names dtype, shape and byte range of every tensor, then the bytes.
// https://github.com/huggingface/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.h"
#include "vcattn/tensor.h"

namespace vcattn::io {

/// Text notes a file carries beside its tensors ("__metadata__").
using Metadata = std::map<std::string, std::string>;

/// Bits per element of a dtype as the format spells it ("BF16"); nothing if it is unknown.
std::optional<std::int64_t> bits_of(std::string_view dtype) noexcept;

/// The format's spelling of an element type.
std::string_view dtype_name(DType dtype) noexcept;

/// A tensor as the header describes it.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< as spelled in the header
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// A parsed file. Everything the header says has been checked against the file: sizes, ranges,
/// overlaps, shapes; a dtype this reader does not know is an error only when its tensor is asked
/// for, so that files with newer tensors beside the wanted ones stay readable.
class SafetensorsFile {
 public:
  /// Maps the file. @throws Error{kIo} with the file's name and what is wrong with it.
  static SafetensorsFile open(const std::filesystem::path& path);

  /// Parses an image in memory, which must outlive the result; `name` stands in messages.
  static SafetensorsFile parse(std::span<const std::byte> image, const std::string& name);

  /// In the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  const std::string& name() const { return name_; }

  bool contains(std::string_view tensor) const { return find(tensor) != nullptr; }

  /// @throws Error{kIo} if there is no such tensor (listing those there are), its dtype is unknown
  /// or its bytes are not aligned to its elements.
  const TensorEntry& at(std::string_view tensor) const;

 private:
  SafetensorsFile() = default;
  const TensorEntry* find(std::string_view tensor) const;

  std::string name_;
  std::optional<MappedFile> mapping_;
  std::vector<TensorEntry> tensors_;
  Metadata metadata_;
};

/// Writes the file whole or not at all. Tensors are laid out by element size, largest first, so
/// that all of them are aligned. @throws Error{kIo}, or Error{kInvalidArgument} if an entry's bytes
/// do not fit its shape or a name comes twice.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                       const Metadata& metadata = {});

}  // namespace vcattn::io
