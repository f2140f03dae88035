#include "shadow.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "machine.h"

namespace vcattn::emu {
namespace {

uint16_t mask_of(size_t chunk, size_t offset, size_t bytes) {
  const size_t begin = std::max(offset, chunk * 16) - chunk * 16;
  const size_t end = std::min(offset + bytes, chunk * 16 + 16) - chunk * 16;
  return static_cast<uint16_t>(((1u << end) - 1) & ~((1u << begin) - 1));
}

void record(std::vector<Access>& list, const Observer& by, uint16_t mask, bool generic) {
  for (Access& a : list) {
    if (a.agent == by.agent && a.mask == mask && a.atomic == by.atomic && a.generic == generic) {
      a.time = by.time;
      a.site = by.site;
      return;
    }
  }
  list.push_back({by.agent, by.time, by.site, mask, generic, by.atomic});
}

[[noreturn]] void fail(Machine& m, FaultKind kind, size_t chunk, uint16_t mask, const Observer& by,
                       const std::string& reason) {
  const size_t offset = chunk * 16 + static_cast<size_t>(std::countr_zero(mask));
  m.raise({kind, fmt::format("{} at shared+0x{:x}: {}", m.describe_site(by.site), offset, reason)});
}

[[noreturn]] void fail_pair(Machine& m, const Access& earlier, const char* did, size_t chunk,
                            uint16_t mask, const Observer& by) {
  const std::string other = m.describe_site(earlier.site);
  if (earlier.generic && by.asynchronous && by.knows_ignoring_proxy(earlier)) {
    fail(m, FaultKind::kProxyFence, chunk, mask, by,
         fmt::format("{} these bytes by {}, and no fence_proxy_async lies between", did, other));
  }
  if (m.in_flight(earlier)) {
    fail(m, FaultKind::kInFlight, chunk, mask, by,
         fmt::format("{} still {} these bytes; wait for it first", other, did));
  }
  fail(
      m, FaultKind::kRace, chunk, mask, by,
      fmt::format("{} {} these bytes, and nothing this thread has waited for orders that before it",
                  other, did));
}

}  // namespace

bool Observer::knows(const Access& a) const {
  for (int i = 0; i < count; ++i) {
    const Clock& clock = asynchronous && a.generic ? known[i]->proxied : known[i]->all;
    if (clock.at(a.agent) >= a.time) return true;
  }
  return false;
}

bool Observer::knows_ignoring_proxy(const Access& a) const {
  for (int i = 0; i < count; ++i) {
    if (known[i]->all.at(a.agent) >= a.time) return true;
  }
  return false;
}

void Shadow::read(Machine& m, size_t offset, size_t bytes, const Observer& by) {
  for (size_t chunk = offset / 16; chunk * 16 < offset + bytes; ++chunk) {
    read_chunk(m, chunk, mask_of(chunk, offset, bytes), by);
  }
}

void Shadow::write(Machine& m, size_t offset, size_t bytes, const Observer& by) {
  for (size_t chunk = offset / 16; chunk * 16 < offset + bytes; ++chunk) {
    write_chunk(m, chunk, mask_of(chunk, offset, bytes), by);
  }
}

void Shadow::reserve(size_t offset, size_t bytes, bool reserved) {
  Chunk& chunk = chunks_[offset / 16];
  const uint16_t mask = mask_of(offset / 16, offset, bytes);
  chunk.reserved =
      reserved ? (chunk.reserved | mask) : (chunk.reserved & static_cast<uint16_t>(~mask));
}

void Shadow::read_chunk(Machine& m, size_t index, uint16_t mask, const Observer& by) {
  Chunk& chunk = chunks_[index];
  if ((chunk.reserved & mask) != 0) {
    fail(m, FaultKind::kInvalid, index, mask, by, "the bytes of a live mbarrier");
  }
  uint16_t written = 0;
  for (const Access& w : chunk.writers) {
    if ((w.mask & mask) == 0) continue;
    written |= w.mask;
    if (w.atomic && by.atomic) continue;
    if (!by.knows(w)) fail_pair(m, w, "wrote", index, mask, by);
  }
  if ((mask & ~written) != 0) {
    fail(m, FaultKind::kUninitialized, index, static_cast<uint16_t>(mask & ~written), by,
         "nobody has written these bytes");
  }
  record(chunk.readers, by, mask, !by.asynchronous);
}

void Shadow::write_chunk(Machine& m, size_t index, uint16_t mask, const Observer& by) {
  Chunk& chunk = chunks_[index];
  if ((chunk.reserved & mask) != 0) {
    fail(m, FaultKind::kInvalid, index, mask, by, "the bytes of a live mbarrier");
  }
  const auto superseded = [&](Access& earlier, const char* did, bool was_read) {
    if ((earlier.mask & mask) == 0 || (earlier.atomic && by.atomic)) return false;
    // A read needs no proxy fence before the bytes are written again.
    const bool known = was_read ? by.knows_ignoring_proxy(earlier) : by.knows(earlier);
    if (!known) fail_pair(m, earlier, did, index, mask, by);
    earlier.mask = static_cast<uint16_t>(earlier.mask & ~mask);
    return earlier.mask == 0;
  };
  std::erase_if(chunk.readers, [&](Access& a) { return superseded(a, "reads", true); });
  std::erase_if(chunk.writers, [&](Access& a) { return superseded(a, "wrote", false); });
  record(chunk.writers, by, mask, !by.asynchronous);
}

}  // namespace vcattn::emu
