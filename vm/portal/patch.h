// A prototype and a description of portal points in, the patched prototype out; likewise resume prototypes. Pure: no
// lua_State here.
//
// What is emitted before the instruction at `pc`, with base = the framesize of the original:
//   KSHORT base, id; MOV base+2.., args; CALL base -> code, result 0, result 1 ...
//   code is nil or false: the original code goes on. code is an integer k: the exit with that code is taken:
//   moves (slots <- results), then the resume.
// Ids above 32767 go as two arguments to the number kCallWide. Where a frame has no room for all arguments or results
// (250 slots), they go in chunks through tables: kCallPush, kCallRunPacked, kCallFetch.
//
// Invariants:
// 1. No constant, upvalue or child is added or moved, so one prototype can replace the other while frames run.
// 2. Only live, not hidden slots are arguments. Everything emitted lives at or above the original framesize.
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

// How the frame goes on after an exit.
struct Resume {
  enum class Kind : uint8_t {
    kPc,        // at `pc` of this frame. If a portal stands there it is called, unless past_portal
    kReturn,    // returns `args`
    kCall,      // does the call instruction at `pc`, but of args[0] with args[1..]; its results go where it wants them,
                // then on at pc + 1. For a CALLT or CALLMT this is a tail call; for an instruction whose metamethod
                // (or iterator) was inlined the result goes where the metamethod's would
    kTailCall,  // returns args[0](args[1..])
  } kind = Kind::kPc;
  bc::Pc pc = 0;
  bool past_portal = false;
  bool varargs = false;   // kTailCall, kReturn: the frame's own varargs follow args
  std::vector<int> args;  // results of the portal (0 is the first after the code)
  bool operator==(const Resume&) const = default;
};

struct Out {
  unsigned slot;
  int result;
  bool operator==(const Out&) const = default;
};

// A closure that the portal has made (a result) gets variables of the frame, as the closure that an FNEW of the frame's
// child would have them.
struct Share {
  int result = 0;
  unsigned child = 0;                                   // constant of the frame's function
  std::vector<std::pair<unsigned, unsigned>> upvalues;  // of the closure, of the child
  bool operator==(const Share&) const = default;
};

struct Exit {
  int code = 1;               // what the portal returns to take it: 1 .. 32767
  std::vector<Out> outs;      // done first,
  std::vector<Share> shares;  // then these, then resume
  Resume resume;
  // Before all: variables that have gone out of scope get their last values. The open ones from that slot on are
  // closed.
  std::vector<Out> last{};
  int closes_from = -1;  // none
  bool operator==(const Exit&) const = default;
};

struct Point {
  bc::Pc pc = 0;
  int id = 0;
  std::vector<unsigned> args;  // slots passed, in this order
  bool varargs = false;        // the frame's varargs follow
  std::vector<Exit> exits;
};

// Where each portal's CALL returns to is what makes a portal call unforgeable.
struct Site {
  bc::Pc return_pc;
  int id;  // 0 for the helpers (fetch, push, share, hash)
};

struct Patch {
  std::vector<Point> points;    // at most one a pc
  std::set<unsigned> born{};    // constants: children of which each closure is shown to the portal (run_newborn)
  std::vector<Site> helpers{};  // calls that the prototype makes already
};

// Numbers below 0 that patched code calls; portal ids are above 0.
enum PortalCall : int {
  kCallWide = -1,       // (low 15 bits of the id, the rest, args ...) -> code, results
  kCallFetch = -2,      // (table, first index) -> values from there on
  kCallPush = -3,       // (table or nil, values ...) -> table
  kCallShare = -5,      // (closure of the child, closure, pairs of upvalues ...): see Share
  kCallHash = -6,       // (closure that the function has made): its variables get the hashes of the original's
  kCallRunPacked = -4,  // (table or nil, low, high, pack results?, varargs ...) -> code, results or one table
};

// A patched prototype.
// A call in new code that stands for the original's at `pc`.
struct Stand {
  bc::Pc return_pc;
  bc::Pc pc;
};
struct Patched {
  bc::Dump dump;
  std::vector<Site> sites;
  std::vector<bc::Pc> moved;  // moved[old pc] = where that instruction is now
  std::vector<Stand> stands;
  bool resumed = false;  // the rest of a frame: it takes what is live at a pc
  uint64_t version = 0;  // a number of whoever made it, see version_of
};

// Is there room in the frame for points; for a stub?
bool has_room(const bc::Proto& proto);
// Whether the point's call takes its results in a table, since the frame has no room for them.
bool packs_results(const bc::Proto& proto, const Point& point);
bool has_room_for_stub(const bc::Proto& proto);

// Throws lutra::Error where a point breaks a rule (not insertable, a dead or hidden argument, no room in the frame).
Patched apply_patch(const bc::Dump& dump, const Patch& patch);

// The first prototype of a compiled function. At entry it calls portal `id` with its parameters and varargs; where the
// portal returns a function it is tail called with the same arguments, else the original code runs.
Patched make_stub(const bc::Dump& dump, int id);

// --- Resume prototypes: the same function, entered at a pc with its live slots as parameters.

enum class ResumeMode : uint8_t {
  kAt,         // parameters: live slots (ascending). Goes on at pc
  kAfterCall,  // parameters: live slots, callee, its `num_args` arguments. Calls as the CALL (or other instruction
               // whose metamethod was inlined) at pc would and goes on after it
};

struct ResumeSpec {
  bc::Pc pc = 0;
  ResumeMode mode = ResumeMode::kAt;
  int num_args = 0;
  // Closures that have variables of the frame, which are parameters: `closures` of them behind all others. Their
  // `result` is a parameter, counted from 0. None: it is not known which there are.
  int closures = 0;
  std::optional<std::vector<Share>> shares{};
};

struct ResumeProto {
  Patched patched;               // its sites are the calls that share variables
  std::vector<unsigned> live;    // the slots that are parameters, in order
  std::vector<unsigned> hidden;  // those of `live` that are loop control: FOR index, limit and step; iterator triple
  std::vector<bc::Pc> old_pc;    // old_pc[new pc] = the instruction it stands for, 0 for added ones
};

// The parameters a resume prototype will have; an error text where the frame cannot be resumed there. knows_shares: it
// is known which closures have slots that may be assigned.
std::vector<unsigned> resume_slots(const bc::Proto& proto, bc::Pc pc, ResumeMode mode);
std::string why_not_resumable(const bc::Proto& proto, bc::Pc pc, ResumeMode mode, bool knows_shares = false);
bool has_room(const bc::Proto& proto, const ResumeSpec& spec);
ResumeProto build_resume(const bc::Dump& dump, const ResumeSpec& spec);

}  // namespace lutra
