#include "cuda/sm90/launch.h"

#include <array>
#include <utility>

#include "cuda/sm90/config.h"

namespace vcattn::cuda::sm90 {
namespace {

template <int... kIds>
constexpr auto launchers(std::integer_sequence<int, kIds...>) {
  return std::array<LaunchAttention, sizeof...(kIds)>{&launch_attention<kIds>...};
}

}  // namespace

LaunchAttention attention_launcher(int variant) {
  static constexpr auto kLaunchers = launchers(std::make_integer_sequence<int, kVariantCount>{});
  return kLaunchers.at(static_cast<std::size_t>(variant));
}

}  // namespace vcattn::cuda::sm90
