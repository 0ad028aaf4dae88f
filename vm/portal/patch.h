// Builds patched prototypes from a prototype and a description of portal points, and resume prototypes. Pure: it uses
// no lua_State.
//
// The code before the instruction at `pc`, with base = the framesize of the original:
//   KSHORT base, id; MOV base+2.., args; CALL base -> code, result 0, result 1 ...
//   code is nil or false: the original code goes on. code is an integer k: the exit with that code is taken:
//   moves (slots <- results), then the resume.
// Ids above 32767 are passed as two arguments to the number kCallWide. If a frame has no room for all arguments or
// results (250 slots), they are passed in chunks through tables: kCallPush, kCallRunPacked, kCallFetch.
//
// Invariants:
// 1. No constant, upvalue or child is added or moved, so one prototype can replace the other while frames of it run.
// 2. Only live slots that are not hidden are arguments. Emitted code uses only slots at or above the original
//    framesize.
// 3. The result passes bc::verify, and inserted instructions carry the line of the instruction at pc.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "vm/bytecode/dump.h"

namespace lutra {

// The way in which a frame continues after an exit.
struct Resume {
  enum class Kind : uint8_t {
    kPc,      // continues at `pc` of this frame. A portal there is called, unless past_portal
    kReturn,  // returns `args`
    kCall,    // runs the call instruction at `pc`, but calls args[0] with args[1..]; stores its results as that
              // instruction does and continues at pc + 1. For a CALLT or CALLMT this is a tail call. For an instruction
              // whose metamethod (or iterator) was inlined, the result is stored like the metamethod's
    kTailCall,  // returns args[0](args[1..])
  } kind = Kind::kPc;
  bc::Pc pc = 0;
  bool past_portal = false;
  bool varargs = false;   // kTailCall, kReturn: the frame's own varargs follow args
  std::vector<int> args;  // indices of the portal's results (0 is the first after the code)
  bool operator==(const Resume&) const = default;
};

struct Out {
  unsigned slot;
  int result;
  bool operator==(const Out&) const = default;
};

// A closure that the portal has made (a result) and that shares upvalues with the frame, as a closure of the frame's
// child made by FNEW would.
struct Share {
  int result = 0;
  unsigned child = 0;                                   // constant of the frame's function
  std::vector<std::pair<unsigned, unsigned>> upvalues;  // index in the closure, index in the child
  bool operator==(const Share&) const = default;
};

struct Exit {
  int code = 1;               // the code that the portal returns to take this exit: 1 .. 32767
  std::vector<Out> outs;      // written first
  std::vector<Share> shares;  // shared next, before the resume
  Resume resume;
  // Before everything else: last values of variables that went out of scope, and the first slot whose open upvalues are
  // closed.
  std::vector<Out> last{};
  int closes_from = -1;  // none
  bool operator==(const Exit&) const = default;
};

struct Point {
  bc::Pc pc = 0;
  int id = 0;
  std::vector<unsigned> args;  // slots that are passed, in this order
  bool varargs = false;        // the frame's varargs follow
  std::vector<Exit> exits;
};

// A portal's call, identified by its return address, which programs cannot forge.
struct Site {
  bc::Pc return_pc;
  int id;  // 0 for the helpers (fetch, push, share, hash)
};

struct Patch {
  std::vector<Point> points;              // at most one for each pc
  std::set<unsigned> newborn_children{};  // constants of children whose new closures adopt_newborn sees (run_newborn)
  std::vector<Site> helpers{};            // helper calls that the prototype already contains
};

// Numbers below 0 that patched code calls; portal ids are above 0.
enum PortalCall : int {
  kCallWide = -1,       // (low 15 bits of the id, the rest, args ...) -> code, results
  kCallFetch = -2,      // (table, first index, count) -> at most `count` values from there on
  kCallPush = -3,       // (table or nil, values ...) -> table
  kCallShare = -5,      // (closure of the child, closure, pairs of upvalues ...): see Share
  kCallHash = -6,       // (closure that the function has made): gives its upvalues the original's hashes
  kCallRunPacked = -4,  // (table or nil, low, high, pack results?, varargs ...) -> code, results or one table
};

// A call in new code that stands for the original call at `pc`.
struct Stand {
  bc::Pc return_pc;
  bc::Pc pc;
};
// A patched prototype.
struct Patched {
  bc::Dump dump;
  std::vector<Site> sites;
  std::vector<bc::Pc> moved;  // moved[old pc] = new pc of that instruction
  std::vector<Stand> stands;
  bool resumed = false;  // the rest of a frame, whose parameters are the live slots at a pc
  uint64_t version = 0;  // a number that its maker chose, see version_of
};

// Returns whether the frame has room for points.
bool has_room(const bc::Proto& proto);
// Returns whether the point's call receives its results in a table, because the frame has no room for them.
bool packs_results(const bc::Proto& proto, const Point& point);
bool has_room_for_stub(const bc::Proto& proto);

// Builds the patched prototype. Throws lutra::Error if a point breaks a rule (not insertable, a dead or hidden
// argument, no room in the frame).
Patched apply_patch(const bc::Dump& dump, const Patch& patch);

// Builds the first prototype of a compiled function. At entry it calls portal `id` with its parameters and varargs. If
// the portal returns a function, it tail-calls that with the same arguments; else the original code runs.
Patched make_stub(const bc::Dump& dump, int id);

// --- Resume prototypes: the same function, entered at a pc with its live slots as parameters.

enum class ResumeMode : uint8_t {
  kAt,         // parameters: live slots (ascending). Continues at pc
  kAfterCall,  // parameters: live slots, callee, its `num_args` arguments. Calls it as the CALL (or other instruction
               // whose metamethod was inlined) at pc would, and continues after it
};

struct ResumeSpec {
  bc::Pc pc = 0;
  ResumeMode mode = ResumeMode::kAt;
  int num_args = 0;
  // Closures that share upvalues with the frame. They are the last `closures` parameters; a Share's `result` is a
  // parameter's index from 0. nullopt: the sharing closures are unknown.
  int closures = 0;
  std::optional<std::vector<Share>> shares{};
};

struct ResumeProto {
  Patched patched;               // its sites are the calls that share upvalues
  std::vector<unsigned> live;    // the live slots that are parameters, in order
  std::vector<unsigned> hidden;  // those of `live` that are loop control: FOR index, limit and step; iterator triple
  std::vector<bc::Pc> old_pc;    // old_pc[new pc] = pc of the original instruction, 0 for added ones
};

// resume_slots returns the slots that are parameters of a resume prototype. why_not_resumable returns why the frame
// cannot be resumed at pc, or an empty string. knows_shares: the closures that share assigned slots are known.
std::vector<unsigned> resume_slots(const bc::Proto& proto, bc::Pc pc, ResumeMode mode);
std::string why_not_resumable(const bc::Proto& proto, bc::Pc pc, ResumeMode mode, bool knows_shares = false);
bool has_room(const bc::Proto& proto, const ResumeSpec& spec);
ResumeProto build_resume(const bc::Dump& dump, const ResumeSpec& spec);

}  // namespace lutra
