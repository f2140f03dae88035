// wgmma.mma_async and its fence, commit and wait.
//
// The four warps of a warpgroup issue and complete separately: each holds its own 16 rows. A
// product reads its operands from shared memory when it lands, any time between its issue and the
// end of the wait for its group; products of one warp land in order.
#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "access.h"
#include "descriptor.h"
#include "machine.h"
#include "matrix_math.h"

namespace vcattn::emu {
namespace {

constexpr const char* kName = "wgmma.mma_async";
constexpr uint32_t kWindowBase = 0x400;

struct LaneOperands {
  uint32_t* d;
  RegisterState* d_state;
  uint32_t a[4];
  RegisterState* a_state;  // nullptr: A in shared memory
};

struct Product {
  WgmmaOp op;
  Warp* warp;
  uint32_t* d[32];
  std::vector<uint8_t> a;  // 16 rows of 32 bytes, from registers; empty: at a_descriptor
  uint64_t a_descriptor = 0;
  uint64_t b_descriptor = 0;
  bool accumulate = false;
  uint32_t group = 0;

  int columns() const { return op.out == Accumulate::kF16 ? op.registers * 4 : op.registers * 2; }
};

// ---- operands in shared memory ----

size_t to_offset(const Block& b, uint32_t address, size_t bytes, Where where) {
  const uint32_t low = address & 0x3FFFF;
  if (low < kWindowBase || low - kWindowBase + bytes > b.shared_bytes) {
    machine().fail(
        FaultKind::kBounds, kName, where,
        fmt::format("a matrix descriptor reaches address 0x{:x}, outside the block's shared memory "
                    "(0x{:x} bytes from 0x{:x})",
                    address, b.shared_bytes, kWindowBase));
  }
  return low - kWindowBase;
}

// Calls f(row, byte within the row, offset in shared memory, bytes) for every piece of `rows` rows
// from `first`.
template <class F>
void for_each_piece(const Block& b, uint64_t descriptor, int first, int rows, bool transposed,
                    Where where, F f) {
  const OperandLayout layout(descriptor);
  for (int r = 0; r < rows; ++r) {
    if (!transposed) {
      for (int c = 0; c < 2; ++c)
        f(r, 16 * c, to_offset(b, layout.k_major_chunk(first + r, c), 16, where), 16);
    } else {
      for (int k = 0; k < 16; ++k) {
        f(r, 2 * k, to_offset(b, layout.mn_major_element(first + r, k), 2, where), 2);
      }
    }
  }
}

void check_reads(const Product& p, uint64_t descriptor, int first, int rows, bool transposed,
                 Where where) {
  Machine& m = machine();
  Block& b = *p.warp->block;
  const Knowledge* known[32];
  for (size_t i = 0; i < 32; ++i) known[i] = &p.warp->lanes[i]->known;
  const Observer by{known, 32, true, p.warp->wgmma.agent, p.group, m.site(kName, where)};
  for_each_piece(
      b, descriptor, first, rows, transposed, where,
      [&](int, int, size_t offset, size_t bytes) { b.shadow->read(m, offset, bytes, by); });
}

std::vector<uint8_t> gather(const Block& b, uint64_t descriptor, int first, int rows,
                            bool transposed) {
  std::vector<uint8_t> out(static_cast<size_t>(rows) * 32);
  for_each_piece(b, descriptor, first, rows, transposed, {},
                 [&](int row, int byte, size_t offset, size_t n) {
                   std::memcpy(out.data() + row * 32 + byte, b.shared + offset, n);
                 });
  return out;
}

// ---- landing ----

void advance_landed(Machine& m, Warp& w) {
  WgmmaUnit& u = w.wgmma;
  while (u.landed < u.committed && !u.outstanding.empty() && u.outstanding.front() == 0) {
    u.outstanding.pop_front();
    ++u.landed;
  }
  m.set_agent_done(u.agent, u.landed);
  m.wake_on(&u);
}

// Register of lane 4g + t that holds (row, column), and for 16-bit accumulators the half.
void for_each_accumulator(const Product& p, std::vector<uint32_t>& c, bool store) {
  const int n = p.columns();
  const bool half = p.op.out == Accumulate::kF16;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < n; ++column) {
      const int lane = row % 8 * 4 + column % 8 / 2;
      const int pair = column / 8 * 2 + row / 8;
      uint32_t& element = c[static_cast<size_t>(row * n + column)];
      uint32_t& reg = p.d[lane][half ? pair : 2 * pair + column % 2];
      const int shift = half ? 16 * (column % 2) : 0;
      if (!store) {
        element = half ? (reg >> shift & 0xFFFF) : reg;
      } else if (half) {
        reg = (reg & ~(0xFFFFu << shift)) | element << shift;
      } else {
        reg = element;
      }
    }
  }
}

void land(Machine& m, const Product& p) {
  const Block& b = *p.warp->block;
  const int n = p.columns();
  const std::vector<uint8_t> a =
      p.a.empty() ? gather(b, p.a_descriptor, p.warp->index % 4 * 16, 16, false) : p.a;
  const std::vector<uint8_t> bt = gather(b, p.b_descriptor, 0, n, p.op.transpose_b);
  std::vector<uint32_t> c(static_cast<size_t>(16 * n));
  if (p.accumulate) for_each_accumulator(p, c, false);
  multiply(p.op.element, p.op.out, a.data(), 16, bt.data(), n, c.data(), p.accumulate);
  for_each_accumulator(p, c, true);
  WgmmaUnit& u = p.warp->wgmma;
  --u.outstanding[p.group - u.landed - 1];
  advance_landed(m, *p.warp);
}

// ---- issue ----

int shape_of(const WgmmaOp& op) {
  return static_cast<int>(op.element) * 4096 + static_cast<int>(op.out) * 1024 + op.registers;
}

void check_register(const Thread& t, const RegisterState& s, bool accumulator, bool read, int shape,
                    int index, Where where) {
  Machine& m = machine();
  const char* what = accumulator ? "accumulator" : "A";
  if (read && !s.defined) {
    m.fail(FaultKind::kUninitialized, kName, where,
           fmt::format("{} register {} of lane {} has no value", what, index, t.lane()));
  }
  const bool owned = s.ticket != 0;
  const bool in_flight = s.ticket > t.waited;
  const bool same_use = accumulator ? s.role == RegisterState::kAccumulator && s.shape == shape
                                    : s.role == RegisterState::kOperandA;
  if (in_flight && !same_use) {
    m.fail(FaultKind::kRegister, kName, where,
           fmt::format(
               "{} register {} of lane {} belongs to wgmma group {}, which has not been waited for",
               what, index, t.lane(), s.ticket));
  }
  if (owned && same_use) return;
  if (s.touched >= t.fence_serial) {
    m.fail(FaultKind::kWgmmaFence, kName, where,
           fmt::format("{} register {} of lane {} was touched after the last wgmma_fence", what,
                       index, t.lane()));
  }
}

void take_registers(const Product& p, const std::array<void*, 32>& args, Where where) {
  const int shape = shape_of(p.op);
  for (size_t i = 0; i < 32; ++i) {
    const auto& lane = *static_cast<LaneOperands*>(args[i]);
    const Thread& t = *p.warp->lanes[i];
    for (int r = 0; r < p.op.registers; ++r) {
      RegisterState& s = lane.d_state[r];
      check_register(t, s, true, p.accumulate, shape, r, where);
      s.ticket = p.group;
      s.role = RegisterState::kAccumulator;
      s.shape = shape;
      s.defined = true;
    }
    for (int r = 0; r < 4 && lane.a_state != nullptr; ++r) {
      RegisterState& s = lane.a_state[r];
      check_register(t, s, false, true, shape, r, where);
      s.ticket = p.group;
      s.role = RegisterState::kOperandA;
    }
  }
}

// A registers of lane 4g + t: rows g and g + 8, bytes 4t of the two halves of the k-step.
std::vector<uint8_t> rows_from_registers(const std::array<void*, 32>& args) {
  std::vector<uint8_t> a(16 * 32);
  for (size_t i = 0; i < 32; ++i) {
    const auto& lane = *static_cast<LaneOperands*>(args[i]);
    for (size_t r = 0; r < 4; ++r) {
      const size_t row = i / 4 + r % 2 * 8, byte = r / 2 * 16 + i % 4 * 4;
      std::memcpy(a.data() + row * 32 + byte, &lane.a[r], 4);
    }
  }
  return a;
}

// All warps of a warpgroup must issue the same products in the same order.
void check_sequence(Machine& m, const Product& p, Where where) {
  Warp& w = *p.warp;
  if (w.index / 4 * 128 + 128 > m.shape().threads) {
    m.fail(FaultKind::kDivergence, kName, where, "the warp is not part of a whole warpgroup");
  }
  auto& sequence = w.block->wgmma_sequence[static_cast<size_t>(w.index / 4)];
  const uint64_t signature = (static_cast<uint64_t>(shape_of(p.op)) * 31 + p.b_descriptor) * 31 +
                             p.a_descriptor + p.accumulate;
  if (w.wgmma.issued == sequence.size()) {
    sequence.push_back(signature);
  } else if (sequence[w.wgmma.issued] != signature) {
    m.fail(FaultKind::kDivergence, kName, where,
           fmt::format("product {} of warp {} differs from the one another warp of its warpgroup "
                       "issued (shape, "
                       "descriptors or scale-d)",
                       w.wgmma.issued, w.index));
  }
  ++w.wgmma.issued;
}

void check_descriptor(uint64_t descriptor, const char* which, Where where) {
  const OperandLayout layout(descriptor);
  const uint32_t step = layout.swizzle() == 0 ? 16 : 32;  // k-steps inside an atom
  if (layout.start() % step != 0 || (descriptor >> 49 & 7) != 0) {
    machine().fail(FaultKind::kAlignment, kName, where,
                   fmt::format("descriptor of {}: start 0x{:x}, swizzle mode {}, base offset {}",
                               which, layout.start(), layout.swizzle(), descriptor >> 49 & 7));
  }
}

void issue(Product p, LaneOperands& mine, Where where) {
  Machine& m = machine();
  const uint64_t key =
      ((p.a_descriptor * 31 + p.b_descriptor) * 31 + static_cast<uint64_t>(shape_of(p.op))) * 2 +
      p.accumulate;
  m.converge(kName, key, where, &mine, [&](Warp& w, const std::array<void*, 32>& args) {
    p.warp = &w;
    p.group = w.wgmma.committed + 1;
    check_sequence(m, p, where);
    take_registers(p, args, where);
    for (size_t i = 0; i < 32; ++i) p.d[i] = static_cast<LaneOperands*>(args[i])->d;
    if (mine.a_state != nullptr) {
      p.a = rows_from_registers(args);
    } else {
      check_descriptor(p.a_descriptor, "A", where);
      check_reads(p, p.a_descriptor, w.index % 4 * 16, 16, false, where);
    }
    check_descriptor(p.b_descriptor, "B", where);
    check_reads(p, p.b_descriptor, 0, p.columns(), p.op.transpose_b, where);
    WgmmaUnit& u = w.wgmma;
    u.outstanding.resize(p.group - u.landed, 0);
    ++u.outstanding.back();
    u.last_due = std::max(u.last_due, m.random_due());
    m.post(u.last_due, [&m, p] { land(m, p); });
  });
}

}  // namespace

void wgmma_fence(Where where) {
  Machine& m = machine();
  m.converge("wgmma.fence", 0, where, nullptr, [](Warp& w, const std::array<void*, 32>&) {
    for (Thread* t : w.lanes) ++t->fence_serial;
  });
}

void wgmma_commit(Where where) {
  Machine& m = machine();
  m.converge("wgmma.commit_group", 0, where, nullptr, [&](Warp& w, const std::array<void*, 32>&) {
    WgmmaUnit& u = w.wgmma;
    ++u.committed;
    u.outstanding.resize(u.committed - u.landed, 0);
    advance_landed(m, w);
  });
}

void wgmma_wait(int pending) {
  Machine& m = machine();
  Thread& t = m.thread();
  const char* name = "wgmma.wait_group";
  m.converge(name, static_cast<uint64_t>(pending), t.last, nullptr,
             [](Warp&, const std::array<void*, 32>&) {});
  WgmmaUnit& u = t.warp->wgmma;
  const uint32_t n = static_cast<uint32_t>(pending);
  const uint32_t groups = u.committed > n ? u.committed - n : 0;
  m.wait_until({name, t.last, "for {} groups", groups, 0, &u}, [&] { return u.landed >= groups; });
  t.waited = std::max(t.waited, groups);
  t.known.all.raise(u.agent, groups);
}

void wgmma_ss(const WgmmaOp& op, void* d, RegisterState* d_state, uint64_t a, uint64_t b,
              bool accumulate, Where where) {
  LaneOperands mine{static_cast<uint32_t*>(d), d_state, {}, nullptr};
  Product p{op, nullptr, {}, {}, a, b, accumulate, 0};
  issue(std::move(p), mine, where);
}

void wgmma_rs(const WgmmaOp& op, void* d, RegisterState* d_state, const uint32_t* a,
              RegisterState* a_state, uint64_t b, bool accumulate, Where where) {
  LaneOperands mine{static_cast<uint32_t*>(d), d_state, {a[0], a[1], a[2], a[3]}, a_state};
  Product p{op, nullptr, {}, {}, 0, b, accumulate, 0};
  issue(std::move(p), mine, where);
}

}  // namespace vcattn::emu
