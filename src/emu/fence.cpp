// fence.proxy.async and fence.mbarrier_init.
#include "machine.h"

namespace vcattn::emu {

// Whatever the thread knows of now, the asynchronous units of those it tells will see.
void fence_proxy_async(Where) {
  Thread& t = machine().thread();
  t.known.proxied.join(t.known.all);
  t.advance();
  for (auto& [offset, bar] : t.block->mbarriers) {
    if (bar.initialized.thread == t.cluster_index) bar.fenced = true;
  }
}

void fence_mbarrier_init(Where) {
  Thread& t = machine().thread();
  for (auto& [offset, bar] : t.block->mbarriers) {
    if (bar.initialized.thread == t.cluster_index) bar.fenced = true;
  }
}

}  // namespace vcattn::emu
