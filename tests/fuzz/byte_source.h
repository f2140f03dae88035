// Turns a fuzzer's bytes into choices; when they run out every choice is the first one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace vcattn::fuzz {

class ByteSource {
 public:
  explicit ByteSource(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }

  /// Uniform enough in [low, high], a range of at most 65,536.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const std::int64_t wide = byte() << 8 | byte();
    return low + wide % (high - low + 1);
  }

  /// True about once in `n`.
  bool one_in(int n) { return byte() % n == n - 1; }

  template <class T, std::size_t N>
  T pick(const T (&choices)[N]) {
    return choices[byte() % N];
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace vcattn::fuzz
