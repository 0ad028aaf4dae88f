// An entry: a guard program, the compiled segment that it protects, and the effects of the segment, as data.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "jit/autograd/segment.h"
#include "jit/compile_later.h"
#include "ops/core/clock.h"
#include "vm/capture/segment/effects.h"
#include "vm/capture/trace/trace.h"
#include "vm/guard/native.h"

struct lua_State;

namespace lutra {

// The code of a rebuilt frame: a resume prototype, which is compiled later by the owner of the segment.
struct ResumeBody {
  virtual ~ResumeBody() = default;
  // Pushes a closure of it with the upvalues of the function at `index`.
  virtual void push_closure(lua_State* L, int index) = 0;
};
struct ResumeFrame {
  std::shared_ptr<ResumeBody> body;
  Recipe function;  // the original closure
};

// The state of an entry whose code is being compiled in the background. It is destroyed on the thread of the Lua state,
// like everything that the program sees.
struct Compiling {
  GuardProgram guards;            // without the compiler's guards on symbols
  GuardPlace end;                 // the end of the trace: the place of the compiler's guards
  std::shared_ptr<SymEnv> env;    // owned by the compiler until it is done
  std::vector<Tensor> constants;  // of the graph
  double start_ms = wall_ms(), cpu_start_ms = process_cpu_ms();
  int64_t eager_calls = 0;             // calls that the entry would have run
  double expected_ms = 0;              // the compiler's expected time, which lt.auto has charged already
  std::unique_ptr<CompileLater> work;  // the last member, so it is destroyed first
};

// Invariant: while `compiling` is not null, `guards` accepts the calls that the entry is for, but there is nothing to
// run.
struct Entry {
  enum class Leaves : uint8_t { kUnknown, kResults, kMore };

  GuardProgram guards;
  std::unique_ptr<Sources> sources;
  std::string graph_text;
  std::vector<std::string> op_names;
  size_t kernels = 0, outputs = 0;
  double compile_ms = 0, passes_ms = 0, schedule_ms = 0, codegen_ms = 0;
  std::vector<ResumeFrame> resumes;  // frames that values of the effects call
  BreakReason why;                   // none: the segment returned, or reached a loop
  KeptBytes kept_bytes;              // bytes saved for a backward outside
  int plain_checkpoints = 0;
  double capture_ms = 0;  // includes compile_ms
  int callable = 0;       // registry reference: what a user's backend returned
  Effects effects;
  // The members that each call reads, in two cache lines: for a cold entry a call waits once for each cache line.
  alignas(64) int64_t hits = 0;
  size_t ops = 0;
  std::unique_ptr<NativeGuards> native;     // guards as machine code; null if only the interpreter can run them
  const PlainRun* plain = nullptr;          // the segment's plain run; set for kResults
  int constants = 0, weak = 0;              // registry references
  int exit = 0;                             // index into the exits of the point
  int level = 0;                            // the frame that it leaves: the portal's, or the number of calls above
  bc::Pc landing = 0;                       // for a frame above: the point there to which the exit belongs
  bool decline = false;                     // nothing to run: the original code is as good as the segment
  bool takes_constants = false;             // the graph has tensor inputs that are not arguments of the segment
  Leaves leaves = Leaves::kUnknown;         // kResults: only results, none of them a constant
  bool results_differ = false;              // for kResults: no two results are the same output
  SmallVec<Recipe, 1> results;              // for kResults: the results of the effects
  std::shared_ptr<Segment> segment;         // null if there are no ops before a break in a callee, which is resumed
  std::shared_ptr<std::string> guard_text;  // not null if runs are verified (lt.config.verify)
  std::unique_ptr<Compiling> compiling;     // the last member, so it is destroyed first
};

void release_entry(lua_State* L, Entry& entry);

}  // namespace lutra
