// Every instruction a kernel may use. See README.md in this folder for how to write a kernel
// against it.
#pragma once

#include "barrier.cuh"
#include "convert.cuh"
#include "copy.cuh"
#include "descriptor.cuh"
#include "fragment.cuh"
#include "index.cuh"
#include "memory.cuh"
#include "mma.cuh"
#include "packed.cuh"
#include "registers.cuh"
#include "target.cuh"
#include "warp.cuh"
#include "wgmma.cuh"
