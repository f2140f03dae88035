#include "matrix_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "convert.h"

namespace vcattn::emu {
namespace {

constexpr int kNone = -4096;  // exponent of zero: never the largest
constexpr int kRowBytes = 32;
constexpr uint32_t kNan32 = 0x7FFFFFFF;
constexpr uint32_t kNan16 = 0x7FFF;

struct Unit {
  int fraction_bits;  // F
  int kept_bits;      // fraction bits of a 32-bit accumulator
  Accumulate out;
};

// A row of operands as values and as the exponents the alignment looks at (those of the encoding: a
// subnormal has the smallest normal exponent).
struct Row {
  float value[32];
  int exponent[32];
  bool special;  // holds an infinity or a NaN
};

int encoded_exponent(double v, int min_exponent) {
  return v == 0.0 ? kNone : std::max(std::ilogb(v), min_exponent);
}

int elements(Element e) { return e == Element::kTF32 ? 8 : e == Element::kE4M3 ? 32 : 16; }

double decode(Element e, const uint8_t* p, int i) {
  if (e == Element::kE4M3) return double_from_e4m3(p[i]);
  if (e == Element::kTF32) {
    uint32_t bits;
    __builtin_memcpy(&bits, p + 4 * i, 4);
    return static_cast<double>(std::bit_cast<float>(bits & ~0x1FFFu));
  }
  uint16_t bits;
  __builtin_memcpy(&bits, p + 2 * i, 2);
  if (e == Element::kF16) return double_from_f16(bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

int min_exponent(Element e) { return e == Element::kE4M3 ? -6 : e == Element::kF16 ? -14 : -126; }

struct Decoded {
  float value;
  int exponent;
};

Decoded decode_one(Element e, const uint8_t* row, int k) {
  const double v = decode(e, row, k);
  return {static_cast<float>(v), std::isfinite(v) ? encoded_exponent(v, min_exponent(e)) : kNone};
}

const Decoded* e4m3_table() {
  static const std::vector<Decoded> table = [] {
    std::vector<Decoded> t;
    for (int code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      t.push_back(decode_one(Element::kE4M3, &byte, 0));
    }
    return t;
  }();
  return table.data();
}

std::vector<Row> decode_rows(Element e, const uint8_t* bytes, int rows) {
  const Decoded* table = e4m3_table();
  std::vector<Row> out(static_cast<size_t>(rows));
  for (int r = 0; r < rows; ++r) {
    Row& row = out[static_cast<size_t>(r)];
    row.special = false;
    const uint8_t* p = bytes + r * kRowBytes;
    for (int k = 0; k < elements(e); ++k) {
      const Decoded d = e == Element::kE4M3 ? table[p[k]] : decode_one(e, p, k);
      row.value[k] = d.value;
      row.exponent[k] = d.exponent;
      if (!std::isfinite(d.value)) row.special = true;
    }
  }
  return out;
}

double accumulator_value(Accumulate out, uint32_t bits) {
  return out == Accumulate::kF16 ? double_from_f16(static_cast<uint16_t>(bits))
                                 : static_cast<double>(std::bit_cast<float>(bits));
}

// v towards zero to `kept` fraction bits in float's exponent range.
uint32_t cut_to_float(double v, int kept) {
  if (v == 0.0) return 0;
  if (std::fabs(v) < 0x1p-126) {  // subnormal: the quantum is fixed
    const double quantum = std::ldexp(1.0, -126 - kept);
    return std::bit_cast<uint32_t>(static_cast<float>(std::trunc(v / quantum) * quantum));
  }
  const uint64_t dropped = (uint64_t{1} << (52 - kept)) - 1;
  const auto cut = std::bit_cast<double>(std::bit_cast<uint64_t>(v) & ~dropped);
  return std::bit_cast<uint32_t>(static_cast<float>(cut));
}

uint32_t finish(const Unit& u, double sum) {
  if (u.out == Accumulate::kF16) return f16_from_double(sum);
  return cut_to_float(sum, u.kept_bits);
}

uint32_t special_sum(const Unit& u, const Row& a, const Row& b, int k0, int k1, double c) {
  double sum = c;
  for (int k = k0; k < k1; ++k)
    sum += static_cast<double>(a.value[k]) * static_cast<double>(b.value[k]);
  if (std::isnan(sum)) return u.out == Accumulate::kF16 ? kNan16 : kNan32;
  return u.out == Accumulate::kF16 ? f16_from_double(sum)
                                   : std::bit_cast<uint32_t>(static_cast<float>(sum));
}

double power_of_two(int e) {  // |e| <= 1022
  return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52);
}

// Exact in float when products have at most 24 bits and the scaled terms fit 31 bits, as for e4m3
// (8 bits, F = 13).
int64_t sum_narrow(const Row& a, const Row& b, float scale) {
  int32_t sum = 0;
  for (int k = 0; k < 32; ++k) sum += static_cast<int32_t>(a.value[k] * b.value[k] * scale);
  return sum;
}

int64_t sum_wide(const Row& a, const Row& b, int k0, int k1, double scale) {
  int64_t sum = 0;
  for (int k = k0; k < k1; ++k) {
    sum += static_cast<int64_t>(static_cast<double>(a.value[k]) * static_cast<double>(b.value[k]) *
                                scale);
  }
  return sum;
}

uint32_t fused_dot(const Unit& u, const Row& a, const Row& b, int k0, int k1, uint32_t c_bits) {
  const double c = accumulator_value(u.out, c_bits);
  if (a.special || b.special || !std::isfinite(c)) return special_sum(u, a, b, k0, k1, c);
  int top = kNone;
  for (int k = k0; k < k1; ++k) top = std::max(top, a.exponent[k] + b.exponent[k]);
  top = std::max(top, encoded_exponent(c, u.out == Accumulate::kF16 ? -14 : -126));
  if (top < -300) return 0;  // every term is zero
  const int shift = u.fraction_bits - top;
  const bool narrow = u.fraction_bits <= 16 && k1 - k0 == 32 && shift < 100 && shift > -100;
  int64_t sum = narrow ? sum_narrow(a, b, static_cast<float>(power_of_two(shift)))
                       : sum_wide(a, b, k0, k1, power_of_two(shift));
  sum += static_cast<int64_t>(c * power_of_two(shift));
  return finish(u, static_cast<double>(sum) * power_of_two(-shift));
}

void multiply_s8(const uint8_t* a, int rows, const uint8_t* b, int n, uint32_t* c,
                 bool accumulate) {
  for (int i = 0; i < rows; ++i) {
    const auto* x = reinterpret_cast<const int8_t*>(a + i * kRowBytes);
    for (int j = 0; j < n; ++j) {
      const auto* y = reinterpret_cast<const int8_t*>(b + j * kRowBytes);
      int32_t sum = 0;
      for (int k = 0; k < 32; ++k) sum += x[k] * y[k];
      uint32_t& to = c[i * n + j];
      to = (accumulate ? to : 0) + static_cast<uint32_t>(sum);
    }
  }
}

}  // namespace

void multiply(Element element, Accumulate out, const uint8_t* a, int rows, const uint8_t* b, int n,
              uint32_t* c, bool accumulate) {
  if (element == Element::kS8) {
    multiply_s8(a, rows, b, n, c, accumulate);
    return;
  }
  const Unit unit = element == Element::kE4M3 ? Unit{13, 13, out} : Unit{25, 23, out};
  const std::vector<Row> x = decode_rows(element, a, rows), y = decode_rows(element, b, n);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < n; ++j) {
      uint32_t& to = c[i * n + j];
      to = fused_dot(unit, x[static_cast<size_t>(i)], y[static_cast<size_t>(j)], 0,
                     elements(element), accumulate ? to : 0);
    }
  }
}

void multiply_e4m3_as_f16(const uint8_t* a, int rows, const uint8_t* b, int n, uint32_t* c) {
  const Unit unit{25, 23, Accumulate::kF32};
  std::vector<Row> x = decode_rows(Element::kE4M3, a, rows), y = decode_rows(Element::kE4M3, b, n);
  for (auto* side : {&x, &y}) {
    for (Row& row : *side) {
      const Row from = row;
      for (int k = 0; k < 32; ++k) {
        const int step = k % 4 / 2, to = 16 * step + k / 4 * 2 + k % 2;
        row.value[to] = from.value[k];
        // As f16 no e4m3 value is subnormal.
        row.exponent[to] = from.exponent[k] == kNone ? kNone : std::ilogb(from.value[k]);
      }
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < n; ++j) {
      uint32_t& to = c[i * n + j];
      const Row &p = x[static_cast<size_t>(i)], &q = y[static_cast<size_t>(j)];
      const uint32_t products = fused_dot(unit, p, q, 16, 32, fused_dot(unit, p, q, 0, 16, 0));
      const float sum = std::bit_cast<float>(to) + std::bit_cast<float>(products);
      to = std::isnan(sum) ? kNan32 : std::bit_cast<uint32_t>(sum);
    }
  }
}

}  // namespace vcattn::emu
