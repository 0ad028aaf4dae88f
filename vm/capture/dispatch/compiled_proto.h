// A compiled prototype: one function as it is compiled with one set of options. Its points are the places where portals
// stand; each point has entries, each entry a guard program with the compiled segment it protects.
// Invariants:
// 1. Entries belong to the prototype: closures of it share the compiled prototype, upvalues are guarded.
// 2. An exit is only taken by bytecode that has it: a portal id names a point and how many exits its bytecode knows.
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
  uint64_t serial;  // explain has compiled prototypes of its own
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

// The loop of a frame that lt.auto has entered while it ran: what is behind the loop runs once, and is not compiled.
// The frame stays one of its function: it follows that one's bytecode, and goes over to nothing.
struct Within {
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
  std::vector<std::shared_ptr<Entry>> entries;  // of few, the most recent hit first; of many, the newest
  std::shared_ptr<EntryTree> tree;              // over many entries
  int compiling = 0;                            // entries that the background compiles
  bool dead = false;                            // never again: nothing to compile here, or the limit was reached
  bool limit_reached = false;
  bool breaks_for_places = false;  // it was told that inputs lie in each call elsewhere in a memory that they share
  int misses = 0;                  // since the limit was reached, less those that hits have made up for
  int worth = 0;                   // what asking entries has gained since then: see rests
  uint32_t rests = 0;              // calls that may have asked no entry
  int size_misses = 0;             // runs that were given up for a size that elements decided
  bool enters_callees = true;
  Within within{};
  int idle_calls = 0;         // in a row, that ran nothing
  int idle_rounds = 0;        // in all, less the calls that ran something
  std::set<bc::Pc> ops_at{};  // where the entries' first ops are; 0: in a frame above
  bool given_up = false;      // for now, since it ran nothing for long: see revive
  double saved_ms = 0;        // by what entries have run, less what the portal's calls took
  double spent_ms = 0;        // in captures: time of CPU
  double needs_ms = 0;        // a capture of lt.auto's was given up: how long the next may take
  int idle_captures = 0;      // without an op, since the last one with
  std::map<std::string, std::set<int>> dynamic_dims;
  std::map<std::string, std::set<std::string>> changing_values;  // by source: what misses brought, a few of them
  std::set<std::string> loose_functions;
  bool parts = false;                          // the last miss has parted calls: entries are made anew
  std::map<std::string, bool> loop_variables;  // of TraceOptions
  TraceDecisions decisions;                    // loops kept by earlier captures
  int id = 0;                                  // of its portal in the newest bytecode; 0: it has none
  bool packs = false;                          // which takes results in a table
  // The first segment here has ended in this frame: others do, too. Or in one above, which it had returned to: then
  // entries are told by the frames above.
  bool stays = false, crosses = false;
  std::map<std::vector<uint64_t>, std::shared_ptr<ProtoPoint>> with_callers{};
  size_t most_callers = 34;       // the frames above that entries may go on in
  std::map<int, int> steered{};   // by how many calls up: misses that only taught that this frame goes another way
  std::vector<int> firsts{};      // of a point under callers: where their values begin among a call's
  std::weak_ptr<Entry> awaits{};  // of a frame below: it goes on behind this point, as soon as it has its code
  int missed_level = 0;           // likewise: whose values the last miss was of, and taught nothing
};

// A call in patched bytecode: the original's that it stands for (0: none), and the slots that are known behind that.
struct CallSite {
  bc::Pc call = 0;
  std::vector<unsigned> args;
  bool enters = false;  // the call that a rebuilt frame begins with
};

struct CompiledProto : std::enable_shared_from_this<CompiledProto> {
  uint64_t serial = 0;
  ProtoKey key{};
  CaptureOptions options;
  std::unique_ptr<LuaCode> code;
  std::string name;  // file:line of the function
  std::map<bc::Pc, ProtoPoint> points;
  std::map<bc::Pc, size_t> called_ops;  // by call: the most ops that an entry has inlined
  std::set<bc::Pc> parted_calls;        // a point came to its limit: these callees are frames of their own
  std::shared_ptr<Patched> patched;     // newest; null before the first capture
  bool changed = true;
  double patch_ms = 0;                                          // what making `patched` took: time of CPU
  uint64_t version = 0;                                         // of patched; no other compiled prototype has had it
  std::map<uint64_t, std::shared_ptr<const Patched>> versions;  // that frames may run
  std::map<std::pair<uint64_t, bc::Pc>, std::shared_ptr<const CallSite>>
      call_sites;  // by version, by where calls return to
  // By version: where code->loops() have their ITERC or ITERN. Empty where none has.
  std::map<uint64_t, std::vector<bc::Pc>> iterators;
  int functions = 0;  // registry reference of a weak table: closure -> true, those redirected to us
  int stub_id = 0;
  bool fresh_capture = false;  // the stub has just captured: the hit that follows is its own
  std::vector<int> ids;        // portal ids of all versions
  bool automatic = false;      // nobody but lt.auto has asked for it
  bool callee = false;         // nobody but segments that leave it to Lua (callees.h)
  bool failed = false;         // an internal error: original bytecode from now on
  std::shared_ptr<std::vector<Recompile>> recompiles = std::make_shared<std::vector<Recompile>>();
  std::shared_ptr<std::vector<std::shared_ptr<Entry>>> log = std::make_shared<std::vector<std::shared_ptr<Entry>>>();
  std::shared_ptr<std::vector<BreakReason>> breaks = std::make_shared<std::vector<BreakReason>>();
  // Of what it inlines, at any depth.
  std::map<std::pair<bc::Pc, std::string>, std::shared_ptr<CompiledProto>> resumes;
  std::vector<Site> helpers;      // calls of its code that share variables, of a rebuilt frame's
  CompiledProto* root = nullptr;  // that has this one among its resumes
  bool is_outermost = false;      // the rest of a frame of the root's own function
  Stand first_call{};             // that it begins with, and the call of its code that this stands for; 0: none
  // Of a root: frames of their own that its segments leave to Lua.
  std::vector<std::weak_ptr<CompiledProto>> callees;
  // Of a root: what entries have saved that rebuild frames, or run in rebuilt ones; where that is too little, calls
  // whose callees break are left to Lua (note_rebuilt).
  double rebuilt_ms = 0;
  bool leaves_calls = false;
  int64_t hits = 0, revives_at = 64;  // of its points, while it has callees
  std::vector<int> examples;          // registry references: closures that newborn ones of their prototypes follow
  std::set<unsigned> born;            // constants: children that are frames of their own
  std::vector<std::pair<std::weak_ptr<CompiledProto>, unsigned>> makers;  // whose `born` has this one
  decltype(makers) retired_makers;                                        // whose had it
  std::map<bc::Pc, std::shared_ptr<Patched>> bodies;  // newest bytecode as it is entered at a pc (switch_over)
  // Points of loops that have gone: see gives_up and leave_loop. Hits since then, and how many bring them back.
  std::set<bc::Pc> gone_on;
  int64_t hits_since = 0, brings_back_at = 1024;
};

// f(point) of all points, and of what they are under callers.
template <class Proto, class F>
void each_point(Proto& compiled, F f) {
  for (auto& [pc, point] : compiled.points) {
    f(point);
    for (auto& [callers, under] : point.with_callers) f(*under);
  }
}

// -- compiled_proto.cc

// The compiled prototype of the Lua function at `index`; null for a C function.
std::shared_ptr<CompiledProto> find_proto(CaptureState& state, lua_State* L, int index, const CaptureOptions& options,
                                          uint64_t serial);
// The compiled prototype of a resume prototype that a segment of parent asks for, with the loops that it has kept.
// One for all segments of a root: recursion and loops around calls make no chain of them.
std::shared_ptr<CompiledProto> resume_proto(CaptureState& state, lua_State* L, CompiledProto& parent,
                                            const ResumeRequest& request, const KeptLoops& kept);
// collect.cc: frees what no function, frame or later call can enter. Called as the number of compiled prototypes
// doubles, before a compiled prototype with that backend is made.
void collect_protos(CaptureState& state, lua_State* L, int backend_function);
// Points where segments may begin after the instruction at pc has run (successors) or at pc itself, with the loops that
// are known not to be unrolled.
void add_points_after(CompiledProto& compiled, bc::Pc pc, const KeptLoops& kept, Within within = {});
void add_point(CompiledProto& compiled, bc::Pc pc, const KeptLoops& kept = {}, Within within = {});
// The variables of loops around the point are other numbers each time; kept: of these loops only.
void note_variables(ProtoPoint& point, const LuaCode& code, const KeptLoops* kept = nullptr);
// Makes the newest bytecode of the compiled prototype and redirects its functions to it.
void refresh(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled);
// Pushes a clone of the function at `index` that runs the compiled prototype's newest bytecode (its stub before the
// first capture).
void push_clone(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int index,
                bool stub);
// The compiled prototype's newest bytecode entered at pc with that instruction's live slots as parameters, for a frame
// that runs older bytecode; null where it cannot be.
std::shared_ptr<Patched> body_at(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                                 bc::Pc pc);
// Remembers the function at `index` as one that follows the compiled prototype's bytecode.
void follow(lua_State* L, CompiledProto& compiled, int index);
void unfollow(lua_State* L, CompiledProto& compiled, int index);

struct PortalPlace {
  bc::Pc pc = 1;
  size_t exits = 0;  // known to the bytecode that has this id
  bool stub = false;
  bool packs = false;       // its results come in a table
  bool can_switch = false;  // the last exit goes over to newer bytecode
  uint64_t version = 0;     // of the compiled prototype's bytecode
};
struct Portal : PortalPlace {
  std::weak_ptr<CompiledProto> compiled;
  CompiledProto* address = nullptr;  // likewise: what each call asks for
  ProtoPoint* point = nullptr;       // of the compiled prototype, once a call has looked for it
  Portal(const PortalPlace& place, const std::shared_ptr<CompiledProto>& compiled)
      : PortalPlace(place), compiled(compiled), address(compiled.get()) {}
};

// Portals by id, which are small numbers.
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
