#include "convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace vcattn::emu {
namespace {

// Nearest value with `fraction` bits below the leading one and no quantum below 2^min_quantum, ties
// to even.
double round_to(double v, int fraction, int min_quantum) {
  if (v == 0.0 || !std::isfinite(v)) return v;
  const int exponent = std::ilogb(v);
  const int quantum = std::max(exponent - fraction, min_quantum);
  return std::ldexp(std::nearbyint(std::ldexp(v, -quantum)), quantum);
}

float flush(float v) {  // .ftz: subnormals become zeros of the same sign
  return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v;
}

template <class F>
uint32_t pair16(float lo, float hi, F f) {
  return static_cast<uint32_t>(f(lo)) | static_cast<uint32_t>(f(hi)) << 16;
}

uint32_t pack_bytes(int lo, int hi, uint32_t previous) {
  return (static_cast<uint32_t>(lo) & 0xFF) | (static_cast<uint32_t>(hi) & 0xFF) << 8 |
         previous << 16;
}

}  // namespace

uint16_t f16_from_double(double v) {
  if (std::isnan(v)) return 0x7FFF;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  const double r = std::fabs(round_to(v, 10, -24));
  if (r > 65504.0) return sign | 0x7C00;
  if (r < 0x1p-14) return sign | static_cast<uint16_t>(std::ldexp(r, 24));
  const int exponent = std::ilogb(r);
  const int fraction = static_cast<int>(std::ldexp(r, 10 - exponent)) - 1024;
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | fraction);
}

double double_from_f16(uint16_t h) {
  const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (h >> 10) & 31, fraction = h & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double double_from_e4m3(uint8_t code) {
  const double sign = (code & 0x80) != 0 ? -1.0 : 1.0;
  const int exponent = (code >> 3) & 15, fraction = code & 7;
  if ((code & 0x7F) == 0x7F) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, -9);
  return sign * std::ldexp(8 + fraction, exponent - 10);
}

uint8_t e4m3_from_double(double v) {
  if (std::isnan(v)) return 0x7F;
  const int sign = std::signbit(v) ? 0x80 : 0;
  const double r = std::min(std::fabs(round_to(v, 3, -9)), 448.0);
  if (r < 0x1p-6) return static_cast<uint8_t>(sign | static_cast<int>(std::ldexp(r, 9)));
  const int exponent = std::ilogb(r);
  const int fraction = static_cast<int>(std::ldexp(r, 3 - exponent)) - 8;
  return static_cast<uint8_t>(sign | (exponent + 7) << 3 | fraction);
}

uint32_t f16x2_from_floats(float lo, float hi) {
  return pair16(lo, hi, [](float v) { return f16_from_double(v); });
}

uint32_t f16x2_from_floats_relu(float lo, float hi) {
  return pair16(lo, hi,
                [](float v) { return std::isnan(v) || v > 0 ? f16_from_double(v) : uint16_t{0}; });
}

uint32_t bf16x2_from_floats(float lo, float hi) { return pair16(lo, hi, bf16_from_float); }

uint16_t e4m3x2_from_floats(float lo, float hi) {
  return static_cast<uint16_t>(e4m3_from_double(lo) | e4m3_from_double(hi) << 8);
}

uint16_t e4m3x2_from_f16x2(uint32_t pair) {
  const double lo = double_from_f16(static_cast<uint16_t>(pair));
  const double hi = double_from_f16(static_cast<uint16_t>(pair >> 16));
  return static_cast<uint16_t>(e4m3_from_double(lo) | e4m3_from_double(hi) << 8);
}

uint32_t f16x2_from_e4m3x2(uint16_t pair) {
  return f16_from_double(double_from_e4m3(static_cast<uint8_t>(pair))) |
         static_cast<uint32_t>(f16_from_double(double_from_e4m3(static_cast<uint8_t>(pair >> 8))))
             << 16;
}

int32_t int_from_float(float v) {
  if (std::isnan(v)) return 0;
  const double r = std::nearbyint(static_cast<double>(v));
  return static_cast<int32_t>(std::clamp(r, -2147483648.0, 2147483647.0));
}

float float_from_int(int32_t v) { return static_cast<float>(v); }

uint32_t tf32_from_float(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if (std::isnan(v)) return 0x7FFFFFFF;
  if (std::isinf(v)) return bits;
  return (bits + 0x1000u) & ~0x1FFFu;  // magnitude: half away from zero
}

float float_from_f16(uint16_t h) {
  const double v = double_from_f16(h);
  if (std::isnan(v)) return std::bit_cast<float>(0x7FFFFFFFu);
  return static_cast<float>(v);
}

uint16_t f16_from_float(float v) { return f16_from_double(v); }

uint16_t bf16_from_float(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if (std::isnan(v)) return 0x7FFF;
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

float exp2_approx(float v) {
  return flush(static_cast<float>(std::exp2(static_cast<double>(flush(v)))));
}
float log2_approx(float v) { return static_cast<float>(std::log2(static_cast<double>(flush(v)))); }
float reciprocal_approx(float v) {
  return flush(static_cast<float>(1.0 / static_cast<double>(flush(v))));
}
float rsqrt_approx(float v) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(flush(v))));
}

uint32_t pack_s8(int32_t hi, int32_t lo, uint32_t previous) {
  return pack_bytes(std::clamp(lo, -128, 127), std::clamp(hi, -128, 127), previous);
}

uint32_t pack_u8(int32_t hi, int32_t lo, uint32_t previous) {
  return pack_bytes(std::clamp(lo, 0, 255), std::clamp(hi, 0, 255), previous);
}

}  // namespace vcattn::emu
