// Captures one segment of a function: traces it from its beginning to where it can end, compiles it, and makes an
// entry.
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

// A C call that results cross on their way to a frame above: a pcall or xpcall, or a call in another mode, which then
// restores this one.
struct Passage {
  enum Kind : uint8_t { kProtected, kGradMode, kAutocast } kind = kProtected;
  bool enabled = false;  // grad mode, or autocast on the device
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
  bc::Pc call;                        // the call of the frame below
  const std::vector<unsigned>& args;  // slots that are passed, after its function
  int first;                          // the function's index among the passed values
  bool has_exits;                     // it has exits other than its own return
  int varargs;                        // number of varargs passed after the slots
  std::vector<Passage> between;       // C calls between it and the frame below, innermost first
  int base;                           // position of its first slot (OpenFrame)
  bool enters;                        // the frame was rebuilt within the call
};

// The place where the segment begins, and the slots that are passed there.
struct SegmentPlace {
  LuaCode& code;
  bc::Pc pc;
  const std::vector<unsigned>& args;
  bool varargs;                        // varargs are passed after the slots; the entry checks their number
  int fixed_varargs{};                 // the same if the number is known: they precede the slots of callers
  std::vector<CallerPlace> callers{};  // innermost first
};

struct CapturedSegment {
  std::shared_ptr<Entry> entry;
  Finished finished;                          // empty if the entry declines
  std::vector<std::pair<bc::Pc, bool>> next;  // places where segments may begin: (pc, after it)
  KeptLoops kept_loops;
  SegmentLessons lessons;
  size_t level = 0;  // the frame in which it ends: 0, or the number of calls above
  int left_out = 0;  // stack index of the table of functions that the segment leaves to Lua
  // By call of the frame in which it begins: the number of ops that the call inlines.
  std::map<bc::Pc, size_t> called_ops{};
  bc::Pc ops_at = 0;  // instruction of the first op in that frame; 0: it is in a frame above
};

// Throws errors of the program's own code, and an error if fullgraph is wanted and the graph breaks.
CapturedSegment capture_segment(lua_State* L, TraceState& state, const SegmentPlace& place, const CallValues& call,
                                const CaptureOptions& wanted, const TraceOptions& options,
                                const TraceDecisions& decisions);

// A call whose graph becomes part of another one, and so is not compiled.
struct WholeCall {
  std::shared_ptr<Entry> entry;  // guards except those of symbols, and the results as effects; no code
  std::unique_ptr<Graph> graph;
  std::vector<Tensor> inputs;  // real tensors, by graph input
  bool differentiates = false;
  std::string why;      // not empty if it is not one graph
  bool raises = false;  // it is not one graph because it raises an error
};

// dims: by argument of the function, counted from 0: dimensions whose sizes are symbols.
WholeCall capture_whole(lua_State* L, TraceState& state, const SegmentPlace& place, const CallValues& call,
                        const std::map<int, std::set<int>>& dims, TraceOptions options);

// Completes an entry that was compiled in the background. Throws the compiler's error; then the entry is useless.
void finish_compiling(lua_State* L, Entry& entry);

std::string place_of(const BreakReason& why);
// Returns the break's reason with the hint, the call chain, the line and a link to more documentation.
std::string describe(const BreakReason& why);

}  // namespace lutra
