// Constants, moves, upvalues and closures.
#include "vm/capture/trace/cdata.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/regions.h"

namespace lutra {
namespace {

Var* primitive(Trace& t, unsigned d) { return d == 0 ? t.nil() : t.boolean(d == 2); }

void set_upvalue(Trace& t, Frame& f, unsigned i, Var* v) {
  Cell* cell = t.upvalue(f, i);
  t.writes_outside(*cell);
  cell->value = v;
  if (cell->function_pin && !cell->written) {
    cell->written = true;
    t.written_cells.push_back(cell);
  }
  t.effect = true;
}

void op_fnew(Trace& t, Frame& f, bc::Ins i) {
  const uint32_t child = std::get<bc::Child>(f.code->proto().kgc[op_d(i)]).proto;
  t.closures.emplace_back();
  Closure* c = &t.closures.back();
  c->code = f.code->child(child);
  c->constant = op_d(i);
  c->outer_step = t.frames[0]->step;
  for (const bc::Upvalue& u : c->code->proto().upvalues) {
    c->cells.push_back(u.local() ? t.slot_cell(f, u.index()) : t.upvalue(f, u.index()));
    if (u.local() && !u.immutable()) c->cells.back()->assigned = true;
  }
  t.vars.emplace_back();
  Var* v = &t.vars.back();
  v->kind = VarKind::kClosure;
  v->closure = c;
  c->env = f.function;
  t.set(f, op_a(i), v);
}

}  // namespace

void install_moves(Handlers& h) {
  h.set(Op::MOV, [](Trace& t, Frame& f, bc::Ins i) { t.set(f, op_a(i), t.slot(f, op_d(i))); });
  h.set(Op::KSTR, [](Trace& t, Frame& f, bc::Ins i) { t.set(f, op_a(i), string_constant(t, f, op_d(i))); });
  h.set(Op::KSHORT, [](Trace& t, Frame& f, bc::Ins i) { t.set(f, op_a(i), t.number(bc::lits(i))); });
  h.set(Op::KNUM, [](Trace& t, Frame& f, bc::Ins i) { t.set(f, op_a(i), number_constant(t, f, op_d(i))); });
  h.set(Op::KPRI, [](Trace& t, Frame& f, bc::Ins i) { t.set(f, op_a(i), primitive(t, op_d(i))); });
  h.set(Op::KNIL, [](Trace& t, Frame& f, bc::Ins i) {
    for (unsigned s = op_a(i); s <= op_d(i); s++) t.set(f, s, t.nil());
  });
  h.set(Op::KCDATA, [](Trace& t, Frame& f, bc::Ins i) { t.set(f, op_a(i), number_cdata(t, f, op_d(i))); });
  h.set(Op::UGET, [](Trace& t, Frame& f, bc::Ins i) { t.set(f, op_a(i), t.upvalue(f, op_d(i))->value); });
  h.set(Op::USETV, [](Trace& t, Frame& f, bc::Ins i) { set_upvalue(t, f, op_a(i), t.slot(f, op_d(i))); });
  h.set(Op::USETS, [](Trace& t, Frame& f, bc::Ins i) { set_upvalue(t, f, op_a(i), string_constant(t, f, op_d(i))); });
  h.set(Op::USETN, [](Trace& t, Frame& f, bc::Ins i) { set_upvalue(t, f, op_a(i), number_constant(t, f, op_d(i))); });
  h.set(Op::USETP, [](Trace& t, Frame& f, bc::Ins i) { set_upvalue(t, f, op_a(i), primitive(t, op_d(i))); });
  h.set(Op::UCLO, [](Trace& t, Frame& f, bc::Ins i) {
    t.close_slots(f, op_a(i));
    jump(f, bc::jump_target(f.pc, i));
  });
  h.set(Op::FNEW, op_fnew);
}

}  // namespace lutra
