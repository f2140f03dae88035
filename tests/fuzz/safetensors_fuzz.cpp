// The reader on arbitrary bytes: a file whose every promise holds, or an Error in one line.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>

#include "io/safetensors.h"
#include "vcattn/error.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using vcattn::Error;
  const auto image = std::as_bytes(std::span(data, size));
  try {
    const auto file = vcattn::io::SafetensorsFile::parse(image, "fuzz");
    std::size_t total = 0;
    unsigned sum = 0;
    for (const auto& tensor : file.tensors()) {
      total += tensor.bytes.size();
      for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
      try {
        const auto& found = file.at(tensor.name);
        const auto bits = vcattn::io::bits_of(found.dtype);
        const std::int64_t count = std::accumulate(found.shape.begin(), found.shape.end(),
                                                   std::int64_t{1}, std::multiplies<>());
        require(bits.has_value());
        require(static_cast<std::size_t>(count * *bits / 8) == found.bytes.size());
      } catch (const Error& error) {
        require(std::strchr(error.what(), '\n') == nullptr);
      }
    }
    require(total + 8 <= size);
    // Keeps the loop over the bytes, which shows a wrong range to the sanitizer.
    if (sum == 1U) std::getenv("VCATTN_FUZZ");
  } catch (const Error& error) {
    require(error.code() == vcattn::ErrorCode::kIo);
    require(std::strchr(error.what(), '\n') == nullptr);
  }
  return 0;
}
