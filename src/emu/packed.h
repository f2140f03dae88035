// Meaning of the packed-integer, packed-half and byte instructions (declared in ptx/packed.cuh).
#pragma once

#include <cstdint>

namespace vcattn::emu {

uint32_t permute_bytes(uint32_t lo, uint32_t hi, uint32_t selector);

uint32_t max_s16x2(uint32_t a, uint32_t b);
uint32_t min_s16x2(uint32_t a, uint32_t b);
uint32_t add_s16x2(uint32_t a, uint32_t b);
uint32_t sub_s16x2(uint32_t a, uint32_t b);
uint32_t max_s16x2_relu(uint32_t a, uint32_t b);
uint32_t max3_s16x2(uint32_t a, uint32_t b, uint32_t c);
uint32_t min3_s16x2(uint32_t a, uint32_t b, uint32_t c);
uint32_t max3_s16x2_relu(uint32_t a, uint32_t b, uint32_t c);
uint32_t add_max_s16x2(uint32_t a, uint32_t b, uint32_t c);
uint32_t add_max_s16x2_relu(uint32_t a, uint32_t b, uint32_t c);
uint32_t add_min_s16x2_relu(uint32_t a, uint32_t b, uint32_t c);

int32_t max3_s32(int32_t a, int32_t b, int32_t c);
int32_t min3_s32(int32_t a, int32_t b, int32_t c);
int32_t add_max_s32(int32_t a, int32_t b, int32_t c);
int32_t add_max_s32_relu(int32_t a, int32_t b, int32_t c);
int32_t add_min_s32_relu(int32_t a, int32_t b, int32_t c);
int32_t max_s32(int32_t a, int32_t b);
int32_t min_s32(int32_t a, int32_t b);
int32_t dot4_s8(uint32_t a, uint32_t b, int32_t c);
uint32_t count_bits(uint32_t a);
uint32_t leading_zeros(uint32_t a);

uint32_t add_f16x2(uint32_t a, uint32_t b);
uint32_t sub_f16x2(uint32_t a, uint32_t b);
uint32_t mul_f16x2(uint32_t a, uint32_t b);
uint32_t max_f16x2(uint32_t a, uint32_t b);
uint32_t min_f16x2(uint32_t a, uint32_t b);
uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c);
uint32_t fma_sat_f16x2(uint32_t a, uint32_t b, uint32_t c);
uint32_t fma_relu_f16x2(uint32_t a, uint32_t b, uint32_t c);

}  // namespace vcattn::emu
