#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "io/strict_json.h"
#include "io/text.h"
#include "vcattn/error.h"

namespace vcattn::io {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kHeaderDepth = 3;                // the header, an entry, its shape
constexpr const char* kMetadataName = "__metadata__";

constexpr std::array<std::pair<std::string_view, std::int64_t>, 21> kDTypeBits{{
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
    {"F4", 4},      {"F6_E2M3", 6}, {"I16", 16},   {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"F6_E3M2", 6}, {"I32", 32},    {"U32", 32},   {"F32", 32},    {"I64", 64},    {"U64", 64},
    {"F64", 64},    {"C64", 64},    {"C128", 128},
}};

/// What the header says of one tensor, before it is held against the file.
struct Claim {
  TensorEntry entry;
  std::uint64_t begin = 0, end = 0;
};

std::string label(std::string_view name) { return fmt::format("tensor '{}'", printable(name)); }

[[noreturn]] void refuse(const std::string& message) { throw std::runtime_error(message); }

std::uint64_t read_length(std::span<const std::byte> image) {
  if (image.size() < kLengthBytes) {
    refuse(fmt::format("is no safetensors file: {} bytes, and the header length alone takes {}",
                       image.size(), kLengthBytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(image[i]);
  }
  if (length > kLongestHeader) {
    refuse(fmt::format("is no safetensors file: header length {} (at most {})", length,
                       kLongestHeader));
  }
  if (length > image.size() - kLengthBytes) {
    refuse(fmt::format("is truncated: the header takes {} bytes and {} follow its length", length,
                       image.size() - kLengthBytes));
  }
  return length;
}

const json& member(const json& object, const std::string& name, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(fmt::format("{} has no {}", label(name), key));
  return *found;
}

/// Sizes are limited so that their product fits too with zeros left out: strides are products of
/// some of them, even for an empty tensor.
std::vector<std::int64_t> read_shape(const std::string& name, const json& value) {
  if (!value.is_array()) refuse(label(name) + ": shape is not an array");
  std::vector<std::int64_t> shape;
  std::int64_t product = 1;
  for (const json& size : value) {
    if (!size.is_number_unsigned()) {
      refuse(fmt::format("{}: shape holds {}, not a size", label(name), printable(size.dump())));
    }
    const auto wide = size.get<std::uint64_t>();
    const auto factor = static_cast<std::int64_t>(wide);
    if (factor < 0 ||
        __builtin_mul_overflow(product, std::max<std::int64_t>(factor, 1), &product)) {
      refuse(fmt::format("{}: shape overflows at size {}", label(name), wide));
    }
    shape.push_back(factor);
  }
  return shape;
}

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

Claim read_claim(const std::string& name, const json& value) {
  if (!value.is_object()) refuse(label(name) + " is not described by an object");
  const json& dtype = member(value, name, "dtype");
  if (!dtype.is_string()) refuse(label(name) + ": dtype is not text");
  const json& offsets = member(value, name, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    refuse(label(name) + ": data_offsets is not a pair of byte positions");
  }
  return {.entry = {.name = name,
                    .dtype = dtype.get<std::string>(),
                    .shape = read_shape(name, member(value, name, "shape")),
                    .bytes = {}},
          .begin = offsets[0].get<std::uint64_t>(),
          .end = offsets[1].get<std::uint64_t>()};
}

/// Whether `bytes` is the size of a dense tensor; an unknown dtype cannot be held against anything.
bool size_fits(const TensorEntry& entry, std::uint64_t bytes) {
  const auto bits = bits_of(entry.dtype);
  if (!bits) return true;
  std::int64_t total = 0;
  if (__builtin_mul_overflow(element_count(entry.shape), *bits, &total)) return false;
  return total % 8 == 0 && static_cast<std::uint64_t>(total) / 8 == bytes;
}

/// Gives each claim its bytes; together they must cover `data` without holes or overlaps.
std::vector<TensorEntry> settle(std::vector<Claim> claims, std::span<const std::byte> data) {
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::vector<TensorEntry> tensors;
  std::uint64_t covered = 0;
  for (Claim& claim : claims) {
    TensorEntry& entry = claim.entry;
    const std::string range =
        fmt::format("{}: bytes {} to {}", label(entry.name), claim.begin, claim.end);
    if (claim.end < claim.begin) refuse(range + " end before they begin");
    if (claim.end > data.size()) {
      refuse(fmt::format("is truncated: {} lie outside the {} bytes of data", range, data.size()));
    }
    if (claim.begin < covered) refuse(range + " overlap another tensor");
    if (claim.begin > covered) refuse(range + " leave a hole before them");
    if (!size_fits(entry, claim.end - claim.begin)) {
      refuse(fmt::format("{} are not the size of {} [{}]", range, printable(entry.dtype),
                         printable(fmt::format("{}", fmt::join(entry.shape, ", ")))));
    }
    entry.bytes = data.subspan(claim.begin, claim.end - claim.begin);
    covered = claim.end;
    tensors.push_back(std::move(entry));
  }
  if (covered != data.size()) {
    refuse(fmt::format("holds {} bytes after its last tensor", data.size() - covered));
  }
  return tensors;
}

Metadata read_metadata(const json& value) {
  if (!value.is_object()) refuse("__metadata__ is not an object");
  Metadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) refuse(fmt::format("__metadata__: '{}' is not text", printable(key)));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

json read_header(std::string_view text) {
  json header;
  try {
    header = parse_strict(text, kHeaderDepth);
  } catch (const std::runtime_error& error) {
    refuse(std::string("its header ") + error.what());
  }
  if (!header.is_object()) refuse("its header is not a JSON object");
  return header;
}

}  // namespace

std::optional<std::int64_t> bits_of(std::string_view dtype) noexcept {
  for (const auto& [name, bits] : kDTypeBits) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

std::string_view dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kBool:
      return "BOOL";
  }
  return "";
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  MappedFile mapping(path);
  SafetensorsFile file = parse(mapping.bytes(), path.string());
  file.mapping_.emplace(std::move(mapping));
  return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> image, const std::string& name) {
  SafetensorsFile file;
  file.name_ = printable(name);
  try {
    const std::uint64_t length = read_length(image);
    const auto* text = reinterpret_cast<const char*>(image.data()) + kLengthBytes;
    const json header = read_header({text, length});
    std::vector<Claim> claims;
    for (const auto& [key, value] : header.items()) {
      if (key == kMetadataName) {
        file.metadata_ = read_metadata(value);
      } else {
        claims.push_back(read_claim(key, value));
      }
    }
    file.tensors_ = settle(std::move(claims), image.subspan(kLengthBytes + length));
  } catch (const std::runtime_error& error) {
    throw Error(ErrorCode::kIo, file.name_, error.what());
  }
  return file;
}

const TensorEntry* SafetensorsFile::find(std::string_view tensor) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const TensorEntry& entry) { return entry.name == tensor; });
  return found == tensors_.end() ? nullptr : &*found;
}

const TensorEntry& SafetensorsFile::at(std::string_view tensor) const {
  const TensorEntry* entry = find(tensor);
  if (entry == nullptr) {
    std::vector<std::string_view> names;
    for (const TensorEntry& other : tensors_) names.emplace_back(other.name);
    throw Error(ErrorCode::kIo, name_,
                fmt::format("has no {} (it holds: {})", label(tensor),
                            names.empty() ? "nothing"
                                          : printable(fmt::format("{}", fmt::join(names, ", ")))));
  }
  const auto bits = bits_of(entry->dtype);
  if (!bits) {
    throw Error(ErrorCode::kIo, name_,
                fmt::format("{}: unknown dtype '{}'", label(tensor), printable(entry->dtype)));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(entry->bytes.data());
  if (address % static_cast<std::uintptr_t>(std::max<std::int64_t>(*bits / 8, 1)) != 0) {
    throw Error(ErrorCode::kIo, name_,
                fmt::format("{}: its bytes are not aligned to its {} elements", label(tensor),
                            entry->dtype));
  }
  return *entry;
}

}  // namespace vcattn::io
