// The attention calls of the models this project is for: one table for `bench`, tests and docs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace vcattn::cli {

/// One call at full size: d is never scaled.
struct BenchCase {
  std::string_view name;
  std::string_view what;
  std::int64_t hq, hkv, sq, skv, d;
};

inline constexpr std::array<BenchCase, 9> kBenchCases{{
    {"wan2.2-480p", "Wan2.2 A14B self-attention, 480p", 40, 40, 32760, 32760, 128},
    {"wan2.2-720p", "Wan2.2 A14B self-attention, 720p", 40, 40, 75600, 75600, 128},
    {"wan2.2-text", "Wan2.2 A14B cross-attention to text", 40, 40, 32760, 512, 128},
    {"wan2.2-5b", "Wan2.2 5B self-attention", 24, 24, 27280, 27280, 128},
    {"longcat", "LongCat-Video self-attention", 32, 32, 37440, 37440, 128},
    {"hunyuanvideo-1.5", "HunyuanVideo-1.5, 256 text tokens joined", 16, 16, 111856, 111856, 128},
    {"minimax-h3", "MiniMax-H3, one packed sequence", 56, 56, 73397, 73397, 128},
    {"head-64", "head dimension 64", 32, 32, 32760, 32760, 64},
    {"gqa", "28 query heads on 4 KV heads", 28, 4, 32760, 32760, 128},
}};

/// Upper limits that make a case fit a machine; 0 leaves a size alone.
struct BenchScale {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;  ///< query heads, but at least those of one KV head
};

/// `full` within these limits; the number of query heads per KV head stays.
constexpr BenchCase scaled(const BenchCase& full, const BenchScale& scale) {
  const auto limit = [](std::int64_t size, std::int64_t most) {
    return most > 0 && size > most ? most : size;
  };
  BenchCase result = full;
  result.sq = limit(full.sq, scale.tokens);
  result.skv = limit(full.skv, scale.tokens);
  const std::int64_t group = full.hq / full.hkv;
  result.hkv = std::max<std::int64_t>(1, limit(full.hq, scale.heads) / group);
  result.hq = group * result.hkv;
  return result;
}

}  // namespace vcattn::cli
