// The exact float32 path against a BLAS-based computation of the same thing: OpenBLAS sgemm for the
// scores, a vectorised softmax over the stored score matrix, sgemm for the output. Runs alternate;
// medians and their ratio are printed as JSON.
//
//   bench_exact_vs_blas INPUT.safetensors [REPEATS]
#include <cblas.h>
#include <fmt/format.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/element.h"
#include "core/metrics.h"
#include "io/safetensors.h"
#include "vcattn/attention.h"
#include "vcattn/error.h"

namespace {

namespace hn = hwy::HWY_NAMESPACE;
using vcattn::TensorView;

struct Problem {
  std::int64_t heads, tokens, dim;
  std::vector<float> q, k, v;
};

std::vector<float> load(const vcattn::io::SafetensorsFile& file, const char* name,
                        Problem& problem) {
  const auto& entry = file.at(name);
  problem.heads = entry.shape.at(1);
  problem.tokens = entry.shape.at(2);
  problem.dim = entry.shape.at(3);
  const TensorView view =
      vcattn::dense_view(static_cast<const void*>(entry.bytes.data()), vcattn::DType::kBF16,
                         vcattn::Layout::kBHSD, {1, problem.heads, problem.tokens, problem.dim});
  std::vector<float> values(entry.bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = vcattn::load_element(view, static_cast<std::int64_t>(i));
  }
  return values;
}

void softmax_row(float* row, std::int64_t n) {
  const hn::ScalableTag<float> tag;
  const auto step = static_cast<std::int64_t>(hn::Lanes(tag));
  const float max = *std::max_element(row, row + n);
  auto sum = hn::Zero(tag);
  for (std::int64_t j = 0; j < n; j += step) {
    const auto p = hn::Exp(tag, hn::Sub(hn::LoadU(tag, row + j), hn::Set(tag, max)));
    hn::StoreU(p, tag, row + j);
    sum = hn::Add(sum, p);
  }
  const auto inverse = hn::Set(tag, 1.0F / hn::GetLane(hn::SumOfLanes(tag, sum)));
  for (std::int64_t j = 0; j < n; j += step) {
    hn::StoreU(hn::Mul(hn::LoadU(tag, row + j), inverse), tag, row + j);
  }
}

void blas_attention(const Problem& p, std::vector<float>& scores, std::vector<float>& out) {
  const auto s = static_cast<int>(p.tokens), d = static_cast<int>(p.dim);
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  for (std::int64_t h = 0; h < p.heads; ++h) {
    const std::int64_t at = h * p.tokens * p.dim;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s, s, d, scale, p.q.data() + at, d,
                p.k.data() + at, d, 0.0F, scores.data(), s);
    oneapi::tbb::parallel_for(std::int64_t{0}, p.tokens, [&](std::int64_t i) {
      softmax_row(scores.data() + i * p.tokens, p.tokens);
    });
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, s, d, s, 1.0F, scores.data(), s,
                p.v.data() + at, d, 0.0F, out.data() + at, d);
  }
}

template <class F>
double milliseconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

int run(const char* path, int repeats) {
  const auto file = vcattn::io::SafetensorsFile::open(path);
  Problem p{};
  p.q = load(file, "q", p);
  p.k = load(file, "k", p);
  p.v = load(file, "v", p);
  std::vector<float> ours(p.q.size()), theirs(p.q.size());
  std::vector<float> scores(static_cast<std::size_t>(p.tokens * p.tokens));

  const std::array<std::int64_t, 4> shape{1, p.heads, p.tokens, p.dim};
  const auto view = [&](const std::vector<float>& x) {
    return vcattn::dense_view(static_cast<const void*>(x.data()), vcattn::DType::kF32,
                              vcattn::Layout::kBHSD, shape);
  };
  vcattn::Arguments arguments;
  arguments.q = view(p.q);
  arguments.k = view(p.k);
  arguments.v = view(p.v);
  arguments.out = vcattn::dense_view(static_cast<void*>(ours.data()), vcattn::DType::kF32,
                                     vcattn::Layout::kBHSD, shape);
  const vcattn::Plan plan = vcattn::make_plan(arguments, {.recipe = vcattn::recipe("exact")});

  std::vector<double> our_times, their_times;
  for (int i = 0; i <= repeats; ++i) {
    const double blas = milliseconds([&] { blas_attention(p, scores, theirs); });
    const double exact = milliseconds([&] { plan.run(); });
    if (i == 0) continue;  // warm-up
    their_times.push_back(blas);
    our_times.push_back(exact);
  }
  const vcattn::Reference reference = vcattn::reference_attention(arguments);
  const nlohmann::json result{
      {"benchmark", "exact_vs_blas"},
      {"shape", {{"b", 1}, {"h", p.heads}, {"s", p.tokens}, {"d", p.dim}}},
      {"kernel", plan.kernel()},
      {"blas", openblas_get_config()},
      {"threads", openblas_get_num_threads()},
      {"repeats", repeats},
      {"exact_ms", median(our_times)},
      {"blas_ms", median(their_times)},
      {"ratio", median(our_times) / median(their_times)},
      {"exact_rel_l2", vcattn::measure(view(ours), nullptr, reference).rel_l2},
      {"blas_rel_l2", vcattn::measure(view(theirs), nullptr, reference).rel_l2},
  };
  fmt::print("{}\n", result.dump(2));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2)
      throw vcattn::Error(vcattn::ErrorCode::kInvalidArgument, "usage",
                          "bench_exact_vs_blas INPUT.safetensors [REPEATS]");
    return run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 7);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
