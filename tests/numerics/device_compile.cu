// Instantiates every function of include/vcattn/numerics in one kernel, so that a header that stops
// compiling in device code fails the build on machines without a GPU.
#include "vcattn/numerics/arith.h"
#include "vcattn/numerics/bf16.h"
#include "vcattn/numerics/block_scale.h"
#include "vcattn/numerics/e2m1.h"
#include "vcattn/numerics/e4m3.h"
#include "vcattn/numerics/exp_cast.h"
#include "vcattn/numerics/exp_log.h"
#include "vcattn/numerics/f16.h"
#include "vcattn/numerics/hadamard.h"
#include "vcattn/numerics/online_softmax.h"
#include "vcattn/numerics/quantizer.h"
#include "vcattn/numerics/tf32.h"
#include "vcattn/numerics/v_smooth.h"

namespace vcattn::numerics {
namespace {

// Stores every result, so that nothing is optimised away before code is made for it.
struct Sink {
  float* out;
  int count = 0;
  __device__ void put(float x) { out[count++] = x; }
};

__device__ void use_arith(Sink& s, float x, float y) {
  s.put(fma_rn(x, y, x));
  s.put(mul_rn(x, y));
  s.put(add_rn(x, y));
  s.put(sub_rn(x, y));
  s.put(div_rn(x, y));
  s.put(bits_float(float_bits(x) ^ 1u));
  s.put(quiet_nan());
  s.put(infinity());
  s.put(is_nan(x) || is_finite(y) ? abs_bits(x) : abs_max(x, y));
  s.put(max_nan(x, y));
  s.put(clip(x, y, 2.0f));
  s.put(rne(x));
  s.put(static_cast<float>(rne_i32(x) + rne_clip_i32(y, -7, 7, 1)));
  s.put(exp2_int(rne_i32(y)));
  s.put(scale_exp2(x, rne_i32(y)));
  s.put(exp2_f32(x));
  s.put(exp_f32(x));
  s.put(log_f32(x));
}

__device__ void use_formats(Sink& s, float x) {
  s.put(bf16_to_float(bf16_from_float(x)));
  s.put(bf16_round(x));
  s.put(bf16_to_float(bf16_from_float_satfinite(x)));
  s.put(f16_to_float(f16_from_float(x)));
  s.put(f16_round(x));
  s.put(tf32_truncate(x));
  s.put(tf32_round(x));
  s.put(tf32_round_away(x));
  s.put(e4m3_decode(e4m3_encode(x)));
  s.put(e4m3_round(x));
  const std::uint8_t packed = e2m1_pack(e2m1_encode(x), e2m1_encode(-x));
  s.put(e2m1_decode(e2m1_unpack_even(packed)));
  s.put(e2m1_decode(e2m1_unpack_odd(packed)));
}

__device__ void use_scales(Sink& s, const float* in) {
  s.put(ue4m3_decode(ue4m3_encode(in[0])));
  s.put(ue8m0_decode(ue8m0_encode_down(in[0])));
  s.put(ue8m0_decode(ue8m0_encode_up(in[0])));
  s.put(ue8m0_decode(mx_scale(in[0], 2)));
  const float tensor_scale = nvfp4_tensor_scale(in[1]);
  const Nvfp4Block block = quantize_nvfp4_block(in, tensor_scale);
  s.put(nvfp4_decode(block, 3, tensor_scale));
  const std::uint8_t byte = nvfp4_scale_byte(in[1], tensor_scale);
  s.put(e2m1_decode(nvfp4_encode(in[2], nvfp4_inverse_scale(byte, tensor_scale))));
  const QuantScale any = quant_scale(in[0], 7.0f);
  const QuantScale int8 = int8_scale(in[0]);
  const QuantScale e4m3 = e4m3_scale(in[0]);
  s.put(any.scale);
  s.put(int8_dequantize(int8_quantize(in[1], int8.inverse), int8.scale));
  s.put(e4m3_dequantize(e4m3_quantize(in[1], e4m3.inverse), e4m3.scale));
}

__device__ void use_softmax(Sink& s, float x, float y) {
  const float bias = exp_cast_bias(kExpCastPaper, y);
  s.put(static_cast<float>(exp_cast_code(x, bias)));
  s.put(
      static_cast<float>(exp_cast_code_fma(x, kCodesPerNat, exp_cast_bias(kExpCastTileLocal, y))));
  s.put(static_cast<float>(exp_cast_round(x)));
  s.put(static_cast<float>(exp_exact_code(x)));
  s.put(exp_cast_log_scale(kExpCastTileLocal));
  s.put(exp_exact_log_scale());
  SoftmaxState state;
  s.put(softmax_update(state, x, y).keep);
  s.put(softmax_step(state.m, y).add);
  state = softmax_merge(state, SoftmaxState{y, x});
  s.put(softmax_lse(state, 0.0f));
  s.put(softmax_inverse_sum(state.l));
  s.put(rescale_factor(x, y));
  s.put(merge_outputs(x, y, merge_weights(x, y)));
}

__device__ void use_v_smooth(Sink& s, const float* in) {
  const float mu = bf16_to_float(block_mean(in, 100, 1));
  s.put(bf16_to_float(block_mean_finish(block_mean_accumulate(in[0], in[1]), 7)));
  s.put(restore_mean(block_residual(in[0], mu), in[1], mu));
  s.put(static_cast<float>(energy_removed(energy_split(in, 100, 1, mu))));
}

}  // namespace

// `in` holds 256 floats, `out` 512; one thread.
__global__ void instantiate_numerics(const float* in, float* out) {
  Sink sink{out};
  use_arith(sink, in[0], in[1]);
  use_formats(sink, in[2]);
  use_scales(sink, in);
  use_softmax(sink, in[3], in[4]);
  use_v_smooth(sink, in);
  float* vector = out + 256;
  for (int i = 0; i < 256; ++i) vector[i] = in[i];
  hadamard_in_place<64>(vector);
  hadamard_in_place<128>(vector);
  hadamard_in_place<256>(vector);
  hadamard_in_place(vector, 32);
  sink.put(hadamard_scale(sink.count));
}

}  // namespace vcattn::numerics
