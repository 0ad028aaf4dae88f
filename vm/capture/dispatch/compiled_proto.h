// A compiled prototype: one function as it is compiled with one set of options. Its points are the places of portals.
// Each point has entries; an entry is a guard program with the compiled segment that it protects.
// Invariants:
// 1. Entries belong to the prototype: its closures share the compiled prototype, and upvalues are guarded.
// 2. Only bytecode that has an exit takes it: a portal id identifies a point and the number of exits that its bytecode
//    has.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "vm/capture/segment/finish.h"
#include "vm/capture/segment/options.h"
#include "vm/portal/patch.h"

struct lua_State;

namespace lutra {

struct CaptureState;

struct ProtoKey {
  const void* prototype;
  CaptureOptions options;
  uint64_t serial;  // not 0 for lt.explain, which has compiled prototypes of its own
  bool operator<(const ProtoKey& o) const {
    if (prototype != o.prototype) return prototype < o.prototype;
    if (serial != o.serial) return serial < o.serial;
    return options < o.options;
  }
};

struct Recompile {
  std::string kind, source, old_text, new_text, hint;
  const char* file = nullptr;
  int line = 0;
};

// The loop of a frame that lt.auto entered while it ran. The code behind the loop runs once and is not compiled. The
// frame remains a frame of its function: it follows that function's bytecode, and never switches to a body
// (switch_over).
struct EnteredLoop {
  bc::Pc first = 0, last = 0;
  bool any() const { return last != 0; }
  bool contains(bc::Pc pc) const { return !any() || (pc >= first && pc <= last); }
};

struct EntryTree;  // entries.cc

struct ProtoPoint {
  bc::Pc pc = 1;
  std::vector<unsigned> args;
  bool varargs = false;
  std::vector<Exit> exits;
  std::vector<std::shared_ptr<Entry>> entries;  // if there are few, the most recent hit first; else the newest first
  std::shared_ptr<EntryTree> tree;              // guard tree; only if there are many entries
  int compiling = 0;                            // number of entries that the background compiles
  bool dead = false;                            // no more captures: nothing to compile here, or the limit was reached
  bool limit_reached = false;
  bool breaks_for_places = false;  // a graph break was reported: inputs lie elsewhere in shared memory in each call
  int misses = 0;                  // since the limit was reached, reduced by hits
  int worth = 0;                   // since then, the gain of checking entries: see skips_entries
  uint32_t skippable_calls = 0;    // number of calls that were allowed to check no entry
  int size_misses = 0;             // runs that were abandoned because of a data-dependent size
  bool enters_callees = true;
  EnteredLoop entered_loop{};
  int idle_calls = 0;         // calls in a row that ran nothing
  int idle_rounds = 0;        // all calls that ran nothing, minus those that ran something
  std::set<bc::Pc> ops_at{};  // pcs of the entries' first ops; 0: in a frame above
  bool given_up = false;      // for now, because it ran nothing for long: see revive
  double saved_ms = 0;        // savings of the entries' runs, minus the cost of the portal's calls
  double spent_ms = 0;        // CPU time of captures
  double needs_ms = 0;        // CPU time that the next capture may take, after one by lt.auto was too expensive
  int idle_captures = 0;      // captures without an op since the last one with ops
  std::map<std::string, std::set<int>> dynamic_dims;             // as in TraceOptions
  std::map<std::string, std::set<std::string>> changing_values;  // by source: values in misses, a few of each
  bool small_sizes = false;                                      // of TraceOptions
  std::set<std::string> loose_functions;
  bool has_parted = false;                     // the last miss has parted calls: entries are captured again
  std::map<std::string, bool> loop_variables;  // of TraceOptions
  TraceDecisions decisions;                    // loops kept by earlier captures
  int id = 0;                                  // of its portal in the newest bytecode; 0: it has no portal
  bool packs = false;                          // that portal's results come in a table
  // stays: the first segment here ended in this frame, and later ones do, too. crosses: it ended in a frame above, to
  // which this frame had returned; then entries are kept by the frames above (with_callers).
  bool stays = false, crosses = false;
  std::map<std::vector<uint64_t>, std::shared_ptr<ProtoPoint>> with_callers{};
  size_t most_callers = 34;       // maximum number of frames above that entries may continue in
  std::map<int, int> steered{};   // by calls up: misses that only taught that this frame takes another path
  std::vector<int> firsts{};      // for a point under callers: stack index of each caller's values in a call
  std::weak_ptr<Entry> awaits{};  // an entry of a frame below, which continues behind this point once it has its code
  int missed_level = 0;  // by calls up: the frame whose values failed in the last miss, which taught nothing; 0: none
};

// A call in patched bytecode: the original call that it stands for (0: none), and the slots that are known behind it.
struct CallSite {
  bc::Pc call = 0;
  std::vector<unsigned> args;
  bool enters = false;  // it is the call that a rebuilt frame begins with
};

struct CompiledProto : std::enable_shared_from_this<CompiledProto> {
  uint64_t serial = 0;
  ProtoKey key{};
  CaptureOptions options;
  std::unique_ptr<LuaCode> code;
  std::string name;  // file:line of the function
  std::map<bc::Pc, ProtoPoint> points;
  std::map<bc::Pc, size_t> called_ops;  // by call: the maximum number of ops that an entry has inlined from it
  std::set<bc::Pc> parted_calls;     // calls whose callees are frames of their own, because a point reached its limit
  std::shared_ptr<Patched> patched;  // newest; null before the first capture
  bool changed = true;
  double patch_ms = 0;   // CPU time of making `patched`
  uint64_t version = 0;  // version of `patched`, unique among all compiled prototypes
  std::map<uint64_t, std::shared_ptr<const Patched>> versions;  // versions that frames may still run
  std::map<std::pair<uint64_t, bc::Pc>, std::shared_ptr<const CallSite>>
      call_sites;  // by version of the bytecode, then by the pc to which the call returns
  // By version: the pcs of the ITERC or ITERN of code->loops(). There is no element for code without such loops.
  std::map<uint64_t, std::vector<bc::Pc>> iterators;
  int functions = 0;  // registry reference of a weak table, closure -> true: the closures redirected to this
  int stub_id = 0;
  bool fresh_capture = false;  // the stub has just captured, so the next hit belongs to that capture
  std::vector<int> ids;        // portal ids of all versions
  bool automatic = false;      // only lt.auto has asked for it
  bool callee = false;         // only segments that leave its calls to Lua have asked for it (callees.h)
  bool for_library = false;    // stdlib has asked for it; no user has
  bool is_asked_for() const { return !automatic && !callee && !for_library; }  // by a user
  bool failed = false;  // it runs the original bytecode from now on (internal error, or no graph can hold it)
  std::shared_ptr<std::vector<Recompile>> recompiles = std::make_shared<std::vector<Recompile>>();
  std::shared_ptr<std::vector<std::shared_ptr<Entry>>> log = std::make_shared<std::vector<std::shared_ptr<Entry>>>();
  std::shared_ptr<std::vector<BreakReason>> breaks = std::make_shared<std::vector<BreakReason>>();
  // The compiled prototypes of rebuilt frames of the functions that it inlines, at any depth.
  std::map<std::pair<bc::Pc, std::string>, std::shared_ptr<CompiledProto>> resumes;
  std::vector<Site> helpers;      // for a rebuilt frame: helper calls in its code that share variables
  CompiledProto* root = nullptr;  // the compiled prototype whose `resumes` has this one
  bool is_outermost = false;      // resumes a frame of the root's own function
  Stand first_call{};  // the call that it begins with, and the call of its code for which that stands; 0: none
  // For a root: the callees that its segments leave to Lua, which are frames of their own.
  std::vector<std::weak_ptr<CompiledProto>> callees;
  // For a root: the time saved by entries that rebuild frames or run in rebuilt frames. If it is too little, calls
  // whose callees break are left to Lua (note_rebuilt).
  double rebuilt_ms = 0;
  bool leaves_calls = false;
  int64_t hits = 0, revives_at = 64;  // hits of its points while it has callees
  std::vector<int> examples;          // registry references to closures that new closures of their prototypes follow
  std::set<unsigned> own_children;    // constants of the children that are frames of their own
  std::vector<std::pair<std::weak_ptr<CompiledProto>, unsigned>>
      makers;                                         // whose `own_children` has this one; the constant
  decltype(makers) retired_makers;                    // those whose `own_children` had it
  std::map<bc::Pc, std::shared_ptr<Patched>> bodies;  // newest bytecode, as it is entered at a pc (switch_over)
  // The points of loops that were removed (gives_up, leave_loop), the hits since then, and the number of hits that
  // reopens them.
  std::set<bc::Pc> gone_on;
  int64_t hits_since = 0, brings_back_at = 1024;
};

// Calls f with each point, and with the points that stand for it under callers.
template <class Proto, class F>
void each_point(Proto& compiled, F f) {
  for (auto& [pc, point] : compiled.points) {
    f(point);
    for (auto& [callers, under] : point.with_callers) f(*under);
  }
}

// -- compiled_proto.cc

// Returns the compiled prototype of the Lua function at `index`, made if needed; null for a C function.
std::shared_ptr<CompiledProto> find_proto(CaptureState& state, lua_State* L, int index, const CaptureOptions& options,
                                          uint64_t serial);
// Returns the compiled prototype of the resume prototype that a segment of `parent` asks for; `kept`: its loops that
// are not unrolled. All segments of a root share one. So recursion and loops around calls make no chain of them.
std::shared_ptr<CompiledProto> resume_proto(CaptureState& state, lua_State* L, CompiledProto& parent,
                                            const ResumeRequest& request, const KeptLoops& kept);
// Frees the compiled prototypes that no function, frame or later call can enter (collect.cc). Called when the number of
// compiled prototypes has doubled, before one with this backend is made.
void collect_protos(CaptureState& state, lua_State* L, int backend_function);
// Adds the points at which segments may begin: after the instruction at pc has run (at its successors), or at pc
// itself. `kept`: loops that are known not to be unrolled.
void add_points_after(CompiledProto& compiled, bc::Pc pc, const KeptLoops& kept, EnteredLoop entered_loop = {});
void add_point(CompiledProto& compiled, bc::Pc pc, const KeptLoops& kept = {}, EnteredLoop entered_loop = {});
// Records that the variables of loops around the point have another value each time; kept: only those of these loops.
void note_variables(ProtoPoint& point, const LuaCode& code, const KeptLoops* kept = nullptr);
// Makes the compiled prototype's newest bytecode, if something has changed, and redirects its functions to it.
void refresh(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled);
// Pushes a clone of the function at `index` that runs the compiled prototype's newest bytecode; if `stub`, its stub,
// which is for the time before the first capture.
void push_clone(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int index,
                bool stub);
// Returns the compiled prototype's newest bytecode entered at pc, with that instruction's live slots as parameters. It
// is for a frame that runs older bytecode. Returns null if it cannot be made.
std::shared_ptr<Patched> body_at(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                                 bc::Pc pc);
// Records that the function at `index` follows the compiled prototype's bytecode.
void follow(lua_State* L, CompiledProto& compiled, int index);
void unfollow(lua_State* L, CompiledProto& compiled, int index);

struct PortalPlace {
  bc::Pc pc = 1;
  size_t exits = 0;  // number of exits in the bytecode that has this id
  bool stub = false;
  bool packs = false;       // its results come in a table
  bool can_switch = false;  // the last exit switches to newer bytecode
  uint64_t version = 0;     // of the compiled prototype's bytecode
};
struct Portal : PortalPlace {
  std::weak_ptr<CompiledProto> compiled;
  CompiledProto* address = nullptr;  // the same object, without the cost of a lock at each call
  ProtoPoint* point = nullptr;       // set once a call has looked for it
  Portal(const PortalPlace& place, const std::shared_ptr<CompiledProto>& compiled)
      : PortalPlace(place), compiled(compiled), address(compiled.get()) {}
};

// The portals by id. Ids are small numbers.
class Portals {
 public:
  Portal* find(int id) const { return size_t(id) < all_.size() ? all_[size_t(id)].get() : nullptr; }
  void add(int id, Portal portal) {
    if (all_.size() <= size_t(id)) all_.resize(size_t(id) + 1);
    all_[size_t(id)] = std::make_unique<Portal>(std::move(portal));
  }
  void erase(int id) {
    if (size_t(id) < all_.size()) all_[size_t(id)] = nullptr;
  }

 private:
  std::vector<std::unique_ptr<Portal>> all_;
};

}  // namespace lutra
