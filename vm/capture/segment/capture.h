// One segment of a function from where it begins to where it can end: traced, compiled, and an entry made of it.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "vm/capture/segment/finish.h"
#include "vm/capture/segment/lessons.h"
#include "vm/capture/segment/options.h"
#include "vm/capture/trace/state.h"

struct lua_State;

namespace lutra {

// What results pass on their way to a frame above: the end of a pcall or xpcall, or of a call in another mode, which
// restores this one.
struct Passage {
  enum Kind : uint8_t { kProtected, kGradMode, kAutocast } kind = kProtected;
  bool enabled = false;  // recording, or autocast on the device
  bool cuda = false, cache = true;
  DType dtype{};
  uint64_t packed() const {
    const uint64_t bits = uint64_t(enabled) | uint64_t(cuda) << 1 | uint64_t(cache) << 2;
    return uint64_t(kind) | bits << 8 | uint64_t(dtype) << 16;
  }
};

// A frame above the one that the segment begins in, which returns to it.
struct CallerPlace {
  LuaCode& code;
  bc::Pc call;                        // of the frame below
  const std::vector<unsigned>& args;  // slots that come in, behind its function
  int first;                          // that one's place among what comes in
  bool has_exits;                     // it can be left elsewhere than by its own return
  int varargs;                        // that come in behind the slots
  std::vector<Passage> between;       // it and the frame below, innermost first
  int base;                           // place of its first slot (OpenFrame)
  bool enters;                        // the frame was rebuilt within the call
};

// Where the segment begins, and the slots that come in there.
struct SegmentPlace {
  LuaCode& code;
  bc::Pc pc;
  const std::vector<unsigned>& args;
  bool varargs;                        // come in behind the slots; the entry asks how many
  int fixed_varargs{};                 // likewise, where that is known: before the slots of callers
  std::vector<CallerPlace> callers{};  // innermost first
};

// The call at hand: slots, then varargs, on the Lua stack from 1 on; the function at `self`.
struct SegmentCall {
  int nslots, nargs, self;
};

struct CapturedSegment {
  std::shared_ptr<Entry> entry;
  Finished finished;                          // nothing where the entry declines
  std::vector<std::pair<bc::Pc, bool>> next;  // where segments may begin: (pc, after it)
  KeptLoops kept_loops;
  std::map<std::string, bool> open_sizes;
  SegmentLessons lessons;
  size_t level = 0;                       // the frame in which it ends: 0, or that many calls up
  int left_out = 0;                       // stack index of a table of the functions that the segment has left to Lua
  std::map<bc::Pc, size_t> called_ops{};  // by call of the frame that it begins in: the ops that it inlines
  bc::Pc ops_at = 0;                      // of that frame: the instruction of the first op; 0: a frame above has it
};

// Throws what the program's own code raises, and where fullgraph is wanted and the graph breaks.
CapturedSegment capture_segment(lua_State* L, TraceState& state, const SegmentPlace& place, const SegmentCall& call,
                                const CaptureOptions& wanted, const TraceOptions& options,
                                const TraceDecisions& decisions);

// A call whose graph stands in another one, and so is not compiled.
struct WholeCall {
  std::shared_ptr<Entry> entry;  // guards, but for those of symbols, and the results as effects; no code
  std::unique_ptr<Graph> graph;
  std::vector<Tensor> inputs;  // real ones, by the graph's
  bool differentiates = false;
  std::string why;      // not empty: it is not one graph
  bool raises = false;  // since it raises an error
};

// dims: by argument of the function, counted from 0: those whose sizes are symbols.
WholeCall capture_whole(lua_State* L, TraceState& state, const SegmentPlace& place, const SegmentCall& call,
                        const std::map<int, std::set<int>>& dims, TraceOptions options);

// Makes an entry that the background has compiled a whole one. Throws what the compiler threw; the entry is of no use
// then.
void finish_compiling(lua_State* L, Entry& entry);

std::string place_of(const BreakReason& why);
// Its reason with the hint, the chain of calls, the line and where more is told.
std::string describe(const BreakReason& why);

}  // namespace lutra
