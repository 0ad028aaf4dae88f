// The host arithmetic of a run as a list of steps: computes the needed expressions from symbolic sizes and scalars.
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
  size_t bytes = 0;                 // size of the memory from data on; set for arguments of functions
};

union HostValue {
  int64_t i;
  double d;
};

// Usage: ask for slots, then call run with an array of size() values, initialised from start_values().
class HostProgram {
 public:
  // The expressions must live until all slots have been asked for. positions: as Plan::positions. A view
  // behind them keeps its place (Plan, invariant 3).
  void begin(std::span<const SymExpr> exprs, std::span<const int32_t> positions);
  // Return the slot for the expression's value, converted to an integer or a number if necessary.
  int32_t int_slot(int32_t expr);
  int32_t number_slot(int32_t expr);
  // Adds a guard, which guards_hold checks at this level and above.
  void add_guard(const SymGuard& guard, int32_t level = 0);

  // The expression must have an int_slot.
  int64_t int_value(const HostValue* values, int32_t expr) const { return values[int_slots_[expr]].i; }
  // The expression must have a number_slot.
  double number_value(const HostValue* values, int32_t expr) const {
    return values[number_slots_[expr] >= 0 ? number_slots_[expr] : slots_[expr]].d;
  }

  // Returns how many inputs a run must have for the leaves that are read.
  int32_t input_count() const { return input_count_; }
  size_t size() const { return start_.size(); }
  bool has_steps() const { return !steps_.empty(); }                             // false: all values are start_values
  int32_t place_of_int(int32_t expr) const { return int_slots_[size_t(expr)]; }  // index into the values
  const std::vector<HostValue>& start_values() const { return start_; }
  void run(HostValue* values, const InputView* inputs, const double* scalars) const;
  bool guards_hold(const HostValue* values, int32_t level = 0) const;
  size_t guard_count() const { return guards_.size(); }

 private:
  enum Convert : int32_t { kNone = -1, kToInt = -2, kToNumber = -3 };
  struct HostOp {
    SymOp op;
    int32_t dst, a, b;  // slots; for a leaf the position of the input or scalar, and the dim
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
  std::vector<int32_t> positions_, slots_, int_slots_, number_slots_;  // by expression; -1: none
  std::vector<HostValue> start_;
  std::vector<HostOp> steps_;
  std::vector<Guard> guards_;
};

}  // namespace lutra
