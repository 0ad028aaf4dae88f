// Emits the code of portals and resumes into a block: loads of values, calls of numbers, and calls that behave like an
// original call but have another callee. Tracks how large the frame must be.
#pragma once

#include <functional>

#include "vm/portal/editor.h"

namespace lutra {

constexpr unsigned kMaxSlots = 250;
constexpr unsigned kShareSlots = 5;   // slots of a call that shares upvalues, in addition to two for each upvalue
constexpr unsigned kFrameEnd = 0xff;  // placeholder for operand A of jumps, which Editor::finish fills in

class PortalEmitter {
 public:
  // `scratch` is the first temporary slot.
  PortalEmitter(const bc::Proto& proto, Block& block, unsigned scratch) : proto_(proto), b_(block), scratch_(scratch) {
    need(scratch);
  }
  Block& block() { return b_; }
  unsigned scratch() const { return scratch_; }
  void set_scratch(unsigned slot) { need(scratch_ = slot); }
  unsigned used() const { return used_; }
  void need(unsigned end);  // marks the slots below `end` as used; fails if a frame cannot have so many

  void add(bc::Ins i) { b_.add(i); }
  void move(unsigned dst, unsigned src) {
    if (dst != src) add(bc::ins_ad(bc::Op::MOV, dst, src));
  }
  // Writes nil to dead slots. LuaJIT's JIT remembers the frame slots of earlier calls in them. A snapshot that reaches
  // beyond them (because a slot above is written) would restore frames that no longer exist.
  void clear(unsigned first, unsigned end) {
    if (first < end) add(bc::ins_ad(bc::Op::KNIL, first, end - 1));
  }
  void integer(unsigned dst, int v) { add(bc::ins_ad(bc::Op::KSHORT, dst, static_cast<uint16_t>(v))); }
  void jump(JumpTarget t) { b_.jump(bc::Op::JMP, kFrameEnd, t); }
  void jump_start(bc::Pc pc) { jump({JumpTarget::Kind::kStart, pc}); }
  void close_upvalues(unsigned from);
  // Calls slot `callee` with the `nargs` arguments in callee+2.., for nresults results (-1: all).
  void call(unsigned callee, unsigned nargs, int nresults, int site_id = -1);
  // Loads values first .. first+n-1 of the table in slot `table` into the slots from scratch on. The caller makes sure
  // that there is room for `n`.
  void fetch(unsigned table, int first, unsigned n);
  // Makes the closure that `load(slot)` loads into a slot share upvalues with the frame.
  void share(const Share& s, const std::function<void(unsigned slot)>& load);
  unsigned fetch_room() const { return kMaxSlots - scratch_ - 1; }

  // Emits a call with the same effect on the frame as the instruction at pc, and then a jump after that instruction.
  // `load(callee)` loads the function into slot callee and its `nargs` arguments into the slots from callee + 2 on.
  void call_like(bc::Pc pc, unsigned nargs, const std::function<void(unsigned callee)>& load);

 private:
  void emit_like(bc::Pc pc, unsigned nargs, const std::function<void(unsigned callee)>& load);
  void copy_takers(bc::Pc pc);
  void name_callee(bc::Pc pc, unsigned callee);
  void name_callees(bc::Pc pc, unsigned callee);
  const bc::Proto& proto_;
  Block& b_;
  unsigned scratch_;
  unsigned used_ = 0;
};

// Adds a call after each FNEW that restores the hashes of upvalues: an FNEW of a prototype other than the original
// gives them other hashes (closures.cc). No trace contains an FNEW, so none contains that call. A frame without room
// for the call has no room for points either, and gets none. Returns the frame size that the calls need; 0 if there are
// none.
unsigned keep_hashes(const bc::Proto& proto, Editor& editor, const std::set<unsigned>& newborn_children = {});
constexpr unsigned kHashSlots = 3;            // slots that the frame needs for that call
bool makes_closures(const bc::Proto& proto);  // whether it makes closures with upvalues that are assigned

}  // namespace lutra
