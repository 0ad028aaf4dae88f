// A unit: one function as it is compiled with one set of options. Its points are the places where portals stand; each
// point has entries, each entry a guard program with the compiled segment it protects.
// Invariants:
// 1. Entries belong to the prototype: closures of it share the unit, upvalues are guarded.
// 2. An exit is only taken by bytecode that has it: a portal id names a point and how many exits its bytecode knows.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "jit/autograd/write_counts.h"
#include "jit/compile.h"
#include "vm/capture/trace/code.h"
#include "vm/capture/trace/trace.h"
#include "vm/guard/native.h"
#include "vm/portal/patch.h"

struct lua_State;

namespace lutra {

class CompiledAutograd;
struct CaptureState;
struct Unit;

struct UnitOptions {
  int dynamic = -1;
  bool fullgraph = false;
  std::string backend = "native";
  int backend_function = 0;  // registry reference of a user's backend
  bool operator<(const UnitOptions& o) const {
    return std::tie(dynamic, fullgraph, backend, backend_function) <
           std::tie(o.dynamic, o.fullgraph, o.backend, o.backend_function);
  }
};

struct UnitKey {
  const void* prototype;
  UnitOptions options;
  uint64_t serial;  // explain has units of its own
  bool operator<(const UnitKey& o) const {
    if (prototype != o.prototype) return prototype < o.prototype;
    if (serial != o.serial) return serial < o.serial;
    return options < o.options;
  }
};

// How a value that the segment leaves behind is made.
struct Recipe {
  enum Kind : uint8_t { kNil, kFalse, kTrue, kConstant, kTensorOut, kTensorIn, kRegister, kSymbol, kTable, kResume };
  Kind kind = kNil;
  int index = 0;  // constant, output, input, register, place of the symbol, fresh table, resume
};

struct FreshTable {
  int array_size = 0, hash_size = 0;
  std::vector<std::pair<Recipe, Recipe>> items;
  Recipe metatable;
};

struct TableWrite {
  Recipe table, key, value;
};
struct UpvalueWrite {
  Recipe function;
  int index = 0;
  Recipe value;
};
struct GradWrite {
  int input = 0;
  Recipe value;
};
// The gradient of a leaf that the segment made.
struct OutputGrad {
  int output = 0;
  Recipe value;
};
// An output that is a view of an input or of another output: writes through either must be known to the tape.
struct ViewOutput {
  int output = 0;
  Recipe base;               // kTensorIn, kTensorOut, or kNil where nothing else sees it
  Ref<ViewHistory> history;  // null: made in no_grad mode
  bool symbolic = false;     // the history has sizes that only the run knows
};
// An input that a write has given a history: that of an output, its last value.
struct HistoryWrite {
  int input = 0, output = 0;
};
struct RequiresGradWrite {
  int input = 0;
  bool value = false;
};

// A frame that is rebuilt: a resume prototype over the upvalues of the function it stands for.
struct ResumeFrame {
  std::shared_ptr<Unit> unit;  // of the resume prototype
  Recipe function;             // the original closure
};

// A node of a captured graph, as reports list it.
struct NodeText {
  std::string op, name, args, dtype;
  std::vector<int64_t> shape;
  int line = 0;
};
std::vector<NodeText> describe_nodes(const Graph& graph);  // report.cc

struct Entry {
  GuardProgram guards;
  std::unique_ptr<Sources> sources;
  int constants = 0, weak = 0;           // registry references
  std::unique_ptr<NativeGuards> native;  // guards as machine code; null where only the witness can run
  bool decline = false;                  // nothing to run: the original code is as good
  std::shared_ptr<Compiled> compiled;
  WriteCounts writes;  // of compiled
  std::string graph_text;
  size_t ops = 0;
  std::vector<std::string> op_names;
  std::vector<NodeText> nodes;  // for reports
  size_t kernels = 0, outputs = 0;
  double compile_ms = 0, passes_ms = 0, schedule_ms = 0, codegen_ms = 0;
  std::vector<FreshTable> tables;
  std::vector<ResumeFrame> resumes;
  std::vector<Recipe> results;
  std::vector<TableWrite> table_writes;
  std::vector<UpvalueWrite> upvalue_writes;
  std::vector<GradWrite> grad_writes;
  std::vector<RequiresGradWrite> requires_grad_writes;
  bool grad_mode = true;  // at the end
  bool sets_grad_mode = false;
  std::vector<int> written;                    // inputs that the graph writes
  std::shared_ptr<CompiledAutograd> autograd;  // instead of compiled: results are differentiated outside
  int callable = 0;                            // registry reference: what a user's backend returned
  std::vector<int> leaf_outputs;               // outputs that are leaves requiring grad
  std::vector<ViewOutput> view_outputs;
  std::vector<OutputGrad> output_grads;
  std::vector<HistoryWrite> history_writes;
  std::vector<std::pair<int, std::string>> refused_outputs;  // those that backward refuses, with its message
  int exit = 0;                                              // index into the point's exits
  BreakReason why;                                           // empty kind: returned, or reached a loop
  double capture_ms = 0;                                     // with compile_ms
  int64_t hits = 0;
  std::vector<int64_t> step_hits;
};

struct Recompile {
  std::string kind, source, old_text, new_text, hint;
  const char* file = nullptr;
  int line = 0;
};

struct UnitPoint {
  bc::Pc pc = 1;
  std::vector<unsigned> args;
  bool varargs = false;
  std::vector<Exit> exits;
  std::vector<std::shared_ptr<Entry>> entries;  // most recent hit first
  bool dead = false;                            // never again: nothing to compile here, or the limit was reached
  bool limit_reported = false;
  int idle_calls = 0;     // of an automatic unit: in a row, that ran nothing
  int64_t saved_ops = 0;  // that entries have run
  double spent_ms = 0;    // in captures
  int idle_captures = 0;  // without an op, since the last one with
  std::map<std::string, std::set<int>> dynamic_dims;
  std::set<std::string> loose_functions;
  Decisions decisions;  // loops kept by earlier captures
};

struct Unit {
  uint64_t serial = 0;
  UnitKey key{};
  UnitOptions options;
  std::unique_ptr<LuaCode> code;
  std::string name;  // file:line of the function
  std::map<bc::Pc, UnitPoint> points;
  std::shared_ptr<Patched> patched;  // newest; null before the first capture
  bool changed = true;
  uint64_t version = 0;  // of patched
  int functions = 0;     // registry reference of a weak table: closure -> true, those redirected to us
  int stub_id = 0;
  bool fresh_capture = false;  // the stub has just captured: the hit that follows is its own
  std::vector<int> ids;        // portal ids of all versions
  bool automatic = false;      // nobody but lt.auto has asked for it
  bool failed = false;         // an internal error: original bytecode from now on
  std::shared_ptr<std::vector<Recompile>> recompiles = std::make_shared<std::vector<Recompile>>();
  std::shared_ptr<std::vector<std::shared_ptr<Entry>>> log = std::make_shared<std::vector<std::shared_ptr<Entry>>>();
  std::shared_ptr<std::vector<BreakReason>> breaks = std::make_shared<std::vector<BreakReason>>();
  std::map<std::pair<bc::Pc, std::string>, std::shared_ptr<Unit>> resumes;  // of this unit's inlined callees
  std::map<bc::Pc, std::shared_ptr<Patched>> bodies;  // newest bytecode as it is entered at a pc (switch_over)
};

// -- unit.cc

// The unit of the Lua function at `index`; null for a C function.
std::shared_ptr<Unit> find_unit(CaptureState& state, lua_State* L, int index, const UnitOptions& options,
                                uint64_t serial);
// The unit of a resume prototype of `code`, whose function is at `function`.
std::shared_ptr<Unit> resume_unit(CaptureState& state, lua_State* L, Unit& parent, const LuaCode& code,
                                  const ResumeSpec& spec, int function, bool last);
// collect.cc: frees what no function, frame or later call can enter. Called as the number of units doubles, before a
// unit with that backend is made.
void collect_units(CaptureState& state, lua_State* L, int backend_function);
void release_entry(lua_State* L, Entry& entry);
// Points where segments may begin after the instruction at pc has run (successors) or at pc itself.
void add_points_after(Unit& unit, bc::Pc pc);
void add_point(Unit& unit, bc::Pc pc);
// Makes the newest bytecode of the unit and redirects its functions to it.
void refresh(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit);
// Pushes a clone of the function at `index` that runs the unit's newest bytecode (its stub before the first capture).
void push_clone(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit, int index, bool stub);
// The unit's newest bytecode entered at pc with that instruction's live slots as parameters, for a frame that runs
// older bytecode; null where it cannot be.
std::shared_ptr<Patched> body_at(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit, bc::Pc pc);
// Remembers the function at `index` as one that follows the unit's bytecode.
void follow(lua_State* L, Unit& unit, int index);
void unfollow(lua_State* L, Unit& unit, int index);

struct Portal {
  std::weak_ptr<Unit> unit;
  bc::Pc pc = 1;
  size_t exits = 0;  // known to the bytecode that has this id
  bool stub = false;
  bool can_switch = false;  // the last exit goes over to newer bytecode
  uint64_t version = 0;     // of the unit's bytecode
};

}  // namespace lutra
