// Runs every case under the emulator and compares it with a recording of the GPU.
//
//   compare FILE       every word of a full recording; the first differences are printed
//   compact FILE OUT   a full recording as the small text that is checked in
//   replay TEXT        that text (the CTest)
//   record FILE        what the emulator computes, in the format of a full recording
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "../pipeline_data.h"
#include "cases/pipeline.cuh"
#include "emu/launch.h"
#include "inputs.h"
#include "record.h"
#include "table.cuh"

namespace vcattn::crosscheck {
namespace {

// sink(name, words, largest relative difference allowed)
using Sink = std::function<void(const std::string&, const std::vector<uint32_t>&, double)>;

// Inputs start where bulk copies may read them.
struct Aligned {
  explicit Aligned(const std::vector<uint8_t>& bytes) : storage(bytes.size() + 16) {
    data = storage.data() + (16 - reinterpret_cast<uintptr_t>(storage.data()) % 16) % 16;
    std::memcpy(data, bytes.data(), bytes.size());
  }
  std::vector<uint8_t> storage;
  uint8_t* data;
};

struct RunEmulated {
  Sink sink;

  template <class Case>
  void operator()(const std::string& name) {
    for (int regime = 0; regime < kRegimes; ++regime) {
      InputMaker maker(name, regime);
      const Aligned a(maker.make(Case::kInputs[0])), b(maker.make(Case::kInputs[1])),
          c(maker.make(Case::kInputs[2]));
      std::vector<uint32_t> out(Case::kOutputWords);
      emu::Options options;
      options.grid = {blocks_of<Case>(), 1, 1};
      options.seed = static_cast<uint64_t>(regime);
      emu::launch<Case>(options, {{a.data, b.data, c.data}, out.data()});
      sink(name + "/" + std::to_string(regime), out, Case::kRelative);
    }
  }
};

void run_pipeline(const Sink& sink) {
  const PipelineData data(kPipelineBlocks, kPipelineTiles, 21);
  const Aligned q(data.q), k(data.k), v(data.v);
  std::vector<uint8_t> bytes(static_cast<size_t>(kPipelineBlocks) * 128 * 136 * 4);
  Aligned out(bytes);
  emu::Options options;
  options.grid = {kPipelineBlocks, 1, 1};
  emu::launch<Pipeline<Mistake::kNone>>(
      options, {q.data, k.data, v.data, reinterpret_cast<float*>(out.data), kPipelineTiles});
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), out.data, bytes.size());
  sink("pipeline", words, 0);
}

void run_all(const Sink& sink) {
  RunEmulated run{sink};
  visit_all(run);
  run_pipeline(sink);
}

bool agree(uint32_t gpu, uint32_t emulated, double relative) {
  if (gpu == emulated) return true;
  if (relative == 0) return false;
  const auto x = static_cast<double>(ptx::bits_as<float>(gpu));
  const auto y = static_cast<double>(ptx::bits_as<float>(emulated));
  if (std::isnan(x) && std::isnan(y)) return true;
  return std::fabs(x - y) <= relative * std::fmax(std::fabs(x), std::fabs(y));
}

// Words that differ; the first few are printed.
size_t differences(const std::string& name, const std::vector<uint32_t>& gpu,
                   const std::vector<uint32_t>& emulated, double relative) {
  if (gpu.size() != emulated.size()) {
    std::printf("%-34s %zu words recorded, %zu emulated\n", name.c_str(), gpu.size(),
                emulated.size());
    return 1;
  }
  size_t count = 0;
  for (size_t i = 0; i < gpu.size(); ++i) {
    if (agree(gpu[i], emulated[i], relative)) continue;
    if (count++ < 4) {
      std::printf("%-34s word %zu: GPU %08x (%g), emulator %08x (%g)\n", name.c_str(), i, gpu[i],
                  static_cast<double>(ptx::bits_as<float>(gpu[i])), emulated[i],
                  static_cast<double>(ptx::bits_as<float>(emulated[i])));
    }
  }
  if (count != 0) std::printf("%-34s %zu of %zu words differ\n", name.c_str(), count, gpu.size());
  return count;
}

int compare(const std::string& path) {
  const Recording gpu = load(path);
  size_t cases = 0, bad = 0;
  run_all([&](const std::string& name, const std::vector<uint32_t>& words, double relative) {
    ++cases;
    const auto it = gpu.find(name);
    if (it == gpu.end()) {
      std::printf("%-34s not recorded\n", name.c_str());
      ++bad;
    } else if (differences(name, it->second, words, relative) != 0) {
      ++bad;
    }
  });
  std::printf("%zu of %zu results agree\n", cases - bad, cases);
  return bad == 0 ? 0 : 1;
}

// Lines: name = digest; name ~ words in hexadecimal.
int compact(const std::string& path, const std::string& to) {
  const Recording gpu = load(path);
  std::ofstream out(to);
  run_all([&](const std::string& name, const std::vector<uint32_t>&, double relative) {
    const auto& words = gpu.at(name);
    out << name << (relative == 0 ? " =" : " ~") << std::hex;
    if (relative == 0) {
      out << ' ' << digest(words);
    } else {
      for (size_t i = 0; i < words.size(); i += 16) out << ' ' << words[i];  // every 16th
    }
    out << std::dec << '\n';
  });
  return out ? 0 : 1;
}

int replay(const std::string& path) {
  std::map<std::string, std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    lines[line.substr(0, line.find(' '))] = line;
  }
  size_t cases = 0, bad = 0;
  run_all([&](const std::string& name, const std::vector<uint32_t>& words, double relative) {
    ++cases;
    std::istringstream line(lines[name]);
    std::string skip, kind;
    line >> skip >> kind >> std::hex;
    bool good = false;
    if (relative == 0) {
      uint64_t recorded = 0;
      good = kind == "=" && (line >> recorded) && recorded == digest(words);
    } else {
      good = kind == "~";
      for (size_t i = 0; i < words.size() && good; i += 16) {
        uint32_t recorded = 0;
        good = static_cast<bool>(line >> recorded) && agree(recorded, words[i], relative);
      }
    }
    if (!good) std::printf("%-34s differs from the recording\n", name.c_str()), ++bad;
  });
  std::printf("%zu of %zu results agree\n", cases - bad, cases);
  return bad == 0 ? 0 : 1;
}

int record(const std::string& path) {
  Recording recording;
  run_all([&](const std::string& name, const std::vector<uint32_t>& words, double) {
    recording[name] = words;
  });
  save(recording, path);
  return 0;
}

}  // namespace
}  // namespace vcattn::crosscheck

int main(int argc, char** argv) {
  using namespace vcattn::crosscheck;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "compare" && argc == 3) return compare(argv[2]);
  if (mode == "compact" && argc == 4) return compact(argv[2], argv[3]);
  if (mode == "replay" && argc == 3) return replay(argv[2]);
  if (mode == "record" && argc == 3) return record(argv[2]);
  std::fprintf(stderr, "usage: %s compare|record FILE | compact FILE OUT | replay TEXT\n", argv[0]);
  return 2;
}
