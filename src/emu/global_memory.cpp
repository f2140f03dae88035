#include "global_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "access.h"
#include "machine.h"

namespace vcattn::emu {

void GlobalMemory::add(Range range) { ranges_.push_back(std::move(range)); }

void GlobalMemory::add_input(const std::string& name, const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  add({name, begin, begin + bytes, false, {}});
}

void GlobalMemory::add_output(const std::string& name, void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  add({name, begin, begin + bytes, true, std::vector<bool>(bytes, false)});
}

void GlobalMemory::add_inout(const std::string& name, void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  add({name, begin, begin + bytes, true, {}});
}

void GlobalMemory::remove(const void* data) {
  std::erase_if(ranges_,
                [&](const Range& r) { return r.begin == reinterpret_cast<uintptr_t>(data); });
}

GlobalMemory::Range* GlobalMemory::find(const void* p, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  const auto holds = [&](const Range& r) { return begin >= r.begin && begin + bytes <= r.end; };
  if (last_ < ranges_.size() && holds(ranges_[last_])) return &ranges_[last_];
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (!holds(ranges_[i])) continue;
    last_ = i;
    return &ranges_[i];
  }
  return nullptr;
}

std::string GlobalMemory::describe_outside(const void* p, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  const Range* nearest = nullptr;
  uint64_t best = UINT64_MAX;
  for (const Range& r : ranges_) {
    const uint64_t distance =
        begin < r.begin ? r.begin - begin : begin + bytes - std::min(r.end, begin + bytes);
    if (distance < best) best = distance, nearest = &r;
  }
  if (nearest == nullptr)
    return fmt::format("{} bytes at {}: no global memory was given", bytes, p);
  const auto from = static_cast<int64_t>(begin - nearest->begin);
  return fmt::format("bytes {} to {} of '{}', which has {}", from,
                     from + static_cast<int64_t>(bytes) - 1, nearest->name,
                     nearest->end - nearest->begin);
}

std::string GlobalMemory::check_owner(const Range& r, size_t offset, size_t bytes,
                                      uint32_t by) const {
  if (r.writer.empty() || by == kHost) return {};
  for (size_t i = offset; i < offset + bytes; ++i) {
    const uint32_t writer = r.writer[i];
    if (writer >> 20 != grid_ || (writer & 0xFFFFF) == by || (writer & 0xFFFFF) == kHost) continue;
    // Reading what atomics make is how the last block of a grid finds out that it is the last.
    if ((writer & 0xFFFFF) == kAtomic) continue;
    return fmt::format("byte {} of '{}' was written by another block of this grid (number {})", i,
                       r.name, writer & 0xFFFFF);
  }
  return {};
}

std::string GlobalMemory::check_read(const void* p, size_t bytes, uint32_t by) {
  const Range* r = find(p, bytes);
  if (r == nullptr) return "outside: " + describe_outside(p, bytes);
  const size_t offset = reinterpret_cast<uintptr_t>(p) - r->begin;
  for (size_t i = offset; i < offset + bytes && !r->written.empty(); ++i) {
    if (!r->written[i]) return fmt::format("byte {} of '{}' has not been written", i, r->name);
  }
  return check_owner(*r, offset, bytes, by);
}

std::string GlobalMemory::check_write(const void* p, size_t bytes, uint32_t by) {
  Range* r = find(p, bytes);
  if (r == nullptr) return "outside: " + describe_outside(p, bytes);
  if (!r->writable) return fmt::format("'{}' is an input", r->name);
  const size_t offset = reinterpret_cast<uintptr_t>(p) - r->begin;
  const std::string reason = check_owner(*r, offset, bytes, by);
  if (!reason.empty()) return reason;
  if (r->writer.empty()) r->writer.assign(r->end - r->begin, kHost);
  std::fill_n(r->writer.begin() + static_cast<std::ptrdiff_t>(offset), bytes, grid_ << 20 | by);
  if (!r->written.empty()) {
    std::fill_n(r->written.begin() + static_cast<std::ptrdiff_t>(offset), bytes, true);
  }
  return {};
}

size_t GlobalMemory::unwritten_bytes(const std::string& name) const {
  size_t n = 0;
  for (const Range& r : ranges_) {
    if (r.name == name)
      n += static_cast<size_t>(std::count(r.written.begin(), r.written.end(), false));
  }
  return n;
}

void check_global(const char* instruction, const void* p, size_t bytes, bool write, Where where,
                  bool atomic) {
  Machine& m = machine();
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) {
    m.fail(FaultKind::kAlignment, instruction, where,
           fmt::format("{} is not aligned to {} bytes", p, bytes));
  }
  check_global_range(instruction, p, bytes, write, where, atomic);
}

void check_global_range(const char* instruction, const void* p, size_t bytes, bool write,
                        Where where, bool atomic) {
  Machine& m = machine();
  if (m.memory() == nullptr) return;
  const uint32_t by = atomic ? GlobalMemory::kAtomic : m.block_number();
  const std::string reason =
      write ? m.memory()->check_write(p, bytes, by) : m.memory()->check_read(p, bytes, by);
  if (!reason.empty()) m.fail(FaultKind::kBounds, instruction, where, reason);
}

void load_global(void* value, const void* p, size_t bytes, Where where) {
  check_global("ld.global", p, bytes, false, where);
  std::memcpy(value, p, bytes);
}

void store_global(void* p, const void* value, size_t bytes, Where where) {
  check_global("st.global", p, bytes, true, where);
  std::memcpy(p, value, bytes);
}

void thread_fence(Where) {}

}  // namespace vcattn::emu
