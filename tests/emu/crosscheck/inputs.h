// Deterministic inputs of the cross-check, so that a recording holds outputs only.
//
// Regimes: 0 ordinary values, 1 every encoding that is finite, 2 extremes of size, 3 cancellation
// and a few specials.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cases/case.cuh"
#include "emu/random.h"

namespace vcattn::crosscheck {

class InputMaker {
 public:
  InputMaker(const std::string& name, int regime)
      : regime_(regime), random_(hash(name) + static_cast<uint64_t>(regime)) {}

  std::vector<uint8_t> make(Input input) {
    std::vector<uint8_t> bytes(static_cast<size_t>(input.bytes));
    const int size = element_bytes(input.data);
    for (int i = 0; i + size <= input.bytes; i += size) {
      const uint32_t v = element(input.data);
      std::memcpy(bytes.data() + i, &v, static_cast<size_t>(size));
    }
    return bytes;
  }

 private:
  static uint64_t hash(const std::string& s) {
    uint64_t h = 0xCBF29CE484222325u;
    for (const char c : s) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
    return h;
  }

  static int element_bytes(Data d) {
    if (d == Data::kS8 || d == Data::kE4M3) return 1;
    return d == Data::kF16 || d == Data::kBF16 || d == Data::kHalfPairs ? 2 : 4;
  }

  uint32_t bits() { return static_cast<uint32_t>(random_.next() >> 32); }
  bool one_in(uint64_t n) { return random_.below(n) == 0; }

  uint32_t element(Data d) {
    switch (d) {
      case Data::kS8:
        return s8();
      case Data::kE4M3:
        return floating(4, 3, 0x7F, 7);
      case Data::kF16:
      case Data::kHalfPairs:
        return floating(5, 10, 0x7C00, 15);
      case Data::kBF16:
        return floating(8, 7, 0x7F80, 127);
      case Data::kTF32:
      case Data::kF32:
        return floating(8, 23, 0x7F800000, 127);
      default:
        return word();
    }
  }

  uint32_t s8() {
    if (regime_ == 2) return one_in(2) ? 0x80 : 0x7F;
    if (regime_ == 3) return one_in(4) ? bits() & 0xFF : 0;
    return bits() & 0xFF;
  }

  // Words of two 16-bit halves: random, or edges of both widths.
  uint32_t word() {
    if (regime_ == 0 || regime_ == 1) return bits();
    static constexpr uint16_t kEdges[] = {0,      1,      0xFFFF, 0x7FFF, 0x8000, 0x8001,
                                          0x7FFE, 0x0100, 0xFF00, 127,    128};
    const auto edge = [&] { return static_cast<uint32_t>(kEdges[random_.below(11)]); };
    return one_in(3) ? bits() : edge() | edge() << 16;
  }

  // An encoding with `e` exponent and `m` fraction bits; `first_special` is the first magnitude
  // that is not a number.
  uint32_t floating(int e, int m, uint32_t first_special, int bias) {
    const uint32_t sign = (bits() & 1) << (e + m), fraction = bits() & ((1u << m) - 1);
    const auto at = [&](int exponent) {
      return sign | static_cast<uint32_t>(exponent) << m | fraction;
    };
    const int near = bias - 3 + static_cast<int>(random_.below(6));
    switch (regime_) {
      case 0:
        return at(near);
      case 1: {
        uint32_t magnitude;
        do magnitude = bits() & ((1u << (e + m)) - 1);
        while (magnitude >= first_special);
        // Eight exponent bits would make every sum overflow: stay within 2^(+-30).
        if (e == 8) magnitude = static_cast<uint32_t>(97 + random_.below(60)) << m | fraction;
        return sign | magnitude;
      }
      case 2: {
        const int spread = e == 8 ? 12 : bias - 1;
        if (one_in(6)) return sign | (e == 8 ? 0 : fraction);  // zero, or subnormal
        return at(one_in(2)
                      ? bias + static_cast<int>(random_.below(static_cast<uint64_t>(spread)))
                      : bias - static_cast<int>(random_.below(static_cast<uint64_t>(spread))));
      }
      default:
        if (one_in(4000)) return sign | first_special | (one_in(2) ? 1u << (m - 1) : 0);
        return sign | static_cast<uint32_t>(bias) << m | (fraction >> (m - 1) << (m - 1));
    }
  }

  int regime_;
  emu::Random random_;
};

}  // namespace vcattn::crosscheck
