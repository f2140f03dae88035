#include "packed.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "convert.h"

namespace vcattn::emu {
namespace {

int16_t low(uint32_t a) { return static_cast<int16_t>(a); }
int16_t high(uint32_t a) { return static_cast<int16_t>(a >> 16); }

uint32_t pack(int lo, int hi) {
  return static_cast<uint32_t>(static_cast<uint16_t>(lo)) |
         static_cast<uint32_t>(static_cast<uint16_t>(hi)) << 16;
}

int wrap16(int v) { return static_cast<int16_t>(static_cast<uint16_t>(v)); }

template <class F>
uint32_t each(uint32_t a, uint32_t b, F f) {
  return pack(f(low(a), low(b)), f(high(a), high(b)));
}

template <class F>
uint32_t each(uint32_t a, uint32_t b, uint32_t c, F f) {
  return pack(f(low(a), low(b), low(c)), f(high(a), high(b), high(c)));
}

// The product of two halves is exact in a double, the sum may not be: it is rounded to odd, so that
// the rounding to 16 bits that follows sees on which side of a tie the exact sum lies.
double fma_exact(double a, double b, double c) {
  const double p = a * b;
  const double s = p + c;
  if (!std::isfinite(s)) return s;
  const double bb = s - p;
  const double error = (p - (s - bb)) + (c - bb);
  if (error == 0.0 || (std::bit_cast<uint64_t>(s) & 1) != 0) return s;
  return std::nextafter(s, error > 0 ? INFINITY : -INFINITY);
}

template <class F>
uint32_t each_half(uint32_t a, uint32_t b, uint32_t c, F finish) {
  uint32_t out = 0;
  for (int i = 0; i < 2; ++i) {
    const auto h = [i](uint32_t x) {
      return double_from_f16(static_cast<uint16_t>(x >> (16 * i)));
    };
    const double exact = fma_exact(h(a), h(b), h(c));
    out |= static_cast<uint32_t>(f16_from_double(finish(exact))) << (16 * i);
  }
  return out;
}

uint16_t choose_half(uint16_t a, uint16_t b, bool want_max) {
  const double x = double_from_f16(a), y = double_from_f16(b);
  if (std::isnan(x) && std::isnan(y)) return 0x7FFF;
  if (std::isnan(x)) return b;
  if (std::isnan(y)) return a;
  if (x == 0 && y == 0) return want_max ? (a & b) : (a | b);
  return ((x > y) == want_max) ? a : b;
}

uint32_t choose_half2(uint32_t a, uint32_t b, bool want_max) {
  const uint16_t lo = choose_half(static_cast<uint16_t>(a), static_cast<uint16_t>(b), want_max);
  const uint16_t hi =
      choose_half(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16), want_max);
  return lo | static_cast<uint32_t>(hi) << 16;
}

int32_t wrapping_add(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

constexpr uint32_t kOnes = 0x3C003C00u;

}  // namespace

uint32_t permute_bytes(uint32_t lo, uint32_t hi, uint32_t selector) {
  const uint64_t all = static_cast<uint64_t>(hi) << 32 | lo;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7;
    out |= (static_cast<uint32_t>(all >> (8 * from)) & 0xFF) << (8 * i);
  }
  return out;
}

uint32_t max_s16x2(uint32_t a, uint32_t b) {
  return each(a, b, [](int x, int y) { return std::max(x, y); });
}
uint32_t min_s16x2(uint32_t a, uint32_t b) {
  return each(a, b, [](int x, int y) { return std::min(x, y); });
}
uint32_t add_s16x2(uint32_t a, uint32_t b) {
  return each(a, b, [](int x, int y) { return wrap16(x + y); });
}
uint32_t sub_s16x2(uint32_t a, uint32_t b) {
  return each(a, b, [](int x, int y) { return wrap16(x - y); });
}
uint32_t max_s16x2_relu(uint32_t a, uint32_t b) {
  return each(a, b, [](int x, int y) { return std::max({x, y, 0}); });
}
uint32_t max3_s16x2(uint32_t a, uint32_t b, uint32_t c) {
  return each(a, b, c, [](int x, int y, int z) { return std::max({x, y, z}); });
}
uint32_t min3_s16x2(uint32_t a, uint32_t b, uint32_t c) {
  return each(a, b, c, [](int x, int y, int z) { return std::min({x, y, z}); });
}
uint32_t max3_s16x2_relu(uint32_t a, uint32_t b, uint32_t c) {
  return each(a, b, c, [](int x, int y, int z) { return std::max({x, y, z, 0}); });
}
uint32_t add_max_s16x2(uint32_t a, uint32_t b, uint32_t c) {
  return each(a, b, c, [](int x, int y, int z) { return std::max(wrap16(x + y), z); });
}
uint32_t add_max_s16x2_relu(uint32_t a, uint32_t b, uint32_t c) {
  return each(a, b, c, [](int x, int y, int z) { return std::max({wrap16(x + y), z, 0}); });
}
uint32_t add_min_s16x2_relu(uint32_t a, uint32_t b, uint32_t c) {
  return each(a, b, c, [](int x, int y, int z) { return std::max(std::min(wrap16(x + y), z), 0); });
}

int32_t max3_s32(int32_t a, int32_t b, int32_t c) { return std::max({a, b, c}); }
int32_t min3_s32(int32_t a, int32_t b, int32_t c) { return std::min({a, b, c}); }
int32_t add_max_s32(int32_t a, int32_t b, int32_t c) { return std::max(wrapping_add(a, b), c); }
int32_t add_max_s32_relu(int32_t a, int32_t b, int32_t c) {
  return std::max({wrapping_add(a, b), c, 0});
}
int32_t add_min_s32_relu(int32_t a, int32_t b, int32_t c) {
  return std::max(std::min(wrapping_add(a, b), c), 0);
}
int32_t max_s32(int32_t a, int32_t b) { return std::max(a, b); }
int32_t min_s32(int32_t a, int32_t b) { return std::min(a, b); }
int32_t dot4_s8(uint32_t a, uint32_t b, int32_t c) {
  for (int i = 0; i < 4; ++i) {
    const auto x = static_cast<int8_t>(a >> 8 * i), y = static_cast<int8_t>(b >> 8 * i);
    c = wrapping_add(c, x * y);
  }
  return c;
}
uint32_t count_bits(uint32_t a) { return static_cast<uint32_t>(std::popcount(a)); }
uint32_t leading_zeros(uint32_t a) { return static_cast<uint32_t>(std::countl_zero(a)); }

uint32_t add_f16x2(uint32_t a, uint32_t b) { return fma_f16x2(a, kOnes, b); }
uint32_t sub_f16x2(uint32_t a, uint32_t b) { return fma_f16x2(a, kOnes, b ^ 0x80008000u); }
uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  return each_half(a, b, 0x80008000u, [](double v) { return v; });  // + -0 keeps the sign of zero
}
uint32_t max_f16x2(uint32_t a, uint32_t b) { return choose_half2(a, b, true); }
uint32_t min_f16x2(uint32_t a, uint32_t b) { return choose_half2(a, b, false); }

uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  return each_half(a, b, c, [](double v) { return v; });
}
uint32_t fma_sat_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  return each_half(a, b, c, [](double v) { return v > 0 ? std::min(v, 1.0) : 0.0; });
}
uint32_t fma_relu_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  return each_half(a, b, c, [](double v) { return std::isnan(v) || v > 0 ? v : 0.0; });
}

}  // namespace vcattn::emu
