#include "cli/io/synthetic.h"

#include <array>
#include <random>

#include "vcattn/numerics/bf16.h"

namespace vcattn::cli {
namespace {

constexpr unsigned kSeed = 2609;
constexpr std::int64_t kTokensPerCentre = 64;
constexpr std::int64_t kOutlierEvery = 32;
constexpr float kOutlier = 4.0F;

class Generator {
 public:
  float normal() { return distribution_(engine_); }
  std::vector<float> normals(std::int64_t count, float scale) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = scale * normal();
    return values;
  }

 private:
  std::mt19937 engine_{kSeed};
  std::normal_distribution<float> distribution_;
};

/// Rows that scatter by `spread` around centres; a new centre every `stretch` rows.
struct Field {
  float centre, spread;
  std::int64_t stretch;
  float outlier;
};

std::vector<std::uint16_t> generate(Generator& random, const std::array<std::int64_t, 3>& shape,
                                    const Field& field) {
  const auto [heads, tokens, d] = shape;
  std::vector<std::uint16_t> values;
  values.reserve(static_cast<std::size_t>(heads * tokens * d));
  for (std::int64_t h = 0; h < heads; ++h) {
    std::vector<float> centre;
    for (std::int64_t s = 0; s < tokens; ++s) {
      if (s % field.stretch == 0) centre = random.normals(d, field.centre);
      for (std::int64_t c = 0; c < d; ++c) {
        const float gain = c % kOutlierEvery == 0 ? field.outlier : 1.0F;
        const float value = centre[static_cast<std::size_t>(c)] + field.spread * random.normal();
        values.push_back(numerics::bf16_from_float(gain * value));
      }
    }
  }
  return values;
}

}  // namespace

SyntheticInputs::SyntheticInputs(std::int64_t hq, std::int64_t hkv, std::int64_t sq,
                                 std::int64_t skv, std::int64_t d) {
  Generator random;
  q_ = generate(random, {hq, sq, d},
                {.centre = 0.5F, .spread = 1.0F, .stretch = sq, .outlier = 1.0F});
  k_ = generate(random, {hkv, skv, d},
                {.centre = 2.0F, .spread = 1.0F, .stretch = skv, .outlier = kOutlier});
  v_ = generate(random, {hkv, skv, d},
                {.centre = 1.0F, .spread = 0.5F, .stretch = kTokensPerCentre, .outlier = 1.0F});
  const auto view = [&](const std::vector<std::uint16_t>& data, std::int64_t h, std::int64_t s) {
    return dense_view<const void>(data.data(), DType::kBF16, Layout::kBHSD, {1, h, s, d});
  };
  arguments_.q = view(q_, hq, sq);
  arguments_.k = view(k_, hkv, skv);
  arguments_.v = view(v_, hkv, skv);
}

}  // namespace vcattn::cli
