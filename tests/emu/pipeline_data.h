// Inputs of the pipeline kernel and its result in plain integers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "emu/random.h"
#include "vcattn/numerics/e4m3.h"

namespace vcattn::crosscheck {

class PipelineData {
 public:
  PipelineData(int blocks, int tiles, uint64_t seed)
      : blocks_(blocks),
        tiles_(tiles),
        q(size(blocks)),
        k(size(tiles)),
        v(size(tiles)),
        random_(seed) {
    queries_.resize(q.size());
    keys_.resize(k.size());
    values_.resize(v.size());
    for (auto& x : queries_) x = between(-127, 127);
    for (auto& x : keys_) x = between(-127, 127);
    for (auto& x : values_) x = between(-4, 4);
    for (int r = 0; r < blocks * 128; ++r) {
      for (int c = 0; c < 128; ++c) q[place(r, c)] = static_cast<uint8_t>(queries_[at(r, c)]);
    }
    for (int r = 0; r < tiles * 128; ++r) {
      for (int c = 0; c < 128; ++c) k[place(r, c)] = static_cast<uint8_t>(keys_[at(r, c)]);
    }
    for (int tile = 0; tile < tiles; ++tile) {
      for (int channel = 0; channel < 128; ++channel) {
        for (int slot = 0; slot < 128; ++slot) {
          const int value = values_[at(tile * 128 + token_of(slot), channel)];
          v[place(tile * 128 + channel, slot)] = numerics::e4m3_encode(static_cast<float>(value));
        }
      }
    }
  }

  // 128 rows of 136 per block.
  std::vector<float> expected() const {
    std::vector<float> out(static_cast<size_t>(blocks_) * 128 * 136);
    for (int r = 0; r < blocks_ * 128; ++r) {
      std::vector<int> sum(136, 0);
      for (int tile = 0; tile < tiles_; ++tile) add_tile(r, tile, sum);
      for (int c = 0; c < 136; ++c)
        out[static_cast<size_t>(r * 136 + c)] = static_cast<float>(sum[static_cast<size_t>(c)]);
    }
    return out;
  }

 private:
  static size_t size(int n) { return static_cast<size_t>(n) * 128 * 128; }
  static size_t at(int r, int c) { return static_cast<size_t>(r) * 128 + static_cast<size_t>(c); }
  // Rows of 128 bytes whose 16-byte chunks are XORed with the row number.
  static size_t place(int r, int c) { return at(r, (c / 16 ^ r % 8) * 16 + c % 16); }
  // Slot 16h + 4t + e of a group of 32 holds token 16h + 8 floor(e / 2) + 2t + e mod 2.
  static int token_of(int slot) {
    const int t = slot % 16 / 4, e = slot % 4;
    return slot / 16 * 16 + e / 2 * 8 + 2 * t + e % 2;
  }
  int between(int low, int high) {
    return low + static_cast<int>(random_.below(static_cast<uint64_t>(high - low + 1)));
  }

  void add_tile(int r, int tile, std::vector<int>& sum) const {
    std::vector<int> scores(128, 0);
    for (int j = 0; j < 128; ++j) {
      for (int c = 0; c < 128; ++c)
        scores[static_cast<size_t>(j)] += queries_[at(r, c)] * keys_[at(tile * 128 + j, c)];
    }
    for (int& x : scores) x >>= 8;
    const int m = *std::max_element(scores.begin(), scores.end());
    for (int j = 0; j < 128; ++j) {
      const int y = std::max(scores[static_cast<size_t>(j)] - m + 64, 0);
      const int weight = y == 64 ? 2 : (y & 32) != 0 ? 1 : 0;
      for (int c = 0; c < 128; ++c)
        sum[static_cast<size_t>(c)] += weight * values_[at(tile * 128 + j, c)];
      for (int c = 128; c < 136; ++c) sum[static_cast<size_t>(c)] += weight;
    }
  }

  int blocks_, tiles_;

 public:
  std::vector<uint8_t> q, k, v;

 private:
  std::vector<int> queries_, keys_, values_;
  emu::Random random_;
};

}  // namespace vcattn::crosscheck
