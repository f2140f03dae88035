// Every case of the cross-check, in the order of the recording.
#pragma once

#include <string>

#include "cases/cluster_case.cuh"
#include "cases/scalar_cases.cuh"
#include "cases/warp_cases.cuh"
#include "cases/wgmma_cases.cuh"

namespace vcattn::crosscheck {

inline constexpr int kRegimes = 4;  // kinds of inputs: see inputs.h
inline constexpr int kPipelineBlocks = 3, kPipelineTiles = 7;

template <class ShapeOf, class Visit>
void visit_shape(const std::string& name, Visit& visit) {
  using ptx::Swizzle;
  visit.template operator()<WgmmaCase<ShapeOf, Swizzle::k128Bytes, false>>(name + "/128/ss");
  visit.template operator()<WgmmaCase<ShapeOf, Swizzle::k128Bytes, true>>(name + "/128/rs");
}

template <class ShapeOf, class Visit>
void visit_swizzles(const std::string& name, Visit& visit) {
  using ptx::Swizzle;
  visit.template operator()<WgmmaCase<ShapeOf, Swizzle::k64Bytes, false>>(name + "/64/ss");
  visit.template operator()<WgmmaCase<ShapeOf, Swizzle::k32Bytes, false>>(name + "/32/ss");
  visit.template operator()<WgmmaCase<ShapeOf, Swizzle::kNone, false>>(name + "/none/ss");
}

template <class Visit>
void visit_wgmma(Visit& visit) {
  visit_shape<S8N64>("wgmma/s8/n64", visit);
  visit_shape<S8N128>("wgmma/s8/n128", visit);
  visit_shape<E4m3N64>("wgmma/e4m3/n64", visit);
  visit_shape<E4m3N72>("wgmma/e4m3/n72", visit);
  visit_shape<E4m3N128>("wgmma/e4m3/n128", visit);
  visit_shape<E4m3N136>("wgmma/e4m3/n136", visit);
  visit_shape<E4m3F16N64>("wgmma/e4m3_f16/n64", visit);
  visit_shape<E4m3F16N128>("wgmma/e4m3_f16/n128", visit);
  visit_shape<Tf32N64>("wgmma/tf32/n64", visit);
  visit_shape<Tf32N128>("wgmma/tf32/n128", visit);
  visit_shape<Bf16N64>("wgmma/bf16/n64", visit);
  visit_shape<Bf16N128>("wgmma/bf16/n128", visit);
  visit_shape<Bf16N128T>("wgmma/bf16_t/n128", visit);
  visit_shape<F16N64>("wgmma/f16/n64", visit);
  visit_shape<F16N128>("wgmma/f16/n128", visit);
  visit_shape<F16N64T>("wgmma/f16_t/n64", visit);
  visit_swizzles<S8N128>("wgmma/s8/n128", visit);
  visit_swizzles<E4m3N136>("wgmma/e4m3/n136", visit);
  visit_swizzles<Tf32N128>("wgmma/tf32/n128", visit);
  visit_swizzles<Bf16N128>("wgmma/bf16/n128", visit);
  visit_swizzles<Bf16N128T>("wgmma/bf16_t/n128", visit);
}

template <class Visit>
void visit_all(Visit& visit) {
  visit.template operator()<ScalarCase<PackedIntegers>>("scalar/packed_integers");
  visit.template operator()<ScalarCase<PackedHalves>>("scalar/packed_halves");
  visit.template operator()<ScalarCase<Conversions>>("scalar/conversions");
  visit.template operator()<ScalarCase<Approximations>>("scalar/approximations");
  visit.template operator()<CollectiveCase>("warp/collectives");
  visit.template operator()<MmaCase<Data::kS8>>("mma/s8");
  visit.template operator()<MmaCase<Data::kE4M3>>("mma/e4m3");
  visit.template operator()<MmaCase<Data::kF16>>("mma/f16");
  visit.template operator()<MmaCase<Data::kBF16>>("mma/bf16");
  visit.template operator()<MmaCase<Data::kTF32>>("mma/tf32");
  visit.template operator()<MatrixMoveCase<1>>("move/x1");
  visit.template operator()<MatrixMoveCase<2>>("move/x2");
  visit.template operator()<MatrixMoveCase<4>>("move/x4");
  visit.template operator()<ClusterCase>("async/cluster");
  visit_wgmma(visit);
}

template <class Case>
constexpr int blocks_of() {
  if constexpr (requires { Case::kBlocks; }) {
    return Case::kBlocks;
  } else {
    return 1;
  }
}

template <class Case>
constexpr int cluster_of() {
  if constexpr (requires { Case::kClusterSize; }) {
    return Case::kClusterSize;
  } else {
    return 1;
  }
}

}  // namespace vcattn::crosscheck
