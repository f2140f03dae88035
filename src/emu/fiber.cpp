#include "fiber.h"

namespace vcattn::emu {
namespace {

// Returns the stack to the pool when the fiber ends.
struct PooledStack {
  StackPool* pool;
  boost::context::stack_context allocate() { return pool->take(); }
  void deallocate(boost::context::stack_context& stack) { pool->give(stack); }
};

}  // namespace

void Fiber::start(StackPool& pool, std::function<void()> body) {
  fiber_ = boost::context::fiber(std::allocator_arg, PooledStack{&pool},
                                 [this, body = std::move(body)](boost::context::fiber&& from) {
                                   scheduler_ = std::move(from);
                                   body();
                                   return std::move(scheduler_);
                                 });
}

}  // namespace vcattn::emu
