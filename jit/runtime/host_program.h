// The host arithmetic of a run as a list of steps: symbolic sizes and scalars in, the values of the expressions that
// are needed out.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/core/sym.h"

namespace lutra {

// An input as host programs and kernels see it.
struct InputView {
  void* data = nullptr;             // first element
  const SymInt* sizes = nullptr;    // only hints are read: the inputs of a run are concrete
  const SymInt* strides = nullptr;  // in elements
  size_t bytes = 0;                 // from data on; of what functions are given
};

union HostValue {
  int64_t i;
  double d;
};

// Usage: ask for slots, then run with an array of size() values that start_values() has been copied to.
class HostProgram {
 public:
  // The expressions must live while slots are asked for. positions: as Plan::positions.
  void begin(std::span<const SymExpr> exprs, std::span<const int32_t> positions);
  // Where the expression's value will be, converted to an integer or a number if it is the other.
  int32_t int_slot(int32_t expr);
  int32_t number_slot(int32_t expr);
  // A question whose answer guards_hold checks, at its level and those above.
  void add_guard(const SymGuard& guard, int32_t level = 0);

  // Of an expression that int_slot was asked for.
  int64_t int_value(const HostValue* values, int32_t expr) const { return values[int_slots_[expr]].i; }
  // Of one that number_slot was asked for.
  double number_value(const HostValue* values, int32_t expr) const {
    return values[number_slots_[expr] >= 0 ? number_slots_[expr] : slots_[expr]].d;
  }

  // How many inputs a run must bring for the leaves that are read.
  int32_t input_count() const { return input_count_; }
  size_t size() const { return start_.size(); }
  bool has_steps() const { return !steps_.empty(); }                             // else all values are start_values
  int32_t place_of_int(int32_t expr) const { return int_slots_[size_t(expr)]; }  // in the values
  const std::vector<HostValue>& start_values() const { return start_; }
  void run(HostValue* values, const InputView* inputs, const double* scalars) const;
  bool guards_hold(const HostValue* values, int32_t level = 0) const;
  size_t guard_count() const { return guards_.size(); }

 private:
  enum Convert : int32_t { kNone = -1, kToInt = -2, kToNumber = -3 };
  struct HostOp {
    SymOp op;
    int32_t dst, a, b;  // slots; leaves: position of the input or scalar, and dim
    int32_t convert;
  };
  struct Guard {
    SymCmp cmp;
    bool numbers, outcome;
    int32_t level;
    int32_t a, b;
  };
  int32_t slot(int32_t expr);
  void add_step(int32_t expr);
  int32_t fresh() { return start_.push_back(HostValue{0}), int32_t(start_.size()) - 1; }
  std::span<const SymExpr> exprs_;
  int32_t input_count_ = 0;
  std::vector<int32_t> positions_, slots_, int_slots_, number_slots_;  // by expression, -1 for none
  std::vector<HostValue> start_;
  std::vector<HostOp> steps_;
  std::vector<Guard> guards_;
};

}  // namespace lutra
