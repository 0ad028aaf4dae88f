// A capture at a point of a compiled prototype: the segment becomes one of the point's entries.
#pragma once
#include "vm/capture/dispatch/callers.h"
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

struct Counters;
struct CaptureState;

// Makes the closures that rebuilt frames run. Holds its compiled prototype weakly, because the code of a loop's round
// resumes itself.
struct ProtoBody : ResumeBody {
  std::weak_ptr<CompiledProto> compiled;
  explicit ProtoBody(const std::shared_ptr<CompiledProto>& compiled) : compiled(compiled) {}
  void push_closure(lua_State* L, int index) override;
};

// Traces the segment that begins at `point` with the values on the stack (slots, slots of callers, varargs; the
// function at `self`) and compiles it. Returns null if no entry can be made; then the point is dead, or the capture
// took longer than lt.auto's budget allows.
std::shared_ptr<Entry> capture_point(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                                     ProtoPoint& point, const CallValues& call,
                                     const std::vector<Caller>& callers = {});
// Finishes the point's entries that the background has compiled. Returns false if the compiled prototype runs its
// original code from now on. Throws the compiler's errors about the program, as capture_point does; then the entry is
// removed.
bool finish_entries(lua_State* L, CompiledProto& compiled, ProtoPoint& point);
// The message for a function whose jumps to exits do not fit, because exits lie behind its end.
inline constexpr const char* kTooLong = "the function is too long for calls of compiled code";
// Returns the counters of captures, graphs and guards of `compiled`: those that the user sees, unless stdlib compiles
// it for itself. Compilations in the background are counted together.
Counters& counters_of(lua_State* L, const CompiledProto& compiled);
// Records the graph break in counters, reports and logs.
void count_break(lua_State* L, CompiledProto& compiled, const BreakReason& why);
// Makes the compiled prototype run its original code from now on, because no graph can hold the function. Throws under
// fullgraph.
void keep_original(lua_State* L, CompiledProto& compiled, const std::string& why);
// Reports an internal error. The compiled prototype runs its original code from now on.
void report_internal(lua_State* L, CompiledProto& compiled, const std::string& what, const std::string& graph);

}  // namespace lutra
