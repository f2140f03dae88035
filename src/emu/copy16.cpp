// cp.async: 16 bytes from global to shared memory, through the generic proxy, in groups of the
// thread.
#include <fmt/format.h>

#include <cstring>

#include "access.h"
#include "machine.h"

namespace vcattn::emu {
namespace {

constexpr const char* kCopy = "cp.async";

void open_group(Machine& m, Thread::Groups& g) {
  if (g.agent == 0) g.agent = m.new_agent();
  if (g.pending.size() == g.committed) g.pending.push_back(0);
}

uint32_t finished_groups(const Thread::Groups& g) {
  uint32_t done = 0;
  while (done < g.committed && g.pending[done] == 0) ++done;
  return done;
}

}  // namespace

void copy16_async(void* shared, const void* global, bool valid, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  const size_t offset = m.shared_offset(kCopy, shared, 16, 16, where);
  if (valid) check_global(kCopy, global, 16, false, where);
  Thread::Groups& g = t.copy16;
  open_group(m, g);
  const uint32_t group = g.committed;
  const Knowledge* known = &t.known;
  t.block->shadow->write(m, offset, 16,
                         {&known, 1, false, g.agent, group + 1, m.site(kCopy, where)});
  ++g.pending[group];
  unsigned char* to = t.block->shared + offset;
  std::memset(to, 0xA5, 16);
  m.post(m.random_due(), [&m, &t, to, global, valid, group] {
    if (valid) {
      std::memcpy(to, global, 16);
    } else {
      std::memset(to, 0, 16);
    }
    --t.copy16.pending[group];
    m.set_agent_done(t.copy16.agent, finished_groups(t.copy16));
    m.wake_on(&t.copy16);
  });
}

void copy_commit(Where) {
  Machine& m = machine();
  Thread::Groups& g = m.thread().copy16;
  open_group(m, g);
  ++g.committed;
  m.set_agent_done(g.agent, finished_groups(g));
}

void copy_wait(int pending, Where where) {
  Machine& m = machine();
  Thread& t = m.thread();
  Thread::Groups& g = t.copy16;
  const uint32_t n = static_cast<uint32_t>(pending);
  const uint32_t groups = g.committed > n ? g.committed - n : 0;
  m.wait_until({"cp.async.wait_group", where, "for {} of its groups", groups, 0, &g},
               [&] { return finished_groups(g) >= groups; });
  if (groups != 0) t.known.all.raise(g.agent, groups);
}

}  // namespace vcattn::emu
