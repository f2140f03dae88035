// Moving registers between warpgroups (PTX ISA 9.7.19.5: setmaxnreg). All warps of a warpgroup call
// it together; kCount is a multiple of 8 in 24..256. An increase waits until other warpgroups have
// released enough.
#pragma once

#include "target.cuh"

VC_PTX_BEGIN

template <int kCount>
VC_DEVICE void registers_decrease(VC_WHERE0) {
  static_assert(kCount % 8 == 0 && kCount >= 24 && kCount <= 256);
#if VC_ON_DEVICE
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#else
  emu::set_max_registers(kCount, /*increase=*/false, where);
#endif
}

template <int kCount>
VC_DEVICE void registers_increase(VC_WHERE0) {
  static_assert(kCount % 8 == 0 && kCount >= 24 && kCount <= 256);
#if VC_ON_DEVICE
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#else
  emu::set_max_registers(kCount, /*increase=*/true, where);
#endif
}

VC_PTX_END
