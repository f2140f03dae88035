// C structures -> the library's arguments and options.
#pragma once

#include "vcattn/arguments.h"
#include "vcattn/c.h"
#include "vcattn/options.h"

namespace vcattn::capi {

/// Throws Error for an unknown enumerator or a structure of an unknown size.
Arguments to_arguments(const vcattn_arguments& given);

BackendChoice to_backend(vcattn_backend backend);

}  // namespace vcattn::capi
