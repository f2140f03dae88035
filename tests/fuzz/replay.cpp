// Runs a fuzz target without libFuzzer: every file of a corpus, then mutations of them that are the
// same on every machine. Usage: <target> MUTATIONS CORPUS_FOLDER
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/portable_random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

std::vector<Bytes> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry);
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return corpus;
}

/// The n-th mutation: a few bytes changed, a stretch removed or repeated.
Bytes mutate(Bytes bytes, std::uint32_t n) {
  std::uint32_t state = n;
  const auto next = [&](std::size_t limit) {
    state = vcattn::test::portable_hash(state + 0x9E3779B9U);
    return limit == 0 ? 0U : state % limit;
  };
  const auto edits = 1 + next(8);
  for (std::uint32_t i = 0; i < edits && !bytes.empty(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(next(bytes.size()));
    const auto length =
        static_cast<std::ptrdiff_t>(1 + next(std::min<std::size_t>(bytes.size() - at, 16)));
    switch (next(4)) {
      case 0:
        bytes.erase(bytes.begin() + at, bytes.begin() + at + length);
        break;
      case 1: {
        const Bytes piece(bytes.begin() + at, bytes.begin() + at + length);
        bytes.insert(bytes.begin() + at, piece.begin(), piece.end());
        break;
      }
      default:
        bytes[at] = static_cast<std::uint8_t>(next(256));
    }
  }
  return bytes;
}

void run(const Bytes& bytes) {
  // An allocation of its own size, so that a sanitizer sees reads beyond the end.
  const Bytes exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: target MUTATIONS CORPUS_FOLDER\n", stderr);
    return 2;
  }
  const std::vector<Bytes> corpus = read_corpus(argv[2]);
  if (corpus.empty()) {
    std::fputs("the corpus is empty\n", stderr);
    return 1;
  }
  const auto mutations = static_cast<std::uint32_t>(std::strtoul(argv[1], nullptr, 10));
  for (const Bytes& bytes : corpus) run(bytes);
  for (std::uint32_t n = 0; n < mutations; ++n) run(mutate(corpus[n % corpus.size()], n));
  std::printf("%zu files and %u mutations\n", corpus.size(), mutations);
  return 0;
}
