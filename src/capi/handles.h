// What the opaque pointers of vcattn/c.h point to.
#pragma once

#include "vcattn/c.h"
#include "vcattn/options.h"
#include "vcattn/state.h"

struct vcattn_recipe {
  vcattn::Recipe recipe;
};

struct vcattn_state {
  vcattn::VSmoothState state;
};
