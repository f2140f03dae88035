// The arithmetic of the matrix units: one instruction's worth of dot products.
//
// Integers are exact. Floating-point units of Hopper do not round after each addition: the products
// of one instruction and the accumulator are aligned to the largest exponent among them, each cut
// off (towards zero) F bits below it, and added exactly; the sum is cut off once more to the
// accumulator's precision.
//
//   operands            F    accumulator
//   e4m3, wgmma         13   f32: 13 fraction bits kept (towards zero); f16: nearest even
//   f16, bf16, tf32     25   f32: 23 fraction bits kept (towards zero)
#pragma once

#include <cstdint>

#include "api.h"

namespace vcattn::emu {

// c[i * n + j] = sum over the k-step of a[i] * b[j] (+ c[i * n + j]). Rows of a and b are 32 bytes,
// k ascending. c holds the accumulators' bits; f16 in the low half.
void multiply(Element element, Accumulate out, const uint8_t* a, int rows, const uint8_t* b, int n,
              uint32_t* c, bool accumulate);

// mma.sync of e4m3 on sm_90, which is two steps of f16 arithmetic from zero (first the k with
// k mod 4 < 2, then the others) and an addition to c, rounded to nearest even.
void multiply_e4m3_as_f16(const uint8_t* a, int rows, const uint8_t* b, int n, uint32_t* c);

}  // namespace vcattn::emu
