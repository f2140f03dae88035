// Rows of Q, K and V as the preparation kernels read them.
#pragma once

#include "cuda/device_view.h"
#include "cuda/ptx/ptx.cuh"
#include "vcattn/numerics/arith.h"
#include "vcattn/numerics/row_sample.h"

namespace vcattn::cuda::prepare {

inline constexpr int kTileRows = 128;
inline constexpr int kPacket = 8;  ///< channels a thread reads at once

/// A tensor as preparation reads it; made by input_of (prepare.cu).
struct Input {
  InputView view;
  bool aligned = false;        ///< whole rows, and tables, can be read 16 bytes at a time
  int row_bytes = 0;           ///< from token to token, if aligned
  const float* cos = nullptr;  ///< rotary tables (tokens, pairs); nullptr: none
  const float* sin = nullptr;
  int pairs = 0;
  bool interleaved = false;
};

/// Eight neighbouring channels of a row.
struct Channels {
  float v[kPacket];
  VC_DEVICE float& operator[](int i) { return v[i]; }
  VC_DEVICE float operator[](int i) const { return v[i]; }
};

using Words = ptx::Vec<std::uint32_t, 4>;  ///< eight 16-bit channels

/// The two channels of a word.
struct Bf16 {
  VC_DEVICE static float low(std::uint32_t word) { return numerics::bits_float(word << 16); }
  VC_DEVICE static float high(std::uint32_t word) {
    return numerics::bits_float(word & 0xFFFF0000u);
  }
};

struct F16 {
  VC_DEVICE static float low(std::uint32_t word) {
    return ptx::float_from_f16(static_cast<std::uint16_t>(word & 0xFFFFu));
  }
  VC_DEVICE static float high(std::uint32_t word) {
    return ptx::float_from_f16(static_cast<std::uint16_t>(word >> 16));
  }
};

/// Sixteen-bit channels `first`, ... of token 0 of a head; tokens are in.row_bytes apart.
VC_DEVICE const std::byte* packed_rows(const Input& in, int batch, int head, int first) {
  return static_cast<const std::byte*>(in.view.data) +
         2 * (in.view.row_offset(batch, head, 0) + first);
}

template <class Format>
VC_DEVICE Channels unpack(const Words& words) {
  Channels x;
  VC_UNROLL
  for (int i = 0; i < kPacket; i += 2) {
    x[i] = Format::low(words[i / 2]);
    x[i + 1] = Format::high(words[i / 2]);
  }
  return x;
}

VC_DEVICE Channels unpack(const Words& words, bool is_bf16) {
  return is_bf16 ? unpack<Bf16>(words) : unpack<F16>(words);
}

/// Eight floats at a multiple of 16 bytes.
VC_DEVICE Channels load_floats(const float* p) {
  Channels x;
  VC_UNROLL
  for (int half = 0; half < kPacket; half += 4) {
    const auto four = ptx::load_global_constant<ptx::Vec<float, 4>>(p + half);
    VC_UNROLL
    for (int i = 0; i < 4; ++i) x[half + i] = four[i];
  }
  return x;
}

VC_DEVICE float load_element(const InputView& view, std::int64_t at) {
  if (view.dtype == DType::kF32) {
    return ptx::load_global_constant<float>(static_cast<const float*>(view.data) + at);
  }
  const auto bits =
      ptx::load_global_constant<std::uint16_t>(static_cast<const std::uint16_t*>(view.data) + at);
  return view.dtype == DType::kBF16 ? ptx::float_from_bf16(bits) : ptx::float_from_f16(bits);
}

/// Channels first .. first + 7 of the row at offset `at`; those beyond the tensor's own are zero.
VC_DEVICE Channels load_channels(const Input& in, std::int64_t at, int first) {
  const InputView& view = in.view;
  if (!in.aligned) {
    Channels x = {};
    VC_UNROLL
    for (int i = 0; i < kPacket; ++i) {
      if (first + i < view.dim) x[i] = load_element(view, at + (first + i) * view.stride[3]);
    }
    return x;
  }
  if (view.dtype == DType::kF32) {
    return load_floats(static_cast<const float*>(view.data) + at + first);
  }
  const auto words =
      ptx::load_global_constant<Words>(static_cast<const std::uint16_t*>(view.data) + at + first);
  return unpack(words, view.dtype == DType::kBF16);
}

/// The other channel of a rotary pair, for each of eight, and the pair's angle.
struct RotaryPackets {
  Channels other = {}, cos = {}, sin = {};
};

VC_DEVICE RotaryPackets load_rotary(const Input& in, const Channels& x, std::int64_t at,
                                    std::int64_t table, int first) {
  RotaryPackets r;
  if (in.interleaved) {
    VC_UNROLL
    for (int i = 0; i < kPacket; ++i) r.other[i] = x[i ^ 1];
  }
  VC_UNROLL
  for (int i = 0; i < kPacket; ++i) {
    const int channel = first + i;
    if (channel >= 2 * in.pairs) continue;
    const int pair = in.interleaved ? channel / 2 : channel % in.pairs;
    if (!in.interleaved) {
      const int other = channel < in.pairs ? channel + in.pairs : channel - in.pairs;
      r.other[i] = load_element(in.view, at + other * in.view.stride[3]);
    }
    r.cos[i] = ptx::load_global_constant<float>(in.cos + table + pair);
    r.sin[i] = ptx::load_global_constant<float>(in.sin + table + pair);
  }
  return r;
}

/// One channel of a rotated pair: (a, b) -> (a cos - b sin, b cos + a sin), the product with the
/// sine rounded first, as on the CPU.
VC_DEVICE float rotated(float x, float other, float cos, float sin, bool is_second) {
  const float turned = numerics::mul_rn(other, sin);
  return numerics::fma_rn(x, cos, is_second ? turned : -turned);
}

/// load_channels, rotated.
VC_DEVICE Channels load_rotated(const Input& in, std::int64_t at, int token, int first) {
  Channels x = load_channels(in, at, first);
  if (in.cos == nullptr || first >= 2 * in.pairs) return x;
  const RotaryPackets r = load_rotary(in, x, at, std::int64_t{token} * in.pairs, first);
  VC_UNROLL
  for (int i = 0; i < kPacket; ++i) {
    const int channel = first + i;
    if (channel >= 2 * in.pairs) continue;
    x[i] = rotated(x[i], r.other[i], r.cos[i], r.sin[i],
                   in.interleaved ? channel % 2 == 1 : channel >= in.pairs);
  }
  return x;
}

// How a kernel reads an input: `load` starts the way of eight channels of a token to registers,
// `channels` makes floats of what has come.

/// Whole aligned rows of 16-bit channels without rotary tables: a tile of them stays 16 bits wide.
template <class Format>
struct Packed : Format {
  using Element = std::uint16_t;
  using Raw = Words;
  VC_DEVICE static Raw load(const Input& in, const std::byte* packed, std::int64_t, int token,
                            int) {
    return ptx::load_global_constant<Words>(packed + std::int64_t{token} * in.row_bytes);
  }
  VC_DEVICE static Channels channels(const Input&, const Raw& raw, int) {
    return unpack<Format>(raw);
  }
};

template <class Source>
inline constexpr bool kIsPacked = sizeof(typename Source::Element) == 2;

/// Whole aligned rows of 16-bit channels with aligned tables: nothing but loads until the rows of a
/// batch are on their way.
struct Rotated {
  using Element = float;
  struct Raw {
    Words x = {}, other = {};
    ptx::Vec<float, 4> cos[2] = {}, sin[2] = {};
  };
  VC_DEVICE static Raw load(const Input& in, const std::byte* packed, std::int64_t, int token,
                            int first) {
    Raw raw;
    const std::byte* row = packed + std::int64_t{token} * in.row_bytes;
    raw.x = ptx::load_global_constant<Words>(row);
    if (first >= 2 * in.pairs) return raw;
    const bool is_first = first < in.pairs;
    const std::int64_t table = std::int64_t{token} * in.pairs + (in.interleaved ? first / 2
                                                                 : is_first     ? first
                                                                                : first - in.pairs);
    raw.cos[0] = load_four(in.cos + table);
    raw.sin[0] = load_four(in.sin + table);
    if (!in.interleaved) {
      raw.other = ptx::load_global_constant<Words>(row + (is_first ? 2 : -2) * in.pairs);
      raw.cos[1] = load_four(in.cos + table + 4);
      raw.sin[1] = load_four(in.sin + table + 4);
    }
    return raw;
  }
  VC_DEVICE static Channels channels(const Input& in, const Raw& raw, int first) {
    const bool is_bf16 = in.view.dtype == DType::kBF16;
    Channels x = unpack(raw.x, is_bf16);
    if (first >= 2 * in.pairs) return x;
    const Channels half = unpack(raw.other, is_bf16);
    const Channels own = x;
    VC_UNROLL
    for (int i = 0; i < kPacket; ++i) {
      // Constant places, or the packets would have to lie in memory.
      const float cos = in.interleaved ? raw.cos[0][i / 2] : raw.cos[i / 4][i % 4];
      const float sin = in.interleaved ? raw.sin[0][i / 2] : raw.sin[i / 4][i % 4];
      x[i] = rotated(own[i], in.interleaved ? own[i ^ 1] : half[i], cos, sin,
                     in.interleaved ? i % 2 == 1 : first >= in.pairs);
    }
    return x;
  }

 private:
  VC_DEVICE static ptx::Vec<float, 4> load_four(const float* p) {
    return ptx::load_global_constant<ptx::Vec<float, 4>>(p);
  }
};

/// Everything else: any dtype, dimension and strides, rotated if there are tables.
struct Converted {
  using Element = float;
  using Raw = Channels;
  VC_DEVICE static Raw load(const Input& in, const std::byte*, std::int64_t at, int token,
                            int first) {
    return load_rotated(in, at, token, first);
  }
  VC_DEVICE static Channels channels(const Input&, const Raw& raw, int) { return raw; }
};

/// How kThreads threads read the rows of a tile: eight channels each, neighbouring lanes along a
/// row.
template <int kDim, int kThreads, int kTotalRows = kTileRows>
struct RowSplit {
  static constexpr int kLanes = kDim / kPacket;
  static constexpr int kBlockRows = kThreads / kLanes;   ///< read at once
  static constexpr int kRows = kTotalRows / kBlockRows;  ///< per thread
  VC_DEVICE static int first_channel() { return ptx::thread_index() % kLanes * kPacket; }
  VC_DEVICE static int row(int i) { return ptx::thread_index() / kLanes + i * kBlockRows; }
};

/// The rows of a tile in processing order.
struct TileRows {
  int batch = 0, head = 0;
  int first = 0;  ///< position of the tile's row 0
  int count = 0;  ///< rows there are, from the first; those behind are zeros. May exceed the tile
  const std::int32_t* order = nullptr;  ///< of this head: position -> token; nullptr: the same
  numerics::RowSample sample = {0, 0};  ///< positions are those in it

  /// Tokens of this thread's rows i0 .. i0 + kBatch - 1; -1: none.
  template <class Split, int kBatch>
  VC_DEVICE void tokens(int i0, int (&token)[kBatch]) const {
    VC_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const int row = Split::row(i0 + i);
      token[i] = row < count ? sample.row(first + row) : -1;
    }
    if (order == nullptr) return;
    VC_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (token[i] >= 0) token[i] = ptx::load_global_constant<std::int32_t>(order + token[i]);
    }
  }
};

/// Calls use(row, channels) for this thread's share of a tile, kBatch rows in flight at once.
template <class Split, class Source, int kBatch, class Use>
VC_DEVICE void for_each_row(const Input& in, const TileRows& rows, const Use& use) {
  const std::byte* packed = packed_rows(in, rows.batch, rows.head, Split::first_channel());
  VC_NO_UNROLL
  for (int first = 0; first < Split::kRows; first += kBatch) {
    int token[kBatch];
    rows.tokens<Split>(first, token);
    typename Source::Raw raw[kBatch];
    VC_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      raw[i] = {};
      if (token[i] < 0) continue;
      raw[i] = Source::load(in, packed, in.view.row_offset(rows.batch, rows.head, token[i]),
                            token[i], Split::first_channel());
    }
    VC_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      use(Split::row(first + i), Source::channels(in, raw[i], Split::first_channel()));
    }
  }
}

/// Visible keys of a batch entry. On the device nobody could check them: a bad one must not lead
/// out of the tensors.
VC_DEVICE int key_count(const std::int32_t* lengths, int batch, int all) {
  if (lengths == nullptr) return all;
  const auto count = ptx::load_global_constant<std::int32_t>(lengths + batch);
  return count < 0 ? 0 : count < all ? count : all;
}

}  // namespace vcattn::cuda::prepare
