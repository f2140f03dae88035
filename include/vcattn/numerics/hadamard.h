// Orthonormal Walsh-Hadamard transform of one vector, in Sylvester order: y = H x with
// H[i][j] = (-1)^popcount(i & j) / sqrt(n). It is its own inverse up to rounding.
#pragma once

#include "vcattn/numerics/arith.h"

namespace vcattn::numerics {

constexpr int kHadamardMaxSize = 256;

// 1 / sqrt(n) rounded to float, for n a power of two. Exact for even powers; for odd ones it is
// float(1/sqrt 2) times a power of two, which is the correctly rounded value because scaling by a
// power of two commutes with it.
VCATTN_HD constexpr float hadamard_scale(int n) {
  float scale = 1.0f;
  for (; n >= 4; n /= 4) scale *= 0.5f;
  return n == 2 ? scale * 0.707106781186547524f : scale;
}

// Transforms x[0 .. n), n a power of two in [1, kHadamardMaxSize]. The order of operations is part
// of the contract, so that any parallel version can give the same bits: stages h = 1, 2, 4, ..,
// n/2; in each, for every i with (i & h) == 0, (x[i], x[i+h]) <- (x[i] + x[i+h], x[i] - x[i+h]),
// each rounded once; last, one multiplication of every element by hadamard_scale(n). Error: each
// element within (log2 n + 2) * 2^-24 * sum|x| / sqrt(n), plus terms of second order. NaN and
// infinity spread to every element.
VCATTN_HD void hadamard_in_place(float* x, int n) {
  for (int h = 1; h < n; h *= 2) {
    for (int start = 0; start < n; start += 2 * h) {
      for (int i = start; i < start + h; ++i) {
        const float a = x[i];
        const float b = x[i + h];
        x[i] = add_rn(a, b);
        x[i + h] = sub_rn(a, b);
      }
    }
  }
  const float scale = hadamard_scale(n);
  for (int i = 0; i < n; ++i) x[i] = mul_rn(x[i], scale);
}

// The same with the size known at compile time.
template <int kSize>
VCATTN_HD void hadamard_in_place(float* x) {
  static_assert(kSize > 0 && kSize <= kHadamardMaxSize && (kSize & (kSize - 1)) == 0,
                "the transform is defined for powers of two up to 256");
  hadamard_in_place(x, kSize);
}

}  // namespace vcattn::numerics
