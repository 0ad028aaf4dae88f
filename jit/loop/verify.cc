// Verifies a kernel before code is generated: visibility, types, ranges and the rules of loop modes.
#include <algorithm>
#include <cctype>
#include <set>

#include "jit/loop/loop.h"
#include "ops/core/error.h"

namespace lutra::loop {
namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& k) : k_(k) {}

  std::string run() {
    if (k_.values < 0 || k_.loops < 0 || k_.ints < 0 || k_.scalars < 0) return "negative counts";
    types_.assign(size_t(k_.values), DType::kNone);
    defined_.assign(size_t(k_.values), false);
    loops_.assign(size_t(k_.loops), false);
    for (const Param& p : k_.params) {
      if (p.type >= DType::kNone) return "a pointer argument without type";
    }
    const auto in_word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    if (k_.name.empty() || !std::all_of(k_.name.begin(), k_.name.end(), in_word)) return "a kernel without a name";
    body(k_.body);
    if (error_.empty()) parallel_alone();
    return error_;
  }

 private:
  template <class... T>
  bool bad(const T&... parts) {
    if (error_.empty()) error_ = str(parts...);
    return false;
  }
  bool visible(int32_t id) { return id >= 0 && id < k_.values && types_[size_t(id)] != DType::kNone; }
  DType type_of(int32_t id) { return types_[size_t(id)]; }
  bool define(int32_t id, DType t, std::vector<int32_t>& scope) {
    if (id < 0 || id >= k_.values) return bad("%", id, " is out of range");
    if (defined_[size_t(id)]) return bad("%", id, " is defined twice");
    defined_[size_t(id)] = true;
    types_[size_t(id)] = t;
    scope.push_back(id);
    return true;
  }
  bool int_arg(int32_t arg) {
    return arg >= 0 && arg < k_.ints ? true : bad("integer argument ", arg, " does not exist");
  }
  bool coef(const Coef& c) { return c.arg < 0 ? (c.arg == -1 || bad("bad coefficient")) : int_arg(c.arg); }
  const Loop* enclosing(int32_t id) {
    for (const Loop* l : stack_) {
      if (l->id == id) return l;
    }
    return nullptr;
  }
  bool inside(LoopMode mode) {
    return std::any_of(stack_.begin(), stack_.end(), [&](const Loop* l) { return l->mode == mode; });
  }

  bool body(const std::vector<Stmt>& stmts) {
    std::vector<int32_t> scope;
    bool ok = true;
    for (const Stmt& s : stmts) {
      if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s)) {
        ok = *l && loop(**l, scope);
      } else {
        ok = inst(std::get<Inst>(s), scope);
      }
      if (!ok) break;
    }
    for (int32_t id : scope) types_[size_t(id)] = DType::kNone;
    return ok;
  }

  bool loop(const Loop& l, std::vector<int32_t>& scope) {
    if (l.id < 0 || l.id >= k_.loops) return bad("loop i", l.id, " is out of range");
    if (loops_[size_t(l.id)]) return bad("loop i", l.id, " is there twice");
    loops_[size_t(l.id)] = true;
    if (!coef(l.size)) return false;
    if (l.parallel && !stack_.empty() && !stack_.back()->parallel)
      return bad("loop i", l.id, ": a parallel loop is the outermost or within a parallel one");
    if (l.parallel && (!l.accs.empty() || l.mode == LoopMode::kLanes)) return bad("a parallel loop does not reduce");
    if (inside(LoopMode::kLanes)) return bad("a lanes loop holds no loops");
    if (l.mode == LoopMode::kVector && inside(LoopMode::kVector)) return bad("a vector loop holds no vector loops");
    if (l.mode == LoopMode::kVector && !l.accs.empty()) return bad("a vector loop has no accumulators");
    for (const Accumulator& a : l.accs) {
      if (!accumulator(l, a)) return false;
    }
    stack_.push_back(&l);
    const bool ok = body(l.body);
    stack_.pop_back();
    for (const Accumulator& a : l.accs) {
      const bool position = is_position(a.op);
      if (ok && !define(a.id, position ? DType::kInt64 : a.type, scope)) return false;
    }
    return ok;
  }

  bool accumulator(const Loop& l, const Accumulator& a) {
    if (a.lanes < 1 || a.lanes > kMaxLanes || (a.lanes & (a.lanes - 1)))
      return bad("%", a.id, ": lanes must be 1, 2, 4 .. ", kMaxLanes);
    if (a.lanes == 1 && l.mode == LoopMode::kLanes) return bad("%", a.id, ": a lanes loop needs lanes > 1");
    const bool logic = a.op == RedOp::kAny || a.op == RedOp::kAll;
    if (a.type >= DType::kNone || logic != is_bool(a.type)) return bad("%", a.id, ": type of a reduction");
    if (a.block < 0) return bad("%", a.id, ": a block of ", a.block);
    const bool plain = a.op == RedOp::kSum && (a.type == DType::kFloat32 || a.type == DType::kFloat64);
    if (a.block && !plain) return bad("%", a.id, ": only sums of f32 and f64 have blocks");
    return true;
  }

  bool accum(const Inst& in) {
    for (size_t depth = stack_.size(); depth-- > 0;) {
      for (const Accumulator& a : stack_[depth]->accs) {
        if (a.id != in.arg) continue;
        if (a.type != in.type) return bad("accum: %", a.id, " takes another type");
        const LoopMode mode = stack_.back()->mode;
        if ((a.lanes > 1) != (mode == LoopMode::kLanes)) return bad("accum: %", a.id, ": lanes belong to a lanes loop");
        if (a.lanes > 1 && lanes_of(stack_.back(), a.lanes) != a.lanes) return bad("accum: lanes of a loop differ");
        if (a.lanes > 1 && !fed_.emplace(stack_.back(), a.id).second) return bad("accum: %", a.id, " is fed twice");
        for (size_t d = depth + 1; d < stack_.size(); d++) {
          if (stack_[d]->mode == LoopMode::kVector) return bad("accum: %", a.id, " is outside the vector loop");
        }
        return true;
      }
    }
    return bad("accum: no accumulator %", in.arg, " around");
  }
  // Returns the lanes of a lanes loop. Its first accum sets them.
  int32_t lanes_of(const Loop* l, int32_t lanes) {
    for (const auto& row : lanes_) {
      if (row.first == l) return row.second;
    }
    lanes_.emplace_back(l, lanes);
    return lanes;
  }

  bool access(const Inst& in) {
    const Access& a = in.access;
    if (a.ptr < 0 || a.ptr >= int32_t(k_.params.size())) return bad("pointer argument p", a.ptr, " does not exist");
    if (k_.params[size_t(a.ptr)].type != in.type) return bad(name(in.op), ": p", a.ptr, " has another type");
    if (in.op != Op::kLoad && !k_.params[size_t(a.ptr)].written) return bad("store: p", a.ptr, " is not written");
    if (!coef(a.offset)) return false;
    for (const Access::Term& t : a.terms) {
      if (!coef(t.stride)) return false;
      if (t.is_value ? !visible(t.id) : !enclosing(t.id)) {
        return bad(name(in.op), ": ", t.is_value ? "%" : "i", t.id, " is not visible");
      }
      if (t.is_value && type_of(t.id) != DType::kInt64) return bad(name(in.op), ": index %", t.id, " is not i64");
    }
    if (in.op == Op::kStoreAdd && (inside(LoopMode::kVector) || inside(LoopMode::kLanes))) {
      return bad("store_add: serial loops only");
    }
    return true;
  }

  bool inst(const Inst& in, std::vector<int32_t>& scope) {
    if (in.op >= Op::kCount) return bad("no such instruction");
    const OpInfo& op = info(in.op);
    if (in.type >= DType::kNone) return bad(op.name, ": no type");
    const int32_t operands[] = {in.a, in.b, in.c};
    for (int i = 0; i < op.operands; i++) {
      if (!visible(operands[i])) return bad(op.name, ": %", operands[i], " is not visible");
    }
    if (!types(in, op) || !args(in)) return false;
    if (has_access(in.op) && !access(in)) return false;
    if (in.op == Op::kAccum && !accum(in)) return false;
    if (!op.defines()) return in.id == -1 || bad(op.name, ": has no result");
    return define(in.id, in.type, scope);
  }

  bool types(const Inst& in, const OpInfo& op) {
    auto is = [&](int32_t v, DType t) { return type_of(v) == t; };
    bool ok = true;
    DType of = in.type;
    switch (op.rule) {
      case TypeRule::kAny: break;
      case TypeRule::kI64: ok = in.type == DType::kInt64; break;
      case TypeRule::kSame: ok = is(in.a, in.type) && (op.operands < 2 || is(in.b, in.type)); break;
      case TypeRule::kCompare:
        of = type_of(in.a);
        ok = is(in.b, of) && is_bool(in.type);
        break;
      case TypeRule::kSelect: ok = is(in.a, DType::kBool) && is(in.b, in.type) && is(in.c, in.type); break;
      case TypeRule::kCast: break;
      case TypeRule::kTake: ok = is(in.a, in.type); break;
      case TypeRule::kCheckI64: ok = is(in.a, DType::kInt64) && in.type == DType::kInt64; break;
      case TypeRule::kRandom:
        ok = is(in.a, DType::kInt64) && (op.types == TypeSet::kFloats ? is_float(in.type) : in.type == DType::kInt64);
        break;
    }
    if (!ok) return bad(op.name, ".", info(in.type).ir_name, ": types of the operands");
    return accepts(op.types, of) || bad(op.name, " is not defined for ", info(of).ir_name);
  }

  bool args(const Inst& in) {
    switch (in.op) {
      case Op::kScalar: return (in.arg >= 0 && in.arg < k_.scalars) || bad("scalar x", in.arg, " does not exist");
      case Op::kIntArg:
      case Op::kCheck: return int_arg(in.arg);
      case Op::kIndex: return enclosing(in.arg) || bad("index: i", in.arg, " is not around");
      default: return info(in.op).rule != TypeRule::kRandom || in.arg >= 0 || bad("random: negative call");
    }
  }

  void parallel_alone() {
    bool parallel = false, others = false;
    for (const Stmt& s : k_.body) {
      if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s)) {
        if ((*l)->parallel && !parallel)
          parallel = true;
        else
          others = true;
      } else {
        others |= has_effect(std::get<Inst>(s).op);
      }
    }
    if (parallel && others) bad("a parallel loop stands alone");
  }

  const Kernel& k_;
  std::string error_;
  std::vector<DType> types_;  // of visible values, else kNone
  std::vector<bool> defined_, loops_;
  std::vector<const Loop*> stack_;
  std::vector<std::pair<const Loop*, int32_t>> lanes_;
  std::set<std::pair<const Loop*, int32_t>> fed_;  // accumulators by the lanes loop that feeds them
};

}  // namespace

std::string verify(const Kernel& k) { return Verifier(k).run(); }

}  // namespace lutra::loop
