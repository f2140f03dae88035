#include "cli/measure/value_energy.h"

#include <algorithm>
#include <numeric>

#include "core/element.h"
#include "core/visibility.h"
#include "vcattn/numerics/v_smooth.h"

namespace vcattn::cli {
namespace {

struct Head {
  const TensorView& v;
  const Entry& entry;
  std::int64_t head;
};

double share_in_means(const Head& at, const std::vector<std::int32_t>& order) {
  const std::int64_t d = at.v.dim();
  const auto count = static_cast<std::int64_t>(order.size());
  numerics::EnergySplit total;
  std::vector<float> block;
  for (std::int64_t first = 0; first < count; first += numerics::kValueBlockRows) {
    const auto rows =
        static_cast<int>(std::min<std::int64_t>(numerics::kValueBlockRows, count - first));
    block.clear();
    for (std::int64_t i = first; i < first + rows; ++i) {
      const std::int64_t key = at.entry.k_begin + order[static_cast<std::size_t>(i)];
      for (std::int64_t c = 0; c < d; ++c) {
        block.push_back(load_element(at.v, at.v.offset(at.entry.batch, at.head, key, c)));
      }
    }
    for (std::int64_t c = 0; c < d; ++c) {
      const float mu = numerics::bf16_to_float(numerics::block_mean(block.data() + c, rows, d));
      const numerics::EnergySplit split = numerics::energy_split(block.data() + c, rows, d, mu);
      total.total += split.total;
      total.residual += split.residual;
    }
  }
  return numerics::energy_removed(total);
}

}  // namespace

std::vector<HeadEnergy> value_energy(const Arguments& arguments,
                                     const VSmoothState::Grouping& grouping) {
  std::vector<HeadEnergy> result;
  const std::vector<Entry> all = entries(arguments);
  for (std::size_t e = 0; e < all.size(); ++e) {
    for (std::int64_t head = 0; head < arguments.v.heads(); ++head) {
      const std::vector<std::int32_t> order =
          grouping.permutation(static_cast<std::int64_t>(e), head);
      std::vector<std::int32_t> sequence = order;
      std::sort(sequence.begin(), sequence.end());
      const Head at{arguments.v, all[e], head};
      result.push_back({.batch = all[e].batch,
                        .head = head,
                        .sequence = share_in_means(at, sequence),
                        .clustered = share_in_means(at, order)});
    }
  }
  return result;
}

}  // namespace vcattn::cli
