// A capture at a point of a compiled prototype: the segment becomes one of the point's entries.
#pragma once
#include "vm/capture/dispatch/callers.h"
#include "vm/capture/dispatch/compiled_proto.h"

struct lua_State;

namespace lutra {

struct CaptureState;

// The closures that a segment's rebuilt frames run. Weak: the code of a loop's round resumes itself.
struct ProtoBody : ResumeBody {
  std::weak_ptr<CompiledProto> compiled;
  explicit ProtoBody(const std::shared_ptr<CompiledProto>& compiled) : compiled(compiled) {}
  void push_closure(lua_State* L, int index) override;
};

// Traces the segment that begins at `point` with the values on the stack (slots, those of callers, then varargs; the
// function at `self`) and compiles it. Null where nothing can be made here (the point is dead then).
std::shared_ptr<Entry> capture_point(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                                     ProtoPoint& point, const SegmentCall& call,
                                     const std::vector<Caller>& callers = {});
// Makes whole what the background has compiled of the point's entries. False where the compiled prototype runs its
// original code from now on. Throws what the compiler says of the program, as capture_point does; the entry is gone
// then.
bool finish_entries(lua_State* L, CompiledProto& compiled, ProtoPoint& point);
// Of a function whose jumps to exits, which lie behind its end, do not fit.
inline constexpr const char* kTooLong = "the function is too long for calls of compiled code";
// For counters, reports and logs.
void count_break(lua_State* L, CompiledProto& compiled, const BreakReason& why);
// No graph can hold the function: the compiled prototype runs its original code from now on. An error under fullgraph.
void keep_original(lua_State* L, CompiledProto& compiled, const std::string& why);
// An internal error: the compiled prototype runs its original code from now on.
void report_internal(lua_State* L, CompiledProto& compiled, const std::string& what, const std::string& graph);

}  // namespace lutra
