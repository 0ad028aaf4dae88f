// An entry: a guard program, the compiled segment that it protects, and what the segment leaves behind, as data.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "jit/autograd/segment.h"
#include "jit/compile_later.h"
#include "vm/capture/segment/effects.h"
#include "vm/capture/trace/trace.h"
#include "vm/guard/native.h"
#include "vm/host/clock.h"

struct lua_State;

namespace lutra {

// What a rebuilt frame runs: a resume prototype, which whoever keeps the segment compiles in its turn.
struct ResumeBody {
  virtual ~ResumeBody() = default;
  // Pushes a closure of it over the upvalues of the function at `index`.
  virtual void push_closure(lua_State* L, int index) = 0;
};
struct ResumeFrame {
  std::shared_ptr<ResumeBody> body;
  Recipe function;  // the original closure
};

// What the entry of a segment whose code is made in the background lacks. Destroyed on the thread of the Lua state, as
// everything that the program sees.
struct Compiling {
  GuardProgram guards;            // without what the compiler asks of symbols
  GuardPlace end;                 // of the trace: where the compiler's questions are placed
  std::shared_ptr<SymEnv> env;    // the compiler's until it is done
  std::vector<Tensor> constants;  // of the graph
  double start_ms = wall_ms();
  int64_t eager_calls = 0;             // that the entry would have run
  std::unique_ptr<CompileLater> work;  // the last member: it goes first
};

// Invariant: while `compiling` is not null, guards lets in what the entry is for, but there is nothing to run.
struct Entry {
  enum class Leaves : uint8_t { kUnknown, kResults, kMore };

  GuardProgram guards;
  std::unique_ptr<Sources> sources;
  std::string graph_text;
  std::vector<std::string> op_names;
  size_t kernels = 0, outputs = 0;
  double compile_ms = 0, passes_ms = 0, schedule_ms = 0, codegen_ms = 0;
  std::vector<ResumeFrame> resumes;  // that values of the effects call
  BreakReason why;                   // none: returned, or reached a loop
  KeptBytes kept_bytes;              // for a backward outside
  int plain_checkpoints = 0;
  double capture_ms = 0;  // with compile_ms
  int callable = 0;       // registry reference: what a user's backend returned
  Effects effects;
  // What each call reads, side by side: a cold entry costs a call as many waits as it has cache lines.
  int64_t hits = 0;
  size_t ops = 0;
  int constants = 0, weak = 0;              // registry references
  std::unique_ptr<NativeGuards> native;     // guards as machine code; null where only the witness can run
  std::shared_ptr<Segment> segment;         // null where there are no ops before a break in a callee, which is resumed
  std::shared_ptr<std::string> guard_text;  // not null: runs are watched (lt.config.verify)
  int exit = 0;                             // index into the exits of the point
  int level = 0;                            // the frame that it leaves: the portal's, or so many calls up
  bc::Pc landing = 0;                       // of a frame above: the point there whose exit it is
  bool decline = false;                     // nothing to run: the original code is as good
  bool takes_constants = false;             // of the graph: tensor inputs that no argument of the segment is
  Leaves leaves = Leaves::kUnknown;         // kResults: values and nothing else, none of them a constant
  bool results_differ = false;              // likewise: no output is two of them
  std::unique_ptr<Compiling> compiling;     // the last member: it goes first
};

void release_entry(lua_State* L, Entry& entry);

}  // namespace lutra
