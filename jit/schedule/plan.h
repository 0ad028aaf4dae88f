// A plan: what the scheduler makes of a graph and the runtime executes - buffers, and a list of launches in order.
// Every size, stride and offset is an expression, evaluated once a run. A plan is a value: it holds no pointer to
// anything that lives, so it can be written down, and another process can run it.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "jit/loop/loop.h"
#include "ops/core/sym.h"
#include "ops/defs/op.h"

namespace lutra {

using ExprId = int32_t;  // place in Plan::exprs

struct Buffer {
  enum Kind : uint8_t { kInput, kConstant, kOutput, kTemp } kind;
  DType dtype;           // an input's or constant's buffer begins at the tensor's first element
  ExprId elements;       // number of elements to allocate (outputs and temporaries)
  int32_t index = -1;    // kInput: graph input; kConstant: position in Plan::constants; kTemp: slot of the arena
  int32_t storage = -1;  // kInput: inputs that may share memory have the same one
};

// A piece of the arena, which is in use from one launch to another; where it lies is found when its size is known.
struct ArenaSlot {
  ExprId bytes;
  int32_t first, last;
};

// A tensor laid over a buffer.
struct BufferView {
  int32_t buffer = -1;
  DType dtype = DType::kFloat32;
  std::vector<ExprId> sizes, strides;
  ExprId offset = 0;
};

// What to say when a check fails.
struct Fault {
  int32_t arg;  // the integer argument that bounds the index
  int32_t dim;  // of the indexed tensor; -1: a division of integers by zero
  std::string op, file;
  int line;
  bool wraps = false;   // a negative position had the size added
  bool target = false;  // the index is a class that a loss was given
  std::string text;     // of a check on values: all that there is to say
};

struct KernelLaunch {
  loop::Kernel kernel;
  std::vector<int32_t> buffers;       // one a pointer argument
  std::vector<ExprId> ints, scalars;  // arguments
  ExprId extent = 0;                  // size of the parallel loop (0: the kernel is run once)
  ExprId work = 0;                    // of one iteration of it (or of all), in elements: for splitting among threads
  bool beside = false;                // runs in one fork and join with the kernel before it
  bool repeats = false;               // a run made again writes the same into inputs (in_place.cc)
  std::string op;                     // names the ops it was fused of
  std::vector<Fault> faults;          // one a check
  std::string file;
  int line = 0;
};

// That the functions of several_steps.h make.
constexpr int kStepsAtOnce = 4;

// A library's kernel: which op, on which views and attributes (see ExternCall); ops/extern chooses how.
struct ExternLaunch {
  OpId op;
  std::vector<BufferView> in, out;  // in: buffer -1 is an absent optional tensor
  std::vector<ExprId> ints, scalars;
  std::vector<std::string> strings;
  std::vector<int32_t> functions;  // of the plan, where op runs functions; ints count the tensors of each list then
                                   // op's, then, if any, those of several steps (several_steps.h)
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
// 1. exprs has what launches, buffers, outputs and guards use and nothing else, operands first; exprs[0] is no
//    expression.
// 2. Constants are places: whoever links the plan brings as many tensors.
struct Plan {
  std::vector<SymExpr> exprs;
  std::vector<SymGuard> guards;  // the answers that the plan relies on
  Device device;                 // of all buffers; an input of no dimensions may be on the CPU
  std::vector<Buffer> buffers;
  std::vector<ArenaSlot> slots;
  std::vector<Launch> launches;
  std::vector<PlanOutput> outputs;
  int32_t constants = 0;
  // Position of each graph input among run's inputs, which leave constants out (-1). Empty: none is a constant.
  std::vector<int32_t> positions;
  std::vector<int32_t> mutated;  // inputs written (their version counter moves on)
  int rng_calls = 0;
  std::vector<Plan> functions;  // branches and bodies of loops, which launches run; each has expressions of its own
};

// f(ExprId&) for each expression that the plan names, those of exprs excepted.
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
// Ends the making of a plan whose expressions are env's: they become the plan's own, as do the answers of env.
void close(Plan& plan, const SymEnv& env);

std::string print(const Plan& plan);

}  // namespace lutra
