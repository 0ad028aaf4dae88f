// The budget of one attempt to capture. Work is counted, so that an attempt ends at the same place each time. CPU time
// is checked now and then, for work that costs more than expected.
#pragma once
#include <cstdint>

namespace lutra {

class Budget {
 public:
  // ms: 0 for no limit. dear_ms: the thread's CPU time after which the attempt is too expensive.
  Budget(int ms, double dear_ms);
  // Counts work: instructions, and the work of builtins in units of instructions. Returns whether the budget is used
  // up.
  bool spend(uint64_t work) {
    work_ += work;
    if (work_ < next_look_) return work_ > kMaxWork;
    return look();
  }
  // Returns the most ops of a segment: about as many as compile in the same time.
  uint64_t most_nodes() const { return most_nodes_; }
  bool is_too_expensive() const;

 private:
  static constexpr uint64_t kMaxWork = 1'000'000, kLook = 512;
  bool look();
  uint64_t work_ = 0, next_look_ = kLook, most_nodes_;
  double until_, dear_;  // in milliseconds of this thread's CPU time
};

}  // namespace lutra
