// The Hopper attention kernel under the emulator, against its definition in double precision:
// ragged tails, odd numbers of query tiles, grouped heads, key lengths, log-sum-exp, one and
// several groups of means, several schedules.
//
// Operands are made here in the kernel's own formats (src/cuda/sm90/layout.h), so this tests the
// kernel alone.
#include <cmath>

#include "cuda/sm90/kernel.cuh"
#include "emu/matrix_math.h"
#include "support.h"

namespace vcattn::emu::test {
namespace {

namespace sm90 = cuda::sm90;

struct Shape {
  int batches, q_heads, kv_heads, sq, skv;
  std::vector<int32_t> key_lengths;  // empty: all
};

// Bulk copies need their source at a multiple of 16 bytes.
template <class T>
struct alignas(16) Chunk {
  T v[16 / sizeof(T)];
};
template <class T>
class AlignedArray {
 public:
  explicit AlignedArray(size_t n) : chunks_((n * sizeof(T) + 15) / 16), size_(n) {}
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* data() { return &chunks_[0].v[0]; }
  const T* data() const { return &chunks_[0].v[0]; }
  size_t size() const { return size_; }

 private:
  std::vector<Chunk<T>> chunks_;
  size_t size_;
};

template <int kId>
class Attention {
 public:
  using C = sm90::Config<kId>;
  static constexpr int kDim = C::kDim;
  static constexpr int kTileBytes = 128 * kDim;

  Attention(const Shape& shape, uint64_t seed)
      : s_(shape),
        q_tiles_((shape.sq + 127) / 128),
        k_tiles_((shape.skv + 127) / 128),
        groups_((k_tiles_ + 7) / 8),
        q_heads_(static_cast<size_t>(shape.batches * shape.q_heads)),
        kv_heads_(static_cast<size_t>(shape.batches * shape.kv_heads)),
        q_(q_heads_ * static_cast<size_t>(q_tiles_ * kTileBytes)),
        k_(kv_heads_ * static_cast<size_t>(k_tiles_ * kTileBytes)),
        v_(kv_heads_ * static_cast<size_t>(k_tiles_ * kTileBytes)),
        row_scale_(q_heads_ * static_cast<size_t>(q_tiles_ * 128 * 2)),
        means_(kv_heads_ * static_cast<size_t>(groups_ * 8 * kDim)),
        value_scale_(kv_heads_ * kDim),
        ones_(static_cast<size_t>(shape.batches * sm90::kOnesBytes)),
        out_(q_heads_ * static_cast<size_t>(shape.sq * kDim)),
        lse_(q_heads_ * static_cast<size_t>(shape.sq)),
        random_(seed) {
    make_inputs();
  }

  void run(uint64_t seed) {
    sm90::AttentionParams p;
    p.q = q_.data(), p.k = k_.data(), p.v = v_.data();
    p.row_scale = row_scale_.data(), p.means = means_.data(), p.value_scale = value_scale_.data();
    p.ones = ones_.data();
    p.key_lengths = s_.key_lengths.empty() ? nullptr : s_.key_lengths.data();
    p.q_heads = s_.q_heads, p.group = s_.q_heads / s_.kv_heads;
    p.sq = s_.sq, p.skv = s_.skv;
    p.q_tiles = q_tiles_, p.k_tiles = k_tiles_, p.mean_groups = groups_;
    p.out.data = out_.data(), p.out.dtype = DType::kF32;
    p.out.heads = s_.q_heads, p.out.tokens = s_.sq, p.out.dim = kDim;
    const int64_t strides[4] = {int64_t{s_.q_heads} * s_.sq * kDim, int64_t{s_.sq} * kDim, kDim, 1};
    std::copy(strides, strides + 4, p.out.stride);
    p.lse = lse_.data();
    p.lse_stride[0] = int64_t{s_.q_heads} * s_.sq, p.lse_stride[1] = s_.sq, p.lse_stride[2] = 1;
    GlobalMemory memory;
    memory.add_input("q", q_);
    memory.add_input("k", k_);
    memory.add_input("v", v_);
    memory.add_input("row_scale", row_scale_);
    memory.add_input("means", means_);
    memory.add_input("value_scale", value_scale_);
    memory.add_input("ones", ones_);
    memory.add_input("key_lengths", s_.key_lengths);
    memory.add_output("out", out_);
    memory.add_output("lse", lse_);
    test::run<sm90::AttentionKernel<kId>>(p, seed, &memory,
                                          {sm90::grid_tiles(p), s_.q_heads, s_.batches});
    ASSERT_EQ(memory.unwritten_bytes("out"), 0u);
    ASSERT_EQ(memory.unwritten_bytes("lse"), 0u);
  }

  // Rows against their definition; what is left is the FP32 arithmetic of the promotion.
  void check() const {
    double worst = 0;
    for (int b = 0; b < s_.batches; ++b) {
      for (int h = 0; h < s_.q_heads; ++h) {
        for (int row = 0; row < s_.sq; row += 1 + row % 7)
          worst = std::max(worst, check_row(b, h, row));
      }
    }
    EXPECT_LT(worst, 3e-5);
  }

 private:
  int visible(int b) const {
    return s_.key_lengths.empty() ? s_.skv : s_.key_lengths[static_cast<size_t>(b)];
  }
  uint8_t score_code() {
    if constexpr (C::kInt8Scores) return static_cast<uint8_t>(between(-100, 100));
    return e4m3_from_double(between(-100, 100) / 64.0);
  }
  int between(int low, int high) {
    return low + static_cast<int>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }

  void make_inputs() {
    for (size_t i = 0; i < q_.size(); ++i) q_[i] = score_code();
    for (size_t i = 0; i < row_scale_.size(); i += 2) {  // a row of scores spans a few nats
      const float wanted = 0.125f + static_cast<float>(between(0, 999)) / 4000;
      row_scale_[i] = C::kInt8Scores ? numerics::window_multiplier(wanted) : 1.0f;
      row_scale_[i + 1] = numerics::score_window(row_scale_[i]).top;
    }
    for (size_t head = 0; head < kv_heads_; ++head)
      make_head(head, static_cast<int>(head) / s_.kv_heads);
    for (size_t i = 0; i < value_scale_.size(); ++i)
      value_scale_[i] = static_cast<float>(between(1, 64)) / 32;
    for (int b = 0; b < s_.batches; ++b) {
      const int keys = visible(b), last = (keys + 127) / 128 - 1;
      for (int row = 0; row < 8; ++row) {
        for (int token = 0; token < 128; ++token) {
          ones_[static_cast<size_t>(b * sm90::kOnesBytes + sm90::ones_offset(row, token))] =
              last * 128 + token < keys ? sm90::kE4m3One : uint8_t{0};
        }
      }
    }
  }

  // Padding keys: zero codes and zero values.
  void make_head(size_t head, int b) {
    const int keys = visible(b);
    for (int token = 0; token < k_tiles_ * 128; ++token) {
      for (int c = 0; c < kDim; ++c) {
        k_[k_at(head, token, c)] = token < keys ? score_code() : uint8_t{0};
        v_[v_at(head, token, c)] =
            token < keys ? e4m3_from_double(between(-448, 448) / 2.0) : uint8_t{0};
      }
    }
    for (int tile = 0; tile < groups_ * 8; ++tile) {
      for (int c = 0; c < kDim; ++c)
        means_[mean_at(head, tile, c)] = static_cast<float>(between(-256, 256)) / 2;
    }
  }

  size_t k_at(size_t head, int token, int c) const {
    return (head * static_cast<size_t>(k_tiles_) + static_cast<size_t>(token / 128)) * kTileBytes +
           static_cast<size_t>(sm90::score_operand_offset<kDim>(token % 128, c));
  }
  size_t v_at(size_t head, int token, int c) const {
    return (head * static_cast<size_t>(k_tiles_) + static_cast<size_t>(token / 128)) * kTileBytes +
           static_cast<size_t>(sm90::value_offset(c, token % 128));
  }
  size_t q_at(size_t head, int row, int c) const {
    return (head * static_cast<size_t>(q_tiles_) + static_cast<size_t>(row / 128)) * kTileBytes +
           static_cast<size_t>(sm90::score_operand_offset<kDim>(row % 128, c));
  }
  size_t mean_at(size_t head, int tile, int c) const {
    return (head * static_cast<size_t>(groups_) + static_cast<size_t>(tile / 8)) * 8 * kDim +
           static_cast<size_t>(sm90::mean_offset(c, tile % 8));
  }

  // Codes of a tile and the octaves they are scaled by.
  struct Tile {
    uint8_t code[128];
    double octaves;
  };

  float window_score(size_t q_head, size_t kv_head, int row, int token) const {
    int32_t sum = 0;
    for (int c = 0; c < kDim; ++c) {
      sum += static_cast<int8_t>(q_[q_at(q_head, row, c)]) *
             static_cast<int8_t>(k_[k_at(kv_head, token, c)]);
    }
    return static_cast<float>(numerics::window_score(sum));
  }

  Tile int8_tile(size_t q_head, size_t kv_head, int row, int tile, float multiplier) const {
    const numerics::ScoreWindow window = numerics::score_window(multiplier);
    float x[128], m = 0;
    for (int j = 0; j < 128; ++j) {
      x[j] = window_score(q_head, kv_head, row, tile * 128 + j);
      m = std::max(m, x[j]);
    }
    Tile out;
    for (int j = 0; j < 128; ++j) out.code[j] = numerics::window_code(window, x[j], m);
    out.octaves = static_cast<double>(m - window.top) * static_cast<double>(multiplier) / 8;
    return out;
  }

  // Exact exponentials of a window's scores; float32 where the kernel's rounding decides a code.
  Tile exp_tile(size_t q_head, size_t kv_head, int row, int tile, float multiplier) const {
    const float slope = numerics::mul_rn(multiplier, numerics::kOctavesPerCode);
    float x[128], m = 0;
    for (int j = 0; j < 128; ++j) {
      x[j] = window_score(q_head, kv_head, row, tile * 128 + j);
      m = std::max(m, x[j]);
    }
    const float below = numerics::fma_rn(m, slope, -8.0f);
    Tile out;
    for (int j = 0; j < 128; ++j) {
      const auto octaves = static_cast<double>(numerics::fma_rn(x[j], slope, -below));
      const auto weight = static_cast<float>(std::exp2(octaves));
      out.code[j] = e4m3_from_double(static_cast<double>(weight));
    }
    out.octaves = static_cast<double>(below);
    return out;
  }

  // E4M3 codes are relative to the largest score of the row so far, which `largest` carries.
  Tile e4m3_tile(size_t q_head, size_t kv_head, int row, int tile, float& largest) const {
    float s[128];
    for (int j = 0; j < 128; ++j) {
      uint32_t sum = 0;  // binary16, one step of 32 channels after the other
      for (int step = 0; step < kDim / 32; ++step) {
        uint8_t a[32], b[32];
        for (int c = 0; c < 32; ++c) {
          a[c] = q_[q_at(q_head, row, step * 32 + c)];
          b[c] = k_[k_at(kv_head, tile * 128 + j, step * 32 + c)];
        }
        multiply(Element::kE4M3, Accumulate::kF16, a, 1, b, 1, &sum, step != 0);
      }
      s[j] = static_cast<float>(double_from_f16(static_cast<uint16_t>(sum)));
      largest = std::max(largest, s[j]);
    }
    const float offset = numerics::score_half_offset(largest);
    Tile out;
    for (int j = 0; j < 128; ++j) out.code[j] = numerics::score_half_code(s[j], offset);
    out.octaves = -16 * static_cast<double>(offset);
    return out;
  }

  // What the matrix unit has added up of a row, with the FP8 accumulator's own rounding
  // (emu/matrix_math.h, which the cross-check compares with the chip); what is done with it is
  // exact here.
  struct Product {
    std::vector<uint32_t> bits = std::vector<uint32_t>(kDim + 1);  // channels, and the row sum
    double octaves = 0;
    double sum_before = 0;  // the row sum without the last tile
    double value(int c) const {
      return static_cast<double>(ptx::bits_as<float>(bits[static_cast<size_t>(c)]));
    }
    // In float32, as the matrix unit goes on from what this leaves.
    void make_relative_to(double reference) {
      const auto factor = static_cast<double>(static_cast<float>(std::exp2(octaves - reference)));
      for (int c = 0; c <= kDim; ++c) {
        bits[static_cast<size_t>(c)] =
            ptx::bits_as<uint32_t>(static_cast<float>(value(c) * factor));
      }
      sum_before *= factor;
      octaves = reference;
    }
  };

  static constexpr int kTilesPerProduct = C::kInt8Scores ? 1 : C::kPromotedTiles;

  void add_tile(const Tile& t, size_t kv_head, int tile, int keys, Product& product,
                std::vector<double>& sum, double& weights) const {
    const bool anew = tile % kTilesPerProduct == 0;
    if (anew) {
      product.octaves = t.octaves;
      product.sum_before = 0;
    } else if (product.octaves != t.octaves) {
      product.make_relative_to(t.octaves);
    }
    for (int step = 0; step < 4; ++step) {
      std::vector<uint8_t> values((kDim + 1) * 32);
      for (int i = 0; i < 32; ++i) {
        const int token = tile * 128 + step * 32 + i;
        for (int c = 0; c < kDim; ++c)
          values[static_cast<size_t>(c * 32 + i)] = v_[v_at(kv_head, token, c)];
        values[static_cast<size_t>(kDim * 32 + i)] = token < keys ? sm90::kE4m3One : uint8_t{0};
      }
      multiply(Element::kE4M3, Accumulate::kF32, t.code + 32 * step, 1, values.data(), kDim + 1,
               product.bits.data(), !anew || step != 0);
    }
    const double factor = std::exp2(t.octaves);
    // The row sum of a tile, which multiplies its mean, is rounded to tf32.
    const float r = numerics::mul_rn(static_cast<float>(product.value(kDim) - product.sum_before),
                                     static_cast<float>(factor));
    product.sum_before = product.value(kDim);
    const uint32_t bits = ptx::bits_as<uint32_t>(r) + 0x1000;
    const auto r_tf32 = static_cast<double>(ptx::bits_as<float>(bits & ~0x1FFFu));
    const bool promoted = (tile + 1) % kTilesPerProduct == 0 || (tile + 1) * 128 >= keys;
    if (promoted) weights += product.value(kDim) * factor;
    for (int c = 0; c < kDim; ++c) {
      sum[static_cast<size_t>(c)] +=
          (promoted ? product.value(c) * factor : 0.0) +
          r_tf32 * static_cast<double>(means_[mean_at(kv_head, tile, c)]);
    }
  }

  // Relative distance of a row from its definition.
  double check_row(int b, int h, int row) const {
    const auto q_head = static_cast<size_t>(b * s_.q_heads + h);
    const auto kv_head = static_cast<size_t>(b * s_.kv_heads + h / (s_.q_heads / s_.kv_heads));
    const float multiplier =
        row_scale_[(q_head * static_cast<size_t>(q_tiles_ * 128) + static_cast<size_t>(row)) * 2];
    const int keys = visible(b);
    std::vector<double> sum(kDim, 0.0);
    double weights = 0;
    Product product;
    float largest = 0;
    for (int tile = 0; tile * 128 < keys; ++tile) {
      Tile t;
      if constexpr (!C::kInt8Scores) {
        t = e4m3_tile(q_head, kv_head, row, tile, largest);
      } else if constexpr (C::kExpCast) {
        t = int8_tile(q_head, kv_head, row, tile, multiplier);
      } else {
        t = exp_tile(q_head, kv_head, row, tile, multiplier);
      }
      add_tile(t, kv_head, tile, keys, product, sum, weights);
    }
    const size_t at = q_head * static_cast<size_t>(s_.sq) + static_cast<size_t>(row);
    if (keys == 0) {
      EXPECT_TRUE(std::isinf(lse_[at]) && lse_[at] < 0);
      for (int c = 0; c < kDim; ++c) EXPECT_EQ(out_[at * kDim + static_cast<size_t>(c)], 0.0f);
      return 0;
    }
    // INT8 scores are rounded down: half a unit is given back.
    const double half_unit =
        C::kInt8Scores ? static_cast<double>(0.5f * multiplier / numerics::kCodesPerNat) : 0.0;
    const double lse =
        std::log(weights) + half_unit -
        (C::kExpCast ? static_cast<double>(numerics::exp_cast_log_scale({0.0f, 0.0f})) : 0.0);
    EXPECT_NEAR(static_cast<double>(lse_[at]), lse, 1e-5);
    double error = 0, norm = 0;
    for (int c = 0; c < kDim; ++c) {
      const double scale =
          static_cast<double>(value_scale_[kv_head * kDim + static_cast<size_t>(c)]);
      const double expected = sum[static_cast<size_t>(c)] / weights * scale;
      const double got = static_cast<double>(out_[at * kDim + static_cast<size_t>(c)]);
      error += (got - expected) * (got - expected);
      norm += expected * expected;
    }
    return std::sqrt(error / norm);
  }

  Shape s_;
  int q_tiles_, k_tiles_, groups_;
  size_t q_heads_, kv_heads_;
  AlignedArray<uint8_t> q_, k_, v_;
  AlignedArray<float> row_scale_, means_, value_scale_;
  AlignedArray<uint8_t> ones_;
  AlignedArray<float> out_, lse_;
  Random random_;
};

template <int kId>
void check_shape(const Shape& shape, uint64_t seeds = 1) {
  Attention<kId> attention(shape, 5);
  for (uint64_t seed = 0; seed < seed_count(seeds); ++seed) {
    attention.run(seed);
    attention.check();
  }
}

template <class Id>
class HopperAttention : public ::testing::Test {};
template <int kId>
struct VariantId {
  static constexpr int kValue = kId;
};
using Variants = ::testing::Types<VariantId<0>, VariantId<1>, VariantId<2>, VariantId<3>,
                                  VariantId<4>, VariantId<5>>;
static_assert(sm90::kVariantCount == 6, "every variant of the table is tested");
struct VariantNames {
  template <class Id>
  static std::string GetName(int) {
    std::string name = sm90::kVariants[Id::kValue].name;
    for (char& c : name) c = c == '/' || c == '-' ? '_' : c;
    return name;
  }
};
TYPED_TEST_SUITE(HopperAttention, Variants, VariantNames);

TYPED_TEST(HopperAttention, OneTile) { check_shape<TypeParam::kValue>({1, 1, 1, 128, 128, {}}, 4); }
TYPED_TEST(HopperAttention, RaggedTails) {
  check_shape<TypeParam::kValue>({1, 1, 1, 37, 300, {}}, 4);
}
TYPED_TEST(HopperAttention, HalfOfTheLastClusterIsEmpty) {
  check_shape<TypeParam::kValue>({1, 1, 1, 300, 400, {}}, 2);
}
TYPED_TEST(HopperAttention, SeveralGroupsOfMeans) {
  check_shape<TypeParam::kValue>({1, 1, 1, 128, 2300, {}});
}
TYPED_TEST(HopperAttention, EndsOnAGroup) {
  check_shape<TypeParam::kValue>({1, 1, 1, 70, 1024, {}});
}
TYPED_TEST(HopperAttention, StartsAGroup) {
  check_shape<TypeParam::kValue>({1, 1, 1, 70, 1030, {}});
}
TYPED_TEST(HopperAttention, GroupedHeadsAndKeyLengths) {
  check_shape<TypeParam::kValue>({3, 4, 2, 150, 270, {270, 0, 129}});
}

}  // namespace
}  // namespace vcattn::emu::test
