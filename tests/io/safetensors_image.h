// Safetensors images made by hand, right or wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vcattn::io {

/// Length, header and data as a file holds them; `length` overrides the true header length.
inline std::string image_of(const std::string& header, const std::string& data,
                            std::uint64_t length) {
  std::string image;
  for (int i = 0; i < 8; ++i) image += static_cast<char>(length >> (8 * i) & 0xFF);
  return image + header + data;
}

/// Pads the header with blanks so that the data is aligned.
inline std::string image_of(std::string header, const std::string& data = "") {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return image_of(header, data, header.size());
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace vcattn::io
