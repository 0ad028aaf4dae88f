// Ops that run functions, on real tensors: the eager witness of compiled branches and loops.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

enum class Control : uint8_t { kNone, kCond, kWhileLoop, kWhileLoopBack, kScan };
// How op runs its functions.
Control control_of(OpId op);

// op has kControl.
Results run_control(OpId op, const Args& args);

// A function, and what it reads beside what the op gives it.
struct ControlFunction {
  FunctionRef function;
  std::vector<Tensor> reads;
};
// The ops, in a trace.
Results call_cond(const Tensor& pred, const ControlFunction& f, const ControlFunction& g);
// kept: of how many steps what body gives beside carried is stacked.
Results call_while_loop(const ControlFunction& test, const ControlFunction& body, const std::vector<Tensor>& carried,
                        int64_t kept = 0);
// back's reads are what it is given after sums and what body keeps; saved are the loop's stacks, or none.
Results call_while_loop_back(const ControlFunction& body, const ControlFunction& back, const Tensor& steps,
                             const std::vector<Tensor>& carried, const std::vector<Tensor>& sums,
                             const std::vector<Tensor>& saved);
// The first n of these values, which lie in memory as `like` says, stacked; zeros stand for what is missing.
Tensor stacked_steps(const std::vector<Tensor>& made, int64_t n, const TensorType& like, Device device);
// xs are sliced, each along its dim.
Results call_scan(const ControlFunction& body, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs,
                  const Sizes& dims, bool reverse);
// What a function gives must be memory of its own.
Tensor own_copy(const Tensor& t);
Tensor contiguous_copy(const Tensor& t);
// Where a loop's gradients are to lie: as the dense tensor `like` does, so in each step alike.
Tensor laid_as(const Tensor& t, const Tensor& like);
Tensor zeros_laid_as(const Tensor& like);

// Whether op does the same with a number beside t and with a tensor that has it: that it has t's dtype before anything
// is computed. Of half types it has not.
bool takes_tensor_for_number(OpId op, const Tensor& t);

// How often the body of a scan runs.
int64_t scan_length(const Args& args);
// Slice i of x along dim.
Tensor slice_of(const Tensor& x, int64_t dim, SymInt i);
// Slices [from, from + n) of x along dim.
Tensor slices_of(const Tensor& x, int64_t dim, SymInt from, SymInt n);
// One slice, as the only one of a stack of slices.
Tensor stack_of(const Tensor& slice);
// The tensor that has the slices of these stacks along dim.
Tensor unsliced(const std::vector<Tensor>& stacks, int64_t dim);

}  // namespace lutra
