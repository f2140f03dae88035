// Noise-shaped rounding of a row (numerics/noise_shaping.h): the rounding policy of
// QuantizeKeysKernel and QuantizeQueriesKernel (scores.cuh) in place of ToNearest.
#pragma once

#include "cuda/prepare/gram.cuh"
#include "cuda/prepare/scores.cuh"

namespace vcattn::cuda::prepare {

struct Shaped {
  /// What the registers of a row with its errors allow.
  template <int kDim, class Source>
  static constexpr int kBlocksPerSm = kIsPacked<Source>&& kDim == 64 ? 7 : 4;
  template <int kDim>
  struct Shared {
    Feedback<kDim> feedback;
  };

  /// The feedback of `head`, by the whole block; a block_sync must follow.
  template <int kDim>
  VC_DEVICE static void load(Shared<kDim>& shared, const std::byte* feedback, std::uint32_t head) {
    constexpr int kBytes = sizeof(Feedback<kDim>);
    auto* to = reinterpret_cast<std::byte*>(&shared.feedback);
    for (int at = 16 * ptx::thread_index(); at < kBytes; at += 16 * kBlockRows) {
      ptx::store_shared(
          to + at, ptx::load_global_constant<Words>(feedback + std::int64_t{head} * kBytes + at));
    }
  }

  /// Replaces encode_row. Four channels at a time: what the errors behind them add up to is four
  /// independent sums, an instruction for every four errors.
  template <class Format, int kDim>
  VC_DEVICE static void encode(float (&x)[kDim], float inverse, const Shared<kDim>& shared,
                               std::uint8_t* image, int row) {
    const Feedback<kDim>& feedback = shared.feedback;
    const float unit =
        Format::shaping_unit(numerics::mul_rn(largest_before_last_stage(x), inverse));
    const float units = numerics::div_rn(1.0f, unit);
    hadamard_stages<kDim / 2, kDim>(x);
    std::uint32_t errors[kDim / 4];
    Codes codes;
    VC_UNROLL
    for (int group = kDim / 4 - 1; group >= 0; --group) {
      std::int32_t sum[4] = {kWholeBits, kWholeBits, kWholeBits, kWholeBits};
      VC_UNROLL
      for (int word = kDim / 4 - 1; word > group; --word) {
        const auto factor = ptx::load_shared<Words>(&feedback.factor[feedback.at(group, word)]);
        VC_UNROLL
        for (int j = 0; j < 4; ++j) sum[j] = ptx::dot4_s8(errors[word], factor[j], sum[j]);
      }
      const auto factor = ptx::load_shared<Words>(&feedback.factor[feedback.at(group, group)]);
      const auto scale = ptx::load_shared<ptx::Vec<float, 4>>(&feedback.scale[4 * group]);
      float t[4];
      errors[group] = 0;
      VC_UNROLL
      for (int j = 3; j >= 0; --j) {
        const auto bits =
            static_cast<std::uint32_t>(ptx::dot4_s8(errors[group], factor[j], sum[j]));
        const float y = numerics::mul_rn(
            numerics::mul_rn(x[4 * group + j], numerics::hadamard_scale(kDim)), inverse);
        const float target = numerics::shaping_target(
            y, numerics::sub_rn(numerics::bits_float(bits), kWhole), scale[j], unit);
        t[j] = clamp(target, Format::kLargest);
        const float e = numerics::mul_rn(numerics::sub_rn(target, Format::round(t[j])), units);
        errors[group] = with_byte(errors[group], j, numerics::add_rn(clamp(e, 127.0f), kWhole));
      }
      codes[group % 4] = Format::encode(t, 1.0f);
      if (group % 4 == 0) {
        ptx::store_shared(image + sm90::score_operand_offset<kDim>(row, 4 * group), codes);
      }
    }
  }

 private:
  /// Added to a whole number below 2^22, its low bits are that number's.
  static constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23
  static constexpr std::int32_t kWholeBits = 0x4B400000;

  /// NaN stays NaN.
  VC_DEVICE static float clamp(float x, float largest) {
    return numerics::min_nan(numerics::max_nan(x, -largest), largest);
  }
  /// `word` with the low byte of x at byte i.
  VC_DEVICE static std::uint32_t with_byte(std::uint32_t word, int i, float x) {
    constexpr std::uint32_t kSelect[] = {0x3214, 0x3240, 0x3410, 0x4210};
    return ptx::permute_bytes(word, numerics::float_bits(x), kSelect[i]);
  }
};

}  // namespace vcattn::cuda::prepare
