// A plan: what the scheduler makes of a graph and the runtime executes - buffers, and a list of launches in order.
// Every size, stride and offset is an expression of the graph's SymEnv, evaluated once a run.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "jit/loop/loop.h"
#include "ops/defs/op.h"

namespace lutra {

using ExprId = int32_t;

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
  const char* op;
  const char* file;
  int line;
  bool wraps = false;          // a negative position had the size added
  bool target = false;         // the index is a class that a loss was given
  const char* text = nullptr;  // of a check on values: all that there is to say
};

struct KernelLaunch {
  loop::Kernel kernel;
  std::vector<int32_t> buffers;       // one a pointer argument
  std::vector<ExprId> ints, scalars;  // arguments
  ExprId extent = 0;                  // size of the parallel loop (0: the kernel is run once)
  ExprId work = 0;                    // inner work of one iteration of it, in elements: for splitting among threads
  bool beside = false;                // runs in one fork and join with the kernel before it
  const char* op = "";                // names the ops it was fused of
  std::vector<Fault> faults;          // one a check
  const char* file = nullptr;
  int line = 0;
};

// A library's kernel: which op, on which views and attributes (see ExternCall); ops/extern chooses how.
struct ExternLaunch {
  OpId op;
  std::vector<BufferView> in, out;  // in: buffer -1 is an absent optional tensor
  std::vector<ExprId> ints, scalars;
  std::vector<std::string> strings;
  const char* file = nullptr;
  int line = 0;
};

using Launch = std::variant<KernelLaunch, ExternLaunch>;

struct PlanOutput {
  enum Kind : uint8_t { kTensor, kScalar, kNone } kind = kNone;
  BufferView view;    // kTensor; a view of an input or output buffer
  ExprId scalar = 0;  // kScalar
};

struct Plan {
  std::shared_ptr<SymEnv> env;
  Device device;  // of all buffers; an input of no dimensions may be on the CPU
  std::vector<Buffer> buffers;
  std::vector<ArenaSlot> slots;
  std::vector<Launch> launches;
  std::vector<PlanOutput> outputs;
  std::vector<Tensor> constants;
  // Position of each graph input among run's inputs, which leave constants out (-1). Empty: none is a constant.
  std::vector<int32_t> positions;
  std::vector<int32_t> mutated;  // inputs written (their version counter moves on)
  int rng_calls = 0;
};

std::string print(const Plan& plan);

}  // namespace lutra
