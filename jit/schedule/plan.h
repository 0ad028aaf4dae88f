// A plan, which the scheduler makes from a graph and the runtime executes: buffers, and launches in order. Every size,
// stride and offset is an expression that is evaluated once a run. A plan is a value: it holds no pointer to anything
// outside, so it can be serialised, and another process can run it.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "jit/loop/loop.h"
#include "ops/core/sym.h"
#include "ops/defs/op.h"

namespace lutra {

using ExprId = int32_t;  // index into Plan::exprs

struct Buffer {
  enum Kind : uint8_t { kInput, kConstant, kOutput, kTemp } kind;
  DType dtype;           // an input's or constant's buffer begins at the tensor's first element
  ExprId elements;       // number of elements to allocate (outputs and temporaries)
  int32_t index = -1;    // kInput: graph input; kConstant: position in Plan::constants; kTemp: slot of the arena
  int32_t storage = -1;  // kInput: inputs that may share memory have the same one
};

// A piece of the arena that is in use from launch `first` to launch `last`. Its position is chosen when its size is
// known.
struct ArenaSlot {
  ExprId bytes;
  int32_t first, last;
};

// A tensor as a view of a buffer.
struct BufferView {
  int32_t buffer = -1;
  DType dtype = DType::kFloat32;
  std::vector<ExprId> sizes, strides;
  ExprId offset = 0;
};

// The error to report when a check fails.
struct Fault {
  int32_t arg;  // the integer argument that bounds the index
  int32_t dim;  // of the indexed tensor; -1: a division of integers by zero
  std::string op, file;
  int line;
  bool wraps = false;   // the size was added to a negative index
  bool target = false;  // the index is a class that a loss got as its target
  std::string text;     // the whole message of a check on values
};

struct KernelLaunch {
  loop::Kernel kernel;
  std::vector<int32_t> buffers;       // one for each pointer argument
  std::vector<ExprId> ints, scalars;  // arguments
  ExprId extent = 0;                  // size of the parallel loop (0: the kernel is run once)
  ExprId work = 0;                    // work of one iteration (or of the whole kernel), in elements; decides how
                                      // threads share it
  bool beside = false;                // runs in one fork and join with the kernel before it
  bool repeats = false;               // a repeated run writes the same values into inputs (in_place.cc)
  std::string op;                     // names the ops that were fused
  std::vector<Fault> faults;          // one for each check
  std::string file;
  int line = 0;
};

// The number of steps that the functions of several_steps.h make.
constexpr int kStepsAtOnce = 4;

// A library's kernel: which op, on which views and attributes (see ExternCall); ops/extern chooses how.
struct ExternLaunch {
  OpId op;
  std::vector<BufferView> in, out;  // in: buffer -1 is an absent optional tensor
  std::vector<ExprId> ints, scalars;
  std::vector<std::string> strings;
  std::vector<int32_t> functions;  // indices into Plan::functions, if op runs functions: op's, then those for several
                                   // steps (several_steps.h), if any. ints has the sizes of the tensor lists then
  int32_t symbols = 0;             // the last `symbols` ints, and all scalars, are what functions read of the caller
  std::string file;
  int line = 0;
};

using Launch = std::variant<KernelLaunch, ExternLaunch>;

struct PlanOutput {
  enum Kind : uint8_t { kTensor, kScalar, kNone } kind = kNone;
  BufferView view;    // kTensor; a view of an input or output buffer
  ExprId scalar = 0;  // kScalar
};

// Invariants:
// 1. exprs has exactly the expressions that launches, buffers, outputs and guards use, operands first. exprs[0] is
//    unused.
// 2. Constants are placeholders: the code that links the plan passes as many tensors.
// 3. A function has no guards. Its leaves are places among what its launch gives it: size(n, i) is number i of the
//    launch's symbols, where n is the number of its parameters, and scalar(i) is number i of the launch's scalars.
struct Plan {
  std::vector<SymExpr> exprs;
  std::vector<SymGuard> guards;  // the outcomes that the plan relies on
  Device device;                 // of all buffers; an input of no dimensions may be on the CPU
  std::vector<Buffer> buffers;
  std::vector<ArenaSlot> slots;
  std::vector<Launch> launches;
  std::vector<PlanOutput> outputs;
  int32_t constants = 0;
  // The position of each graph input among the inputs of a run, which do not include constants (-1). Empty: no input is
  // a constant.
  std::vector<int32_t> positions;
  std::vector<int32_t> mutated;  // inputs that are written; their version counters are increased
  int rng_calls = 0;
  std::vector<Plan> functions;  // branches and loop bodies that launches run
};

// Calls f(ExprId&) for each expression that the plan refers to, except from within exprs.
template <class P, class F>
void each_expr(P& plan, const F& f) {
  const auto all = [&](auto& ids) {
    for (auto& id : ids) f(id);
  };
  const auto view = [&](auto& v) { all(v.sizes), all(v.strides), f(v.offset); };
  for (auto& b : plan.buffers) f(b.elements);
  for (auto& s : plan.slots) f(s.bytes);
  for (auto& launch : plan.launches) {
    if (auto* k = std::get_if<KernelLaunch>(&launch)) {
      all(k->ints), all(k->scalars), f(k->extent), f(k->work);
      continue;
    }
    auto& e = std::get<ExternLaunch>(launch);
    for (auto& v : e.in) view(v);
    for (auto& v : e.out) view(v);
    all(e.ints), all(e.scalars);
  }
  for (auto& out : plan.outputs) view(out.view), f(out.scalar);
  for (auto& g : plan.guards) f(g.a), f(g.b);
}
// Completes a plan whose expressions are env's: copies the expressions that it and its guards use into the plan.
void close(Plan& plan, const SymEnv& env);

std::string print(const Plan& plan);

}  // namespace lutra
