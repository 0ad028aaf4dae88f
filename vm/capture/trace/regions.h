// Control flow in a trace: a branch or the body of a loop is recorded as a function of its own. What it reads of the
// graph outside becomes a parameter.
//
// Invariants:
// 1. A function has fixed sizes: symbols that it reads are pinned, but for numbers that tensors are reckoned with. Such
//    a number is read as a tensor of no dimensions. A number that may bound the steps of a loop is pinned, too, until
//    it varies: the steps of a short loop are known then, and unrolled. So is the element of a tensor of the caller's.
// 2. It is recorded under the tape, on parameters that require grad as what they stand for does. So it has its own
//    history, which leads to its parameters.
// 3. What a function cannot be (it writes, draws, ends the graph) makes the trace begin again, with the control flow at
//    this place as ordinary Lua.
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
  // side: the function, in what is said of it. tests: it tells whether a loop goes on.
  Region(Trace& trace, const ControlPlace& place, std::string side, bool tests);

  void enter(OpId op, Args& args) override;
  Results call(OpId op, Args& args) override;
  Tensor call_inplace(OpId op, Args& args) override;
  // A parameter that stands for values like t, which require grad or not.
  Tensor parameter(const Tensor& like, bool requires_grad);
  // The value in here that a value of the trace has.
  Tensor inside(const Tensor& t);
  // Ends the recording. The first results are carried on to the first parameters, the next parameters are slices.
  RecordedFunction finish(const std::vector<Tensor>& results, size_t carried, size_t parameters);
  bool shares_memory(const Tensor& t) const;
  bool is_read(const Tensor& t) const;
  // Which of the first results require grad.
  std::vector<bool> with_gradients(const std::vector<Tensor>& results, size_t carried);
  size_t first_cell() const { return first_cell_; }
  bool owns(const Table& t) const { return t.pin == 0 && t.order > first_table_; }
  [[noreturn]] void refuse(const std::string& why) const;
  // With the function and the line that the trace is at.
  std::string reason(const std::string& why) const;

  const ControlPlace place;

 private:
  Tensor bound(const Tensor& t);
  Tensor number(const Scalar& s, DType type, Device device);
  bool is_bound(const Scalar& s) const;
  Trace& trace_;
  const std::string side_;
  const bool tests_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
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

// The control flow at this place of the trace is ordinary Lua from now on.
[[noreturn]] void refuse_control(Trace& t, const ControlPlace& place, const std::string& why);
// Where stdlib/control was called.
ControlPlace control_place(const Trace& t);
// Whether the trace only tells eager code what stdlib/control's functions read.
bool is_for_eager(const Trace& t);
// Whether the instruction is stdlib/control's own.
bool is_in_control(const Trace& t);

// lt._native.control_...: what stdlib/control asks of a trace.
Vars run_control_possible(Trace& t, Var* self, const Vars& args);
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
