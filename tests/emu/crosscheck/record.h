// Recordings: the output words of each case, by name. A full recording holds them all; a compact
// one, which is checked in, holds a digest where bits must be equal and the words where they are
// only bounded.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace vcattn::crosscheck {

using Recording = std::map<std::string, std::vector<uint32_t>>;

inline uint64_t digest(const std::vector<uint32_t>& words) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const uint32_t w : words) h = (h ^ w) * 0x100000001B3u, h ^= h >> 29;
  return h;
}

inline void save(const Recording& recording, const std::string& path) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  if (f == nullptr) throw std::runtime_error("cannot write " + path);
  for (const auto& [name, words] : recording) {
    std::fprintf(f, "%s %zu\n", name.c_str(), words.size());
    std::fwrite(words.data(), 4, words.size(), f);
    std::fputc('\n', f);
  }
  if (std::fclose(f) != 0) throw std::runtime_error("cannot write " + path);
}

inline Recording load(const std::string& path) {
  std::FILE* f = std::fopen(path.c_str(), "rb");
  if (f == nullptr) throw std::runtime_error("cannot read " + path);
  Recording recording;
  char name[128];
  size_t count = 0;
  while (std::fscanf(f, "%127s %zu", name, &count) == 2) {
    std::vector<uint32_t> words(count);
    if (std::fgetc(f) != '\n' || std::fread(words.data(), 4, count, f) != count) {
      std::fclose(f);
      throw std::runtime_error("damaged recording " + path);
    }
    recording[name] = std::move(words);
  }
  std::fclose(f);
  return recording;
}

}  // namespace vcattn::crosscheck
