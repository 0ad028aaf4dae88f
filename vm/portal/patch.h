// A prototype and a description of portal points in, the patched prototype out; likewise resume prototypes. Pure: no
// lua_State here.
//
// What is emitted before the instruction at `pc`, with base = the framesize of the original:
//   KSHORT base, id; MOV base+2.., args; CALL base -> code, result 0, result 1 ...
//   code is nil or false: the original code goes on. code is an integer k: the exit with that code is taken:
//   moves (slots <- results), residual operations, then the resume.
// Ids above 32767 go as two arguments to the number kCallWide. Where a frame has no room for all arguments or results
// (250 slots), they go in chunks through tables: kCallPush, kCallRunPacked, kCallFetch.
//
// Invariants:
// 1. No constant, upvalue or child is added or moved, so one prototype can replace the other while frames run.
// 2. Only live, not hidden slots are arguments. Everything emitted lives at or above the original framesize.
// 3. The result passes bc::verify, and inserted instructions carry the line of the instruction at pc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vm/bytecode/dump.h"

namespace lutra {

// What a residual operation works on (Value is the argument of an op: ops/core/value.h).
struct PatchValue {
  enum class Kind : uint8_t {
    kSlot,     // a slot of the frame
    kResult,   // result `index` of the portal (0 is the first after the code)
    kTemp,     // a value that an earlier residual operation made
    kInteger,  // -32768 .. 32767
    kNil,
    kFalse,
    kTrue,
    kUpvalue,  // the value of upvalue `index`
  } kind = Kind::kNil;
  int index = 0;
  static PatchValue slot(int i) { return {Kind::kSlot, i}; }
  static PatchValue result(int i) { return {Kind::kResult, i}; }
  static PatchValue temp(int i) { return {Kind::kTemp, i}; }
  static PatchValue integer(int i) { return {Kind::kInteger, i}; }
  bool operator==(const PatchValue&) const = default;
  static PatchValue upvalue(int i) { return {Kind::kUpvalue, i}; }
  static PatchValue nil() { return {Kind::kNil, 0}; }
  static PatchValue boolean(bool b) { return {b ? Kind::kTrue : Kind::kFalse, 0}; }
};

struct Residual {
  enum class Kind : uint8_t {
    kMove,           // dst <- args[0]
    kSetField,       // args[0][args[1]] = args[2] by TSETV; capture promises that no metamethod is met
    kSetUpvalue,     // upvalue `index` = args[0]
    kNewTable,       // dst <- {} by TNEW with operand `index`
    kDupTable,       // dst <- TDUP of constant `index` of this prototype
    kClosure,        // dst <- FNEW of constant `index` of this prototype
    kCloseUpvalues,  // UCLO of slots >= index
    kCall,           // dst.. <- args[0](args[1] ..), `nresults` of them (only to slots; or temps where dst is one)
  } kind;
  PatchValue dst;  // a slot or a temp
  int index = 0;
  std::vector<PatchValue> args;
  int nresults = 0;
  bool operator==(const Residual&) const = default;
};

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
  bool varargs = false;  // kTailCall, kReturn: the frame's own varargs follow args
  std::vector<PatchValue> args;
  bool operator==(const Resume&) const = default;
};

struct Out {
  unsigned slot;
  int result;
  bool operator==(const Out&) const = default;
};

struct Exit {
  int code = 1;           // what the portal returns to take it: 1 .. 32767
  std::vector<Out> outs;  // done first, then residual in order, then resume
  std::vector<Residual> residual;
  Resume resume;
  bool operator==(const Exit&) const = default;
};

struct Point {
  bc::Pc pc = 0;
  int id = 0;
  std::vector<unsigned> args;  // slots passed, in this order
  bool varargs = false;        // the frame's varargs follow
  std::vector<Exit> exits;
};

struct Patch {
  std::vector<Point> points;  // at most one a pc
};

// Numbers below 0 that patched code calls; portal ids are above 0.
enum PortalCall : int {
  kCallWide = -1,       // (low 15 bits of the id, the rest, args ...) -> code, results
  kCallFetch = -2,      // (table, first index) -> values from there on
  kCallPush = -3,       // (table or nil, values ...) -> table
  kCallRunPacked = -4,  // (table or nil, low, high, pack results?, varargs ...) -> code, results or one table
};

// A patched prototype. Where each portal's CALL returns to is what makes a portal call unforgeable.
struct Site {
  bc::Pc return_pc;
  int id;  // 0 for the helpers (fetch, push)
};
struct Patched {
  bc::Dump dump;
  std::vector<Site> sites;
  std::vector<bc::Pc> moved;  // moved[old pc] = where that instruction is now
};

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
  bool packed = false;  // one parameter, a table made by pack_values (portal.h), instead of many
};

struct ResumeProto {
  Patched patched;               // sites is empty unless slots had to be fetched
  std::vector<unsigned> live;    // the slots that are parameters, in order
  std::vector<unsigned> hidden;  // those of `live` that are loop control: FOR index, limit and step; iterator triple
  std::vector<bc::Pc> old_pc;    // old_pc[new pc] = the instruction it stands for, 0 for added ones
};

// The parameters a resume prototype will have; an error text where the frame cannot be resumed there (a live slot is
// shared with a closure and may be assigned).
std::vector<unsigned> resume_slots(const bc::Proto& proto, bc::Pc pc, ResumeMode mode);
std::string why_not_resumable(const bc::Proto& proto, bc::Pc pc, ResumeMode mode);
ResumeProto build_resume(const bc::Dump& dump, const ResumeSpec& spec);

}  // namespace lutra
