// Arithmetic: doubles for constants, expressions of the SymEnv for symbolic numbers, bindings for tensors.
#include <cmath>
#include <lua.hpp>

#include "vm/capture/trace/cdata.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/read_numbers.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/texts.h"

namespace lutra {
namespace {

struct Row {
  const char* metamethod;
  SymOp number, integer;  // integer: exact on whole numbers, kConstInt if there is none
};

const Row kAddRow{"__add", SymOp::kNAdd, SymOp::kAdd}, kSubRow{"__sub", SymOp::kNSub, SymOp::kSub},
    kMulRow{"__mul", SymOp::kNMul, SymOp::kMul}, kDivRow{"__div", SymOp::kNDiv, SymOp::kConstInt},
    kModRow{"__mod", SymOp::kNMod, SymOp::kMod}, kPowRow{"__pow", SymOp::kNPow, SymOp::kConstInt};

const Row& row(Op op) {
  switch (op) {
    case Op::ADDVN:
    case Op::ADDNV:
    case Op::ADDVV: return kAddRow;
    case Op::SUBVN:
    case Op::SUBNV:
    case Op::SUBVV: return kSubRow;
    case Op::MULVN:
    case Op::MULNV:
    case Op::MULVV: return kMulRow;
    case Op::DIVVN:
    case Op::DIVNV:
    case Op::DIVVV: return kDivRow;
    case Op::MODVN:
    case Op::MODNV:
    case Op::MODVV: return kModRow;
    default: return kPowRow;
  }
}

// Returns whether d counts as an integer; -0 does not.
bool whole(double d) { return std::floor(d) == d && std::fabs(d) < 4503599627370496.0 && !(d == 0 && std::signbit(d)); }

// Returns whether the operand is within 2^52 for all its values. Then a - floor(a / b) * b in doubles is the integer
// remainder, since the product is within 2^53.
bool has_exact_remainder(SymEnv& env, int32_t id) {
  constexpr int64_t kMost = int64_t(1) << 52;
  const SymRange r = env.range(id);
  if (-kMost <= r.low && r.high <= kMost) return true;
  const int64_t hint = env[id].i;
  return -kMost <= hint && hint <= kMost && env.ask(SymCmp::kLe, env.constant(-kMost), id) &&
         env.ask(SymCmp::kLe, id, env.constant(kMost));
}

// Computes with integers. Lua's numbers are doubles, so it returns null if the double result would be rounded, -0 or
// NaN for some values of the operands.
Var* integer_arithmetic(Trace& t, SymOp op, const Scalar& x, const Scalar& y) {
  SymEnv& env = *t.graph->env;
  if (op == SymOp::kMod && (y.expr || y.to_double() == 0)) return nullptr;
  const int32_t a = x.expr ? x.expr : env.constant(x.to_int()), b = y.expr ? y.expr : env.constant(y.to_int());
  if (!env.ask_exact(a) || !env.ask_exact(b)) return nullptr;
  if (op == SymOp::kMod && !has_exact_remainder(env, a)) return nullptr;
  const SymRange p = env.range(a), q = env.range(b);
  if (op == SymOp::kMul) {
    if ((p.contains(0) && q.low < 0) || (q.contains(0) && p.low < 0)) return nullptr;
    if (std::fabs(x.to_double() * y.to_double()) > 0x1p53) return nullptr;
  }
  const int32_t id = env.make(op, a, b);
  if (!env.ask_exact(id)) return nullptr;
  return t.scalar(Scalar::of_sym(SymInt::of_expr(env, id)));
}

// Computes with numbers, at least one of which is symbolic.
Var* symbolic_arithmetic(Trace& t, const Row& r, Var* a, Var* b) {
  SymEnv& env = *t.graph->env;
  const Scalar x = t.symbolic(a), y = t.symbolic(b);
  auto is_int = [](const Scalar& s) { return s.expr ? s.kind == Scalar::kInt : whole(s.to_double()); };
  if (is_int(x) && is_int(y) && (x.expr || y.expr) && r.integer != SymOp::kConstInt) {
    if (Var* v = integer_arithmetic(t, r.integer, x, y)) return v;
  }
  const int32_t left = number_expr(env, x), right = number_expr(env, y);
  const int32_t e = env.make(r.number, left, right);
  Scalar s(env[e].d);
  s.expr = env[e].op == SymOp::kConstNum ? 0 : e;
  return t.scalar(s);
}

Var* metamethod_of(Trace& t, Var* v, const char* name) {
  t.force(v);
  const bool has = v->kind == VarKind::kTable || v->kind == VarKind::kTensor || v->kind == VarKind::kString;
  return has ? t.metamethod(v, name) : t.nil();
}

// Applies Lua's coercion of numeric strings to numbers.
Var* to_number(Trace& t, Var* v) {
  if (v->kind != VarKind::kString) return v;
  const std::string& text = t.text(v);
  lua_pushlstring(t.L, text.data(), text.size());
  const bool is = lua_isnumber(t.L, -1);
  const double d = lua_tonumber(t.L, -1);
  lua_pop(t.L, 1);
  return is ? t.number(d) : v;
}

// Stops at a userdata or cdata: it may have a metamethod for the operation, which only eager code can run.
void stop_at_object(Trace& t, const Var* v) {
  constexpr int kCdata = 10;
  if (v->kind != VarKind::kObject) return;
  t.push_pin(v->pin);
  if (lua_type(t.L, -1) == kCdata) t.stop(Break::cdata, {"computed with"});
  t.stop(Break::metatable, {"a userdata"});
}

Var* other(Trace& t, const char* name, Var* a, Var* b) {
  for (Var* v : {a, b}) {
    Var* h = metamethod_of(t, v, name);
    if (h->kind == VarKind::kNil) continue;
    const bool unary = a == b && h->binding && name == std::string("__unm");  // Lua passes its operand twice
    Vars r = t.call(h, unary ? Vars{a} : Vars{a, b}, true);
    return r.empty() ? t.nil() : r[0];
  }
  if (Var* v = cdata_operation(t, name, a, b)) return v;
  stop_at_object(t, a), stop_at_object(t, b);
  t.stop(Break::raises, {"arithmetic on a value that is not a number"});
}

bool may_be_number(const Var* v) { return v->kind == VarKind::kNumber || v->kind == VarKind::kString; }

void op_vn(Trace& t, Frame& f, bc::Ins i) {
  t.set(f, op_a(i), arithmetic(t, bc::op(i), t.slot(f, op_b(i)), number_constant(t, f, op_c(i))));
}
void op_nv(Trace& t, Frame& f, bc::Ins i) {
  t.set(f, op_a(i), arithmetic(t, bc::op(i), number_constant(t, f, op_c(i)), t.slot(f, op_b(i))));
}
void op_vv(Trace& t, Frame& f, bc::Ins i) {
  t.set(f, op_a(i), arithmetic(t, bc::op(i), t.slot(f, op_b(i)), t.slot(f, op_c(i))));
}

void op_unm(Trace& t, Frame& f, bc::Ins i) {
  Var* v = to_number(t, t.force(t.slot(f, op_d(i))));
  if (v->kind != VarKind::kNumber) return t.set(f, op_a(i), other(t, "__unm", v, v));
  if (v->tensor) return t.set(f, op_a(i), read_arithmetic(t, Op::MULVV, v, t.number(-1)));
  if (v->guarded && !v->num.expr) return t.set(f, op_a(i), t.number(-v->num.to_double()));
  Scalar s = t.symbolic(v);
  SymEnv& env = *t.graph->env;
  if (s.kind == Scalar::kInt) {
    if (!env.range(s.expr).contains(0)) {  // -0 is not an integer
      const int32_t e = env.make(SymOp::kSub, env.constant(0), s.expr);
      return t.set(f, op_a(i), t.scalar(Scalar::of_sym(SymInt::of_expr(env, e))));
    }
    s.expr = env.make(SymOp::kToNum, s.expr);
  }
  const int32_t e = env.make(SymOp::kNNeg, s.expr);
  Scalar r(env[e].d);
  r.expr = e;
  t.set(f, op_a(i), t.scalar(r));
}

void op_not(Trace& t, Frame& f, bc::Ins i) {
  Var* v = t.force(t.slot(f, op_d(i)));
  t.set(f, op_a(i), v->kind == VarKind::kBool && v->tensor ? read_not(t, v) : t.boolean(!t.truthy(v)));
}

void op_len(Trace& t, Frame& f, bc::Ins i) {
  Var* v = t.force(t.slot(f, op_d(i)));
  switch (v->kind) {
    case VarKind::kString: return t.set(f, op_a(i), t.number(double(t.text(v).size())));
    case VarKind::kTable: return t.set(f, op_a(i), t.length_of(v->table));
    case VarKind::kTensor:
      if (Var* h = t.metamethod(v, "__len"); h->binding) {
        t.guard_callee(h);
      } else {
        t.stop(Break::metatable, {"tensors has another __len"});
      }
      if (v->tensor->sizes.empty()) t.stop(Break::raises, {"the length of a tensor without dims"});
      return t.set(f, op_a(i), t.scalar(Scalar::of_sym(v->tensor->sizes[0])));
    default:
      stop_at_object(t, v);
      t.stop(Break::raises, {"the length of a value that is neither table, string nor tensor"});
  }
}

// Joins from the right, as Lua does. A metamethod gets the string joined so far.
void op_cat(Trace& t, Frame& f, bc::Ins i) {
  Vars parts{t.force(t.slot(f, op_c(i)))};
  for (unsigned s = op_c(i); s-- > op_b(i);) {
    Var *v = t.force(t.slot(f, s)), *right = parts.front();
    if (may_be_number(v) && may_be_number(right)) {
      parts.insert(parts.begin(), v);
      continue;
    }
    Var* joined = parts.size() > 1 ? join(t, parts) : right;
    if (v->kind == VarKind::kTensor || joined->kind == VarKind::kTensor) t.stop(Break::tensor_text);
    Var* h = v->kind == VarKind::kTable ? t.metamethod(v, "__concat") : t.nil();
    if (h->kind == VarKind::kNil && joined->kind == VarKind::kTable) h = t.metamethod(joined, "__concat");
    const bool object = v->kind == VarKind::kObject || joined->kind == VarKind::kObject;
    if (object && h->kind == VarKind::kNil) t.stop(Break::concatenation, {"a userdata"});
    if (h->kind == VarKind::kNil) t.stop(Break::raises, {"concatenation of a value that is neither string nor number"});
    const Vars r = t.call(h, {v, joined}, true);
    parts = {r.empty() ? t.nil() : t.force(r[0])};
  }
  t.set(f, op_a(i), parts.size() > 1 ? join(t, parts) : parts[0]);
}

}  // namespace

Var* arithmetic(Trace& t, Op op, Var* a, Var* b) {
  const Row& r = row(op);
  t.force(a), t.force(b);
  // With an operand of another type a string is not converted: metamethods get it unchanged.
  if (!may_be_number(a) || !may_be_number(b)) return other(t, r.metamethod, a, b);
  a = to_number(t, a), b = to_number(t, b);
  if (a->kind != VarKind::kNumber || b->kind != VarKind::kNumber) return other(t, r.metamethod, a, b);
  if (a->tensor || b->tensor) return read_arithmetic(t, op, a, b);
  const bool constant = a->guarded && b->guarded && !a->num.expr && !b->num.expr;
  if (!constant) return symbolic_arithmetic(t, r, a, b);
  const double x = a->num.to_double(), y = b->num.to_double();
  switch (r.number) {
    case SymOp::kNAdd: return t.number(x + y);
    case SymOp::kNSub: return t.number(x - y);
    case SymOp::kNMul: return t.number(x * y);
    case SymOp::kNDiv: return t.number(x / y);
    case SymOp::kNMod: return t.number(x - std::floor(x / y) * y);
    default: return t.number(std::pow(x, y));
  }
}

void install_arithmetic(Handlers& h) {
  for (Op op : {Op::ADDVN, Op::SUBVN, Op::MULVN, Op::DIVVN, Op::MODVN}) h.set(op, op_vn);
  for (Op op : {Op::ADDNV, Op::SUBNV, Op::MULNV, Op::DIVNV, Op::MODNV}) h.set(op, op_nv);
  for (Op op : {Op::ADDVV, Op::SUBVV, Op::MULVV, Op::DIVVV, Op::MODVV, Op::POW}) h.set(op, op_vv);
  h.set(Op::UNM, op_unm);
  h.set(Op::NOT, op_not);
  h.set(Op::LEN, op_len);
  h.set(Op::CAT, op_cat);
}

}  // namespace lutra
