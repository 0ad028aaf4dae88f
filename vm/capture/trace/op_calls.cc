// Calls, varargs and returns.
#include "vm/capture/trace/interpreter.h"

namespace lutra {
namespace {

Vars slots(Trace& t, Frame& f, unsigned from, unsigned count) {
  Vars v;
  for (unsigned i = 0; i < count; i++) v.push_back(t.slot(f, from + i));
  return v;
}

void append(Vars& to, const Vars& more) { to.insert(to.end(), more.begin(), more.end()); }

// Stores the results of a call at base A: B - 1 of them, or all as MULTRES.
void place(Trace& t, Frame& f, unsigned base, unsigned b, const Vars& results) {
  if (b == 0) {
    f.multres = results;
    f.multres_step = f.step;
    return;
  }
  for (unsigned i = 0; i + 1 < b; i++) t.set(f, base + i, i < results.size() ? results[i] : t.nil());
}

void op_call(Trace& t, Frame& f, bc::Ins i) {
  const unsigned a = op_a(i);
  Vars args = slots(t, f, a + 2, bc::op(i) == Op::CALL ? op_c(i) - 1 : op_c(i));
  if (bc::op(i) == Op::CALLM) append(args, f.multres);
  place(t, f, a, op_b(i), t.call(t.slot(f, a), args));
}

void op_call_tail(Trace& t, Frame& f, bc::Ins i) {
  const unsigned a = op_a(i);
  Vars args = slots(t, f, a + 2, bc::op(i) == Op::CALLT ? op_d(i) - 1 : op_d(i));
  if (bc::op(i) == Op::CALLMT) append(args, f.multres);
  f.tail = t.frames.size() > 1;
  Vars results = t.call(t.slot(f, a), args);
  f.results = results;
  f.done = true;
}

void op_return(Trace& t, Frame& f, bc::Ins i) {
  switch (bc::op(i)) {
    case Op::RET0: break;
    case Op::RET1: f.results = {t.slot(f, op_a(i))}; break;
    case Op::RET: f.results = slots(t, f, op_a(i), op_d(i) - 1); break;
    default:  // RETM
      f.results = slots(t, f, op_a(i), op_d(i));
      append(f.results, f.multres);
  }
  f.done = true;
}

void op_vararg(Trace& t, Frame& f, bc::Ins i) { place(t, f, op_a(i), op_b(i), f.varargs); }

}  // namespace

bool is_plain_call(Op op) { return op == Op::CALL || op == Op::CALLM; }

const Var* call_operand(const Frame& f, unsigned n) {
  const bc::Ins i = f.code->proto().code[f.pc];
  const bool tail = bc::op(i) == Op::CALLT || bc::op(i) == Op::CALLMT;
  if (!tail && !is_plain_call(bc::op(i))) return nullptr;
  const bool takes_list = bc::op(i) == Op::CALLM || bc::op(i) == Op::CALLMT;
  const unsigned operands = (tail ? op_d(i) : op_c(i)) + takes_list;  // with the function
  if (n >= operands && n > 0) return nullptr;
  const unsigned slot = op_a(i) + (n ? n + 1 : 0);
  return slot < f.cells.size() && f.cells[slot] ? f.cells[slot]->value : f.slots[slot];
}

void place_results(Trace& t, Frame& f, const Vars& results) {
  const bc::Ins call = f.code->proto().code[f.pc];
  place(t, f, op_a(call), op_b(call), results);
}

void install_calls(Handlers& h) {
  h.set(Op::CALL, op_call);
  h.set(Op::CALLM, op_call);
  h.set(Op::CALLT, op_call_tail);
  h.set(Op::CALLMT, op_call_tail);
  for (Op op : {Op::RET, Op::RET0, Op::RET1, Op::RETM}) h.set(op, op_return);
  h.set(Op::VARG, op_vararg);
}

}  // namespace lutra
