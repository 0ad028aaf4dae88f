// Verifies a lowered node: visibility, types, ranks, and that a reduction's order has each dimension once.
#include "jit/lower/verify.h"

#include <algorithm>

namespace lutra {
namespace {

using loop::TypeRule;

std::string verify_order(const Reduction& r) {
  std::vector<int> seen(r.sizes.size(), 0);
  const auto see = [&](int d, bool reduced) {
    if (d < 0 || size_t(d) >= seen.size() || r.reduced[size_t(d)] != reduced) return false;
    return ++seen[size_t(d)] == 1;
  };
  if (r.reduced.size() != r.sizes.size()) return "the order says of other dimensions whether they are reduced";
  for (const auto& loop : r.nest) {
    if (loop.empty()) return "a loop of the nest has no dimension";
    for (int d : loop) {
      if (!see(d, true)) return str("dimension ", d, " of the nest");
    }
  }
  for (int d : r.kept) {
    if (!see(d, false)) return str("dimension ", d, " is kept");
  }
  if (std::count(seen.begin(), seen.end(), 0)) return "a dimension is neither in the nest nor kept";
  if (r.type >= DType::kNone) return "a reduction without a type";
  const bool logic = r.op == loop::RedOp::kAny || r.op == loop::RedOp::kAll;
  if (logic != is_bool(r.type)) return str(name(r.op), " of ", info(r.type).ir_name);
  if (r.lanes < 1 || r.lanes > loop::kMaxLanes || (r.lanes & (r.lanes - 1))) {
    return str("lanes must be 1, 2, 4 .. ", loop::kMaxLanes);
  }
  if (r.block < 0) return str("a block of ", r.block);
  if (r.block && (r.op != loop::RedOp::kSum || !is_float(r.type))) return "only sums of floats have blocks";
  return "";
}

std::string verify_view(const LoweredNode& n) {
  const Lowered& l = n.low;
  if (l.reads.size() != 1) return "a view has one operand";
  if (!l.affine) return l.map.empty() ? "" : "a view of memory has no map";
  if (l.map.size() != size_t(l.reads[0]->dim())) return str("the map has ", l.map.size(), " dimensions");
  for (const Affine& a : l.map) {
    for (const Affine::Term& t : a.terms) {
      if (t.is_value) return str("the map of a view names %", t.id);
      if (t.id < 0 || t.id >= n.value->dim()) return str("i", t.id, " is no dimension of the view");
    }
  }
  return "";
}

bool has_element(Lowered::Kind k) { return k == Lowered::kPointwise || k == Lowered::kReduce || k == Lowered::kCopy; }

}  // namespace

std::string verify_form(const LoweredNode& n) {
  const Lowered& l = n.low;
  if (n.node->op >= OpId::input) return "an input is not lowered";
  if (l.kind == Lowered::kView) return verify_view(n);
  if (l.kind == Lowered::kReduce) return verify_order(l.reduction);
  if (l.kind == Lowered::kExternResult && l.reads.size() != 1) return "a further result reads the first";
  if (l.kind == Lowered::kCopy && l.reads.size() != 2) return "a copy reads what it writes and what it takes";
  if (l.kind == Lowered::kStrided && (l.reads.size() != 2 || l.writes.size() != 1)) {
    return "a strided store reads two tensors and writes once";
  }
  return "";
}

FunctionVerifier::FunctionVerifier(const LoweredNode& node, const ElementFunction& function, bool writes)
    : node_(node), f_(function), writes_(writes) {
  types_.reserve(f_.stmts.size());
}

std::string FunctionVerifier::place(const Affine& at) const {
  for (const Affine::Term& t : at.terms) {
    if (t.is_value && !is(t.id, DType::kInt64)) return str("%", t.id, " is no i64 that is visible");
    if (t.is_value || (t.id >= 0 && t.id < f_.rank)) continue;
    const bool opened = std::any_of(open_.begin(), open_.end(), [&](const Loop& l) { return l.id == t.id; });
    if (!opened) return str("i", t.id, " is neither a dimension nor a loop around");
  }
  return "";
}

std::string FunctionVerifier::operands(const FunctionStmt& s) const {
  const bool op = s.kind == FunctionStmt::kOp;
  const bool one = s.kind == FunctionStmt::kCast || s.kind == FunctionStmt::kPart || s.kind == FunctionStmt::kCheck ||
                   s.kind == FunctionStmt::kStore;
  const int count = op ? info(s.op).operands : one ? 1 : 0;
  const int32_t of[] = {s.a, s.b, s.c};
  for (int i = 0; i < count; i++) {
    if (!sees(of[i])) return str("%", of[i], " is not visible");
  }
  return "";
}

std::string FunctionVerifier::types(const FunctionStmt& s) const {
  const loop::OpInfo& op = info(s.op);
  bool ok = false;
  DType of = s.type;
  switch (op.rule) {
    case TypeRule::kSame: ok = is(s.a, s.type) && (op.operands < 2 || is(s.b, s.type)); break;
    case TypeRule::kCompare:
      of = types_[size_t(s.a)];
      ok = is(s.b, of) && is_bool(s.type);
      break;
    case TypeRule::kSelect: ok = is(s.a, DType::kBool) && is(s.b, s.type) && is(s.c, s.type); break;
    case TypeRule::kRandom:
      if (s.arg < 0) return "a random number of no call";
      if (op.types != loop::TypeSet::kFloats) of = DType::kInt64;
      ok = is(s.a, DType::kInt64) && s.type == of;
      break;
    default: return str(op.name, " is no operation on elements");
  }
  if (!ok) return str(op.name, ".", info(s.type).ir_name, ": types of the operands");
  return accepts(op.types, of) ? "" : str(op.name, " is not defined for ", info(of).ir_name);
}

std::string FunctionVerifier::read(const FunctionStmt& s) const {
  const auto& reads = node_.low.reads;
  if (s.arg < 0 || size_t(s.arg) >= reads.size()) return str("the node reads no tensor a", s.arg);
  const Tensor& t = reads[size_t(s.arg)];
  if (s.places != t->dim()) return str("a", s.arg, " has ", t->dim(), " dimensions, not ", s.places);
  if (s.type != value_type(t->dtype)) return str("an element of a", s.arg, " is ", info(value_type(t->dtype)).ir_name);
  return "";
}

std::string FunctionVerifier::write(const FunctionStmt& s) {
  if (!writes_) return "only a function that writes has loops and stores";
  switch (s.kind) {
    case FunctionStmt::kOpen:
      if (s.arg != f_.rank + loops_++) return "loops are numbered in order";
      open_.push_back({s.arg, types_.size()});
      return "";
    case FunctionStmt::kClose:
      if (open_.empty()) return "no loop is open";
      std::fill(types_.begin() + long(open_.back().begin), types_.end(), DType::kNone);
      open_.pop_back();
      return "";
    default:
      if (!is(s.a, value_type(node_.value->dtype))) return str("%", s.a, " is no element of the result");
      return "";
  }
}

std::string FunctionVerifier::next() {
  const FunctionStmt& s = f_.stmts[types_.size()];
  std::string wrong = operands(s);
  for (int32_t k = 0; wrong.empty() && k < s.places; k++) wrong = place(f_.places[size_t(s.place + k)]);
  if (wrong.empty() && s.defines() && s.type >= DType::kNone) wrong = "a value without a type";
  if (!wrong.empty()) return wrong;
  switch (s.kind) {
    case FunctionStmt::kOp: wrong = types(s); break;
    case FunctionStmt::kPart:
      if (!is_complex(types_[size_t(s.a)]) || info(types_[size_t(s.a)]).carrier != s.type || (s.arg != 0 && s.arg != 1))
        wrong = "a part of what is no such complex number";
      break;
    case FunctionStmt::kOperand: wrong = read(s); break;
    case FunctionStmt::kCheck:
      if (!is(s.a, DType::kInt64)) wrong = str("check: %", s.a, " is no i64");
      break;
    case FunctionStmt::kOpen:
    case FunctionStmt::kClose:
    case FunctionStmt::kStore: wrong = write(s); break;
    default: break;
  }
  types_.push_back(s.defines() ? s.type : DType::kNone);
  return wrong;
}

std::string FunctionVerifier::end() {
  if (!open_.empty()) return "a loop is not closed";
  if (writes_) return f_.result < 0 ? "" : "a function that writes gives no element";
  const Lowered& l = node_.low;
  const DType wanted = l.kind == Lowered::kReduce ? l.reduction.type : value_type(node_.value->dtype);
  if (!is(f_.result, wanted)) return str("an element of type ", info(wanted).ir_name, " must be returned");
  return "";
}

std::string verify(const LoweredNode& n) {
  std::string wrong = verify_form(n);
  const auto function = [&](const ElementFunction& f, bool writes) {
    FunctionVerifier v(n, f, writes);
    for (size_t i = 0; wrong.empty() && i < f.stmts.size(); i++) wrong = v.next();
    if (wrong.empty()) wrong = v.end();
  };
  if (wrong.empty() && has_element(n.low.kind)) function(n.low.element, false);
  for (const ElementFunction& f : n.low.writes) {
    if (wrong.empty()) function(f, true);
  }
  return wrong;
}

std::string verify(const LoweredGraph& lowered) {
  for (const LoweredNode& n : lowered.nodes) {
    const std::string wrong = verify(n);
    if (!wrong.empty()) return str(name(n.node->op), ": ", wrong);
  }
  return "";
}

}  // namespace lutra
