// Meaning of the conversions and approximations (declared in ptx/convert.cuh).
#pragma once

#include <cstdint>

namespace vcattn::emu {

// Rounding helpers shared by the families. Each rounds once, to nearest even, from an exact double.
uint16_t f16_from_double(double v);  // NaN becomes 0x7FFF
double double_from_f16(uint16_t h);
double double_from_e4m3(uint8_t code);
uint8_t e4m3_from_double(double v);  // saturates at 448; NaN becomes 0x7F

uint32_t f16x2_from_floats(float lo, float hi);
uint32_t f16x2_from_floats_relu(float lo, float hi);
uint32_t bf16x2_from_floats(float lo, float hi);
uint16_t e4m3x2_from_floats(float lo, float hi);
uint16_t e4m3x2_from_f16x2(uint32_t pair);
uint32_t f16x2_from_e4m3x2(uint16_t pair);
int32_t int_from_float(float v);
float float_from_int(int32_t v);
uint32_t tf32_from_float(float v);
float float_from_f16(uint16_t h);
uint16_t f16_from_float(float v);
uint16_t bf16_from_float(float v);
float exp2_approx(float v);
float log2_approx(float v);
float reciprocal_approx(float v);
float rsqrt_approx(float v);
uint32_t pack_s8(int32_t hi, int32_t lo, uint32_t previous);
uint32_t pack_u8(int32_t hi, int32_t lo, uint32_t previous);

}  // namespace vcattn::emu
