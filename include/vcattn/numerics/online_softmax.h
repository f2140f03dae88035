// Online softmax: the running reference and sum of a row, and the merging of partial results.
// References are in octaves (scores in nats times log2 e). A reference in ExpCast code units
// becomes octaves by the exact factor kOctavesPerCode.
#pragma once

#include "vcattn/numerics/exp_log.h"

namespace vcattn::numerics {

// A row that has seen no key: m = -inf, l = 0. The represented sum of weights is l * 2^m.
struct SoftmaxState {
  float m = -HUGE_VALF;
  float l = 0.0f;
};

// 2^(from - to): what multiplies a sum taken relative to `from` when it is re-expressed relative to
// `to`. <= 1 ulp after one rounding of the difference; exactly 1 when they are equal and finite; 0
// when `from` is -inf, also when both are (an empty part weighs nothing). NaN, and +inf against
// +inf, give NaN.
VCATTN_HD float rescale_factor(float from, float to) {
  if (from == -infinity()) return 0.0f;
  return exp2_f32(sub_rn(from, to));
}

// How an accumulator and a new tile combine: accumulator * keep + tile * add.
struct SoftmaxStep {
  float m;     // the new reference
  float keep;  // factor of what was accumulated before
  float add;   // factor of the tile
};

// Step from reference m to max(m, m_tile). One of keep and add is exactly 1 unless both are empty
// (then both are 0). A NaN reference makes m and a factor NaN.
VCATTN_HD SoftmaxStep softmax_step(float m, float m_tile) {
  const float m_new = max_nan(m, m_tile);
  return {m_new, rescale_factor(m, m_new), rescale_factor(m_tile, m_new)};
}

// Adds a tile whose sum of weights relative to m_tile is l_tile; returns the step, which the caller
// applies to the output accumulator as well. l <- fma(keep, l, add * l_tile).
VCATTN_HD SoftmaxStep softmax_update(SoftmaxState& state, float m_tile, float l_tile) {
  const SoftmaxStep step = softmax_step(state.m, m_tile);
  state.m = step.m;
  state.l = fma_rn(step.keep, state.l, mul_rn(step.add, l_tile));
  return step;
}

// Combines two states over disjoint keys. Same arithmetic as an update.
VCATTN_HD SoftmaxState softmax_merge(SoftmaxState a, SoftmaxState b) {
  softmax_update(a, b.m, b.l);
  return a;
}

// 1 / l, or 0 for an empty row (l == 0), whose output is then 0. One rounding; NaN stays NaN.
VCATTN_HD float softmax_inverse_sum(float l) { return l == 0.0f ? 0.0f : div_rn(1.0f, l); }

// Log-sum-exp of the row in nats: m ln 2 + ln l - log_scale; -inf for an empty row. log_scale is
// the logarithm of the common factor of the weights in l: 0, exp_cast_log_scale(..) or
// exp_exact_log_scale(). Error: a few roundings, about 2^-23 (|m| + |ln l| + |log_scale|).
VCATTN_HD float softmax_lse(SoftmaxState state, float log_scale) {
  if (state.l == 0.0f) return -infinity();
  return fma_rn(state.m, kLn2, sub_rn(log_f32(state.l), log_scale));
}

// Weights that merge two normalised partial results (out, lse) over disjoint keys, as ring
// attention does.
struct MergeWeights {
  float lse;
  float a;
  float b;
};

// a = e^(lse_a) / (e^(lse_a) + e^(lse_b)), b likewise, lse = ln(e^(lse_a) + e^(lse_b)); LSE in
// nats. A part with lse -inf is empty and gets weight exactly 0, the other exactly 1; two empty
// parts give weights 0 and lse -inf. NaN or +inf in either gives NaN: an overflowed LSE is not an
// empty one. Weights <= 3 ulp after one rounding of the difference; lse within 2^-23 (|lse| + 2).
VCATTN_HD MergeWeights merge_weights(float lse_a, float lse_b) {
  const float m = max_nan(lse_a, lse_b);
  if (m == -infinity()) return {m, 0.0f, 0.0f};
  const float ea = exp_f32(sub_rn(lse_a, m));
  const float eb = exp_f32(sub_rn(lse_b, m));
  const float sum = add_rn(ea, eb);
  const float inverse = div_rn(1.0f, sum);
  return {add_rn(m, log_f32(sum)), mul_rn(ea, inverse), mul_rn(eb, inverse)};
}

// One element of the merged output. A part of weight 0 is not read: an empty shard may hold
// anything.
VCATTN_HD float merge_outputs(float out_a, float out_b, const MergeWeights& w) {
  const float b = w.b == 0.0f ? 0.0f : mul_rn(w.b, out_b);
  return w.a == 0.0f ? b : fma_rn(w.a, out_a, b);
}

}  // namespace vcattn::numerics
