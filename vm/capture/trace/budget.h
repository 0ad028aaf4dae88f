// What one attempt to capture may cost: work is counted, so that an attempt ends at the same place each time, and the
// processor's time is looked at now and then, for work that costs more than was thought.
#pragma once
#include <cstdint>

namespace lutra {

class Budget {
 public:
  // ms: 0 for any time. dear_ms: the thread's time of CPU after which the attempt is too dear.
  Budget(int ms, double dear_ms);
  // Instructions and what builtins do for one: whether that is used up.
  bool spend(uint64_t work) {
    work_ += work;
    if (work_ < next_look_) return work_ > kMostWork;
    return look();
  }
  // Ops of a segment: as many as compile in about the same time again.
  uint64_t most_nodes() const { return most_nodes_; }
  bool is_too_dear() const;

 private:
  static constexpr uint64_t kMostWork = 1'000'000, kLook = 512;
  bool look();
  uint64_t work_ = 0, next_look_ = kLook, most_nodes_;
  double until_, dear_;  // of this thread's processor time, in milliseconds
};

}  // namespace lutra
