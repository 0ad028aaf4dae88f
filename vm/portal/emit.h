// Emits the code of portals and resumes into a block: loads of values, calls through numbers, instructions that do what
// an original call did with another callee. Keeps track of how large the frame must be.
#pragma once

#include <functional>

#include "vm/portal/editor.h"

namespace lutra {

constexpr unsigned kMaxSlots = 250;
constexpr unsigned kShareSlots = 5;   // that a call takes which shares variables, beside two a variable
constexpr unsigned kFrameEnd = 0xff;  // operand A of jumps: filled in by Editor::finish

class PortalEmitter {
 public:
  // `scratch` is the first slot that is free for short use.
  PortalEmitter(const bc::Proto& proto, Block& block, unsigned scratch) : proto_(proto), b_(block), scratch_(scratch) {
    need(scratch);
  }
  Block& block() { return b_; }
  unsigned scratch() const { return scratch_; }
  void set_scratch(unsigned slot) { need(scratch_ = slot); }
  unsigned used() const { return used_; }
  void need(unsigned end);  // slots below `end` are used; fails where no frame has so many

  void add(bc::Ins i) { b_.add(i); }
  void move(unsigned dst, unsigned src) {
    if (dst != src) add(bc::ins_ad(bc::Op::MOV, dst, src));
  }
  // Writes nil to dead slots. LuaJIT's JIT remembers calls' frame slots in them, and a snapshot that reaches beyond
  // them (because a slot above is written) would restore frames that are gone.
  void clear(unsigned first, unsigned end) {
    if (first < end) add(bc::ins_ad(bc::Op::KNIL, first, end - 1));
  }
  void integer(unsigned dst, int v) { add(bc::ins_ad(bc::Op::KSHORT, dst, static_cast<uint16_t>(v))); }
  void jump(JumpTarget t) { b_.jump(bc::Op::JMP, kFrameEnd, t); }
  void jump_start(bc::Pc pc) { jump({JumpTarget::Kind::kStart, pc}); }
  void close_upvalues(unsigned from);
  // Calls slot `callee` with `nargs` arguments already in callee+2.., for nresults results (-1: all).
  void call(unsigned callee, unsigned nargs, int nresults, int site_id = -1);
  // Values first .. first+n-1 of the table in slot `table` to scratch on; room for `n` is the caller's.
  void fetch(unsigned table, int first, unsigned n);
  // Gives the closure that `load(slot)` puts into a slot variables of the frame.
  void share(const Share& s, const std::function<void(unsigned slot)>& load);
  unsigned fetch_room() const { return kMaxSlots - scratch_ - 1; }

  // Does what the instruction at pc does to the frame, its call being that of the function that `load(callee)` puts
  // into slot callee and `nargs` arguments after it (from callee + 2 on); then jumps behind it.
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

// An FNEW of another prototype than the original gives other hashes to variables (closures.cc): behind each that
// matters stands a call that puts them right. No trace has an FNEW, so none has that call. A frame without room for it
// has none for points, and goes without. Returns the frame's size.
unsigned keep_hashes(const bc::Proto& proto, Editor& editor, const std::set<unsigned>& born = {});
constexpr unsigned kHashSlots = 3;            // of the frame
bool makes_closures(const bc::Proto& proto);  // with variables that are assigned

}  // namespace lutra
