// Runs ops that take functions (branches and loops) on real tensors. This is the eager reference of the compiled ones.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

enum class Control : uint8_t { kNone, kCond, kWhileLoop, kWhileLoopBack, kScan };
// Returns the kind of control flow that op does.
Control control_of(OpId op);

// Runs op, which has kControl.
Results run_control(OpId op, const Args& args);

// A function, and the tensors that it reads beside the arguments that the op passes it.
struct ControlFunction {
  FunctionRef function;
  std::vector<Tensor> reads;
};
// Calls of the control ops, for a trace.
Results call_cond(const Tensor& pred, const ControlFunction& f, const ControlFunction& g);
// kept: the number of steps for which the body's results beside `carried` are stacked.
Results call_while_loop(const ControlFunction& test, const ControlFunction& body, const std::vector<Tensor>& carried,
                        int64_t kept = 0);
// The reads of `back` are its arguments behind `sums` and the values that `body` keeps. `saved` are the loop's stacks,
// or none.
Results call_while_loop_back(const ControlFunction& body, const ControlFunction& back, const Tensor& steps,
                             const std::vector<Tensor>& carried, const std::vector<Tensor>& sums,
                             const std::vector<Tensor>& saved);
// Stacks the first n values, which have the type and layout of `like`. Zeros stand for missing ones.
Tensor stacked_steps(const std::vector<Tensor>& made, int64_t n, const TensorType& like, Device device);
// xs are sliced, each along its dim of `dims`.
Results call_scan(const ControlFunction& body, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs,
                  const Sizes& dims, bool reverse);
// Copies a tensor: a function's result must have memory of its own.
Tensor own_copy(const Tensor& t);
Tensor contiguous_copy(const Tensor& t);
// Returns t with the layout of the dense tensor `like`. The gradients of a loop need the same layout in each step.
Tensor laid_as(const Tensor& t, const Tensor& like);
Tensor zeros_laid_as(const Tensor& like);

// Returns whether op computes the same with a number beside t and with a tensor of that number. That holds if the
// number takes t's dtype before anything is computed, which is not so for half types.
bool takes_tensor_for_number(OpId op, const Tensor& t);

// Returns how often the body of a scan runs.
int64_t scan_length(const Args& args);
// Returns slice i of x along dim.
Tensor slice_of(const Tensor& x, int64_t dim, SymInt i);
// Returns slices [from, from + n) of x along dim.
Tensor slices_of(const Tensor& x, int64_t dim, SymInt from, SymInt n);
// Returns a stack of slices with this slice as its only one.
Tensor stack_of(const Tensor& slice);
// Returns the tensor whose slices along dim are the slices of these stacks.
Tensor unsliced(const std::vector<Tensor>& stacks, int64_t dim);

}  // namespace lutra
