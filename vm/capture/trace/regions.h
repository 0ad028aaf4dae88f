// Control flow in a trace: a branch or the body of a loop is recorded as a function of its own. The values of the outer
// graph that it reads become parameters.
//
// Invariants:
// 1. A function has the trace's SymEnv, so its sizes may be symbols of the trace. A number of the trace that is an
//    operand of a tensor op is read as a 0-dim tensor. A number that may bound the steps of a loop is pinned until it
//    varies: then the number of steps of a short loop is known, and the loop is unrolled. The same holds for the
//    element of a tensor of the caller. Sizes that are known only while the graph runs are pinned.
// 2. It is recorded under the tape, on parameters that require grad if the values that they stand for do. So it has a
//    history of its own, which leads to its parameters.
// 3. If a branch or body cannot be a function (it writes, draws random numbers, ends the graph), the trace starts
//    again, with the control flow at this place as ordinary Lua.
#pragma once
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "jit/autograd/control_gradient.h"
#include "jit/graph/function.h"
#include "vm/capture/trace/trace.h"

namespace lutra {

class Region final : public Mode {
 public:
  // side: the function's name in messages. tests: it is the test of a loop.
  Region(Trace& trace, const ControlPlace& place, std::string side, bool tests);

  void enter(OpId op, Args& args) override;
  Results call(OpId op, Args& args) override;
  Tensor call_inplace(OpId op, Args& args) override;
  // Adds a parameter that stands for values like `like`.
  Tensor parameter(const Tensor& like, bool requires_grad);
  // Returns the function's value for a value of the trace.
  Tensor inside(const Tensor& t);
  // Ends the recording. The first `carried` results are passed on to the first parameters; the following parameters are
  // slices.
  RecordedFunction finish(const std::vector<Tensor>& results, size_t carried, size_t parameters);
  bool shares_memory(const Tensor& t) const;
  bool is_read(const Tensor& t) const;
  // Returns which of the first `carried` results require grad.
  std::vector<bool> with_gradients(const std::vector<Tensor>& results, size_t carried);
  size_t first_cell() const { return first_cell_; }
  bool owns(const Table& t) const { return t.pin == 0 && t.order > first_table_; }
  [[noreturn]] void refuse(const std::string& why) const;
  // Returns the reason with the function and the current line.
  std::string reason(const std::string& why) const;

  const ControlPlace place;

 private:
  Tensor bound(const Tensor& t);
  Tensor number(const Scalar& s, DType type, Device device);
  void pin_unknown(const Sizes& sizes) const;
  bool is_bound(const Scalar& s) const;
  Trace& trace_;
  const std::string side_;
  const bool tests_;
  std::unique_ptr<Graph> graph_;
  GraphRecorder recorder_{*graph_};
  std::unordered_set<const TensorImpl*> own_;
  std::unordered_map<const TensorImpl*, Tensor> lifted_;
  std::vector<Tensor> reads_;
  std::map<std::tuple<int32_t, DType, std::string>, Tensor> numbers_;  // by expression, dtype and device
  const uint64_t first_table_;
  const size_t first_cell_;
  const bool grad_mode_;
  ModeScope scope_{this};
};

// Starts the trace again, with the control flow at this place as ordinary Lua.
[[noreturn]] void refuse_control(Trace& t, const ControlPlace& place, const std::string& why);
// Returns the place where stdlib/control was called.
ControlPlace control_place(const Trace& t);
// Returns whether the trace only serves eager code, to find what the functions of stdlib/control read.
bool is_for_eager(const Trace& t);
// Returns whether the current instruction belongs to stdlib/control.
bool is_in_control(const Trace& t);
// Returns whether a function of stdlib/control is running. A stop there would cost its region.
bool is_within_control(const Trace& t);

// Models of lt._native.control_..., which stdlib/control calls in a trace.
Vars run_control_possible(Trace& t, Var* self, const Vars& args);
Vars run_control_peels(Trace& t, Var* self, const Vars& args);
Vars run_control_open(Trace& t, Var* self, const Vars& args);
Vars run_control_close(Trace& t, Var* self, const Vars& args);
Vars run_control_refuse(Trace& t, Var* self, const Vars& args);
Vars run_control_place_of(Trace& t, Var* self, const Vars& args);
Vars run_control_cond(Trace& t, Var* self, const Vars& args);
Vars run_control_while(Trace& t, Var* self, const Vars& args);
Vars run_control_branch_reads(Trace& t, Var* self, const Vars& args);
Vars run_control_loop_reads(Trace& t, Var* self, const Vars& args);
Vars run_control_scan(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
