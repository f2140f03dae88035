// The attention kernels of the table, ready to launch.
#pragma once

#include <cuda_runtime.h>

#include "cuda/sm90/params.h"

namespace vcattn::cuda::sm90 {

/// Launches variant kId of kVariants on `batch` entries. Defined in one translation unit per row.
template <int kId>
void launch_attention(const AttentionParams& params, int batch, cudaStream_t stream);

using LaunchAttention = void (*)(const AttentionParams&, int, cudaStream_t);

/// By row of kVariants.
LaunchAttention attention_launcher(int variant);

}  // namespace vcattn::cuda::sm90
