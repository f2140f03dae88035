// Referees the numerics tests share. They are written from the definitions of the formats, in
// double, and use nothing of include/vcattn/numerics.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vcattn::test {

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// The non-negative values of a floating-point format in order of their codes, found by search: no
// bit tricks.
class NearestTable {
 public:
  // A format with the given widths and bias, codes [0, count).
  NearestTable(int mantissa_bits, int bias, std::size_t count) {
    values_.reserve(count);
    const std::size_t mantissas = std::size_t{1} << mantissa_bits;
    for (std::size_t code = 0; code < count; ++code) {
      const int exponent = static_cast<int>(code / mantissas);
      const double fraction =
          static_cast<double>(code % mantissas) / static_cast<double>(mantissas);
      values_.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                      : std::ldexp(1.0 + fraction, exponent - bias));
    }
  }

  double value(std::size_t code) const { return values_[code]; }
  std::size_t size() const { return values_.size(); }

  // Code of the value nearest to magnitude >= 0, ties to the even code, saturating at the last one.
  std::size_t nearest(double magnitude) const {
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.end()) return values_.size() - 1;
    const auto hi = static_cast<std::size_t>(above - values_.begin());
    const std::size_t lo = hi - 1;
    const double to_lo = magnitude - values_[lo];
    const double to_hi = values_[hi] - magnitude;
    if (to_lo != to_hi) return to_lo < to_hi ? lo : hi;
    return lo % 2 == 0 ? lo : hi;
  }

 private:
  std::vector<double> values_;
};

// Codes 0 .. 448; NaN is the code after the last.
inline NearestTable e4m3_table() { return {3, 7, 0x7F}; }
inline NearestTable e2m1_table() { return {1, 1, 8}; }
// IEEE formats overflow to infinity where rounding to an unbounded exponent would: giving the code
// of infinity the value of the next power of two says exactly that.
inline NearestTable f16_table() { return {10, 15, 0x7C01}; }
inline NearestTable bf16_table() { return {7, 127, 0x7F81}; }

// |got - exact| in units of the spacing of floats at exact (2^-149 for subnormals).
inline double ulp_error(float got, double exact) {
  if (exact == 0.0) return got == 0.0f ? 0.0 : HUGE_VAL;
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::abs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 23);
}

}  // namespace vcattn::test
