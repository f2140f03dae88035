// One suspended kernel thread on its own stack (boost.context).
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <functional>
#include <vector>

namespace vcattn::emu {

// Stacks are reused from block to block: mapping one costs more than running a short thread.
class StackPool {
 public:
  explicit StackPool(size_t bytes) : allocator_(bytes) {}
  ~StackPool() {
    for (auto& stack : free_) allocator_.deallocate(stack);
  }
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  boost::context::stack_context take() {
    if (free_.empty()) return allocator_.allocate();
    auto stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give(boost::context::stack_context stack) { free_.push_back(stack); }

 private:
  boost::context::protected_fixedsize_stack allocator_;
  std::vector<boost::context::stack_context> free_;
};

class Fiber {
 public:
  // `body` runs at the first resume.
  void start(StackPool& pool, std::function<void()> body);
  void resume() { fiber_ = std::move(fiber_).resume(); }           // from the scheduler
  void suspend() { scheduler_ = std::move(scheduler_).resume(); }  // from the fiber
  // Unwinds a fiber that will not run again.
  void abandon() { fiber_ = boost::context::fiber(); }

 private:
  boost::context::fiber fiber_;
  boost::context::fiber scheduler_;
};

}  // namespace vcattn::emu
