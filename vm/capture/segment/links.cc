// Finds the frames of a finished trace that have to be rebuilt.
#include "vm/capture/segment/links.h"

#include <algorithm>
#include <lua.hpp>

#include "vm/capture/segment/call_ops.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/mirror/mirror.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/patch.h"

namespace lutra {

std::vector<Link> chain(Trace& t) {
  std::vector<Link> links;
  Link pending{nullptr, {}, false};
  for (Frame* f : t.frames) {
    Link l{f, {}, f->expression};
    if (pending.frame) {  // f was tail-called, so it returns to the caller of the frame before
      l.modes = pending.modes;
      l.expression = l.expression || pending.expression;
    }
    for (const ModeCall& mode : f->modes) l.modes.push_back(&mode);
    pending = f->tail ? l : Link{nullptr, {}, false};
    if (!f->tail) links.push_back(l);
  }
  return links;
}

std::string obstacle(Trace& t, const Link& l, bool last) {
  Frame& f = *l.frame;
  const bc::Op op = bc::op(f.code->proto().code[f.pc]);
  if (f.is_builtin()) return "a function of Lua's library";
  for (const ModeCall* mode : l.modes) {
    if (mode->via == Via::kCoroutine) return "a coroutine that is made in the graph";
  }
  if (l.expression && !l.modes.empty()) return "a call that is made by C";
  if (f.function->kind != VarKind::kFunction && (f.function->builtin || !mirror::available(t.L))) {
    return "a closure made in the frame";
  }
  const bool takes = takes_multres(op) || keeps_multres(f.code->proto(), f.pc);
  if (last && takes && !is_call(op)) return "a list of results";
  if (!last && !calls(op)) return "a call that is not a call instruction";
  const bool after = !last || takes_multres(op);
  return why_not_resumable(f.code->proto(), f.pc, after ? ResumeMode::kAfterCall : ResumeMode::kAt, true);
}

bool leaves_real_frame(Trace& t, const std::vector<Link>& links) {
  Frame& f = *t.frames[0];
  // Not if closures from before the segment share variables of the frame, and not under lt.auto, which keeps the frames
  // that it has entered.
  if (links.size() < 2 || f.active.empty() || !t.open_slots.empty() || t.options.automatic) return false;
  if (f.function->kind != VarKind::kFunction || !obstacle(t, links[0], false).empty()) return false;
  t.push_pin(f.function->pin);
  const bool resumed = is_resumed(t.L, lua_gettop(t.L));
  lua_pop(t.L, 1);
  return !resumed;
}

bool keep_a_loop(Trace& t, TraceDecisions& d, bool is_long) {
  const std::vector<Link> links = chain(t);
  const bool leaves = leaves_real_frame(t, links);
  for (Frame* f : t.frames) {
    const bc::Op op = bc::op(f->code->proto().code[f->pc]);
    const bool calls = !f->is_builtin() && is_call(op);
    const bool iterates = f->is_builtin() || op == bc::Op::ITERC;
    if (!is_long && calls && t.differs_in_rounds(*f)) continue;
    for (const bc::Loop* l : f->active) {
      // At its own head the loop has not been entered yet.
      if (f->pc == l->head && f == t.frames.back()) continue;
      const bool goes_on = !iterates && !f->began_in(*l) && (f != t.frames[0] || leaves);
      if (!is_long && goes_on && has_few_rounds(t, *f, *l)) continue;
      if (!d.kept_loops.insert({&f->code->proto(), l->head}).second) continue;
      // The loop's iterator, or the function that a library function calls in it.
      if (iterates) t.leave_out(*f);
      return true;
    }
  }
  return false;
}

Vars call_operands(Trace& t, Frame& f) {
  const bc::Ins i = f.code->proto().code[f.pc];
  const unsigned a = bc::op_a(i);
  unsigned n = bc::op(i) == bc::Op::CALL ? bc::op_c(i) - 1 : bc::op_c(i);
  if (bc::op(i) == bc::Op::CALLT) n = bc::op_d(i) - 1;
  if (bc::op(i) == bc::Op::CALLMT) n = bc::op_d(i);
  Vars v{t.slot(f, a)};
  for (unsigned k = 0; k < n; k++) v.push_back(t.slot(f, a + 2 + k));
  if (takes_multres(bc::op(i))) v.insert(v.end(), f.multres.begin(), f.multres.end());
  return v;
}

bc::Slots live_behind(const Frame& f) {
  const bc::Proto& proto = f.code->proto();
  bc::Slots live;
  for (bc::Pc next : bc::successors(proto, f.pc)) live |= f.code->liveness().before[next];
  return live & ~bc::effects(proto, f.pc).writes;
}

}  // namespace lutra
