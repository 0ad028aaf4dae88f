// Checks that LuaJIT may load and run a prototype: returns an empty string, or the first error. LuaJIT itself does not
// verify what it loads: a quarter of all one-byte changes to a dump crash it.
#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"

namespace lutra::bc {

namespace {

constexpr unsigned kMaxFrame = 250;

class Verifier {
 public:
  Verifier(const Proto& p, const Dump* dump) : p_(p), dump_(dump) {}

  std::string run() {
    check_shape();
    if (!error_.empty()) return error_;
    for (Pc pc = 1; pc < p_.size() && error_.empty(); ++pc) check_opcode(pc);
    for (Pc pc = 1; pc < p_.size() && error_.empty(); ++pc) check_instruction(pc);
    if (error_.empty()) check_jumps_into_pairs();
    if (error_.empty()) check_flow();
    return error_;
  }

 private:
  template <class... T>
  void wrong(Pc pc, const T&... parts) {
    if (error_.empty()) error_ = str("pc ", pc, " (", info(p_.code[pc]).name, "): ", parts...);
  }

  void check_shape() {
    const Pc n = p_.size();
    if (n < 2) {
      error_ = "no instructions";
      return;
    }
    if (p_.framesize < 1 || p_.framesize > kMaxFrame) error_ = str("framesize ", +p_.framesize);
    if (p_.num_params > p_.framesize) error_ = "more parameters than slots";
    if (p_.has_debug && p_.lines.size() != n) error_ = "one line an instruction is needed";
    if (p_.has_debug && p_.upvalue_names.size() != p_.upvalues.size()) error_ = "one name an upvalue is needed";
    for (uint32_t line : p_.lines) {
      if (line < p_.first_line || line - p_.first_line > p_.num_lines) error_ = str("line ", line, " outside");
    }
  }

  void check_opcode(Pc pc) {
    const Ins i = p_.code[pc];
    if (!known(i)) {
      error_ = str("pc ", pc, ": opcode ", i & 0xff);
    } else if (has(i, kNever)) {
      wrong(pc, "an opcode that no dump holds");
    } else if (info(i).c == Mode::Jump) {
      const Pc t = jump_target(pc, i);
      if (t < 1 || t >= p_.size()) wrong(pc, "jumps out of the function");
    }
    if (error_.empty() && pc + 1 == p_.size() && !has(i, kEnds)) wrong(pc, "control leaves the function's end");
  }

  void slot(Pc pc, unsigned s) {
    if (s >= p_.framesize) wrong(pc, "slot ", s, " of ", +p_.framesize);
  }
  void end_slot(Pc pc, unsigned s) {
    if (s > p_.framesize) wrong(pc, "slots up to ", s, " of ", +p_.framesize);
  }

  template <class T>
  void constant(Pc pc, unsigned index, const char* what) {
    if (index >= p_.kgc.size() || !std::holds_alternative<T>(p_.kgc[index])) wrong(pc, "constant ", index, what);
  }

  void operand(Pc pc, Mode mode, unsigned v) {
    switch (mode) {
      case Mode::Dst:
      case Mode::Var: slot(pc, v); break;
      case Mode::Rbase: end_slot(pc, v); break;
      case Mode::Uv:
        if (v >= p_.upvalues.size()) wrong(pc, "upvalue ", v, " of ", p_.upvalues.size());
        break;
      case Mode::Pri:
        if (v > 2) wrong(pc, "primitive ", v);
        break;
      case Mode::Num:
        if (v >= p_.knum.size()) wrong(pc, "number ", v, " of ", p_.knum.size());
        break;
      case Mode::Str: constant<std::string>(pc, v, " is no string"); break;
      case Mode::Tab: constant<Template>(pc, v, " is no table"); break;
      case Mode::Func:
        constant<Child>(pc, v, " is no prototype");
        if (error_.empty()) check_child(pc, std::get<Child>(p_.kgc[v]));
        break;
      case Mode::Cdata:
        if (v >= p_.kgc.size() || p_.kgc[v].index() < 2 || p_.kgc[v].index() > 4)
          wrong(pc, "constant ", v, " is no cdata");
        break;
      default: break;
    }
  }

  void check_child(Pc pc, const Child& child) {
    for (Upvalue u : child.upvalues) {
      if (u.local()) slot(pc, u.index());
      if (!u.local() && u.index() >= p_.upvalues.size()) wrong(pc, "captures upvalue ", u.index());
    }
    if (dump_ && child.proto >= dump_->protos.size()) wrong(pc, "child ", child.proto, " is not in the dump");
  }

  void check_instruction(Pc pc) {
    const Ins i = p_.code[pc];
    const OpInfo& row = info(i);
    operand(pc, row.a, op_a(i));
    operand(pc, row.b, op_b(i));
    operand(pc, row.c, row.b == Mode::None ? op_d(i) : op_c(i));
    check_extent(pc, i);
    if (has(i, kCompare) && (pc + 1 >= p_.size() || op(p_.code[pc + 1]) != Op::JMP)) wrong(pc, "no JMP follows");
    if (has(i, kTakes)) check_taker(pc);
    if (makes_multres(i)) check_maker(pc);
    check_loop(pc, i);
  }

  // Checks the ranges of slots of calls, results and loops.
  void check_extent(Pc pc, Ins i) {
    const unsigned a = op_a(i), b = op_b(i), c = op_c(i), d = op_d(i);
    switch (op(i)) {
      case Op::KNIL:
        slot(pc, d);
        if (d < a) wrong(pc, "an empty range");
        break;
      case Op::CAT:
        slot(pc, c);
        if (c < b) wrong(pc, "an empty range");
        break;
      case Op::CALL:
      case Op::CALLM:
        if (op(i) == Op::CALL && c == 0) wrong(pc, "an argument count of -1");
        end_slot(pc, a + 2 + (op(i) == Op::CALL ? c - 1 : c));
        if (b) end_slot(pc, a + b - 1);
        break;
      case Op::CALLT:
      case Op::CALLMT:
        if (op(i) == Op::CALLT && d == 0) wrong(pc, "an argument count of -1");
        end_slot(pc, a + 2 + (op(i) == Op::CALLT ? d - 1 : d));
        break;
      case Op::ITERC:
      case Op::ITERN:
        if (a < 3 || b < 1) wrong(pc, "no room for the iterator");
        slot(pc, a + 3);
        end_slot(pc, a + b - 1);
        break;
      case Op::ISNEXT:
      case Op::ITERL:
        if (a < (op(i) == Op::ISNEXT ? 3u : 1u)) wrong(pc, "no room for the iterator");
        slot(pc, a);
        break;
      case Op::VARG:
        if (!p_.vararg()) wrong(pc, "the function has no varargs");
        if (c != p_.num_params) wrong(pc, "wrong number of parameters");
        end_slot(pc, b ? a + b - 1 : a);
        break;
      case Op::RETM: end_slot(pc, a + d); break;
      case Op::RET:
        if (d < 1) wrong(pc, "a result count of -1");
        end_slot(pc, a + (d ? d - 1 : 0));
        break;
      case Op::RET1: slot(pc, a); break;
      case Op::TSETM:
        if (a < 1) wrong(pc, "no slot for the table");
        if (d < p_.knum.size() && !std::holds_alternative<double>(p_.knum[d])) wrong(pc, "the index is not biased");
        break;
      case Op::FORI:
      case Op::FORL: slot(pc, a + 3); break;
      default: break;
    }
  }

  bool closes_behind_maker(Pc pc) const {
    return pc > 1 && op(p_.code[pc]) == Op::UCLO && makes_multres(p_.code[pc - 1]);
  }

  // Checks the producer of the MULTRES values that pc consumes. It is directly before pc, or before a UCLO that jumps
  // to pc. Behind an expanded tail call that has become a tail call again (vm/loader), nothing is run.
  void check_taker(Pc pc) {
    const Op before = op(p_.code[pc - 1]);
    if (op(p_.code[pc]) == Op::RETM && (before == Op::CALLT || before == Op::CALLMT)) return;
    Pc maker = pc - 1;
    for (Pc close = 2; close < p_.size() && !(maker >= 1 && makes_multres(p_.code[maker])); ++close) {
      if (closes_behind_maker(close) && jump_target(close, p_.code[close]) == pc) maker = close - 1;
    }
    if (maker < 1 || !makes_multres(p_.code[maker])) {
      wrong(pc, "nothing makes its values");
    } else if (op_a(p_.code[maker]) < op_a(p_.code[pc])) {
      wrong(pc, "takes values from above their place");
    }
  }

  void check_maker(Pc pc) {
    const Pc taker = taker_of(p_, pc);
    if (taker >= p_.size() || !has(p_.code[taker], kTakes)) wrong(pc, "nothing takes its values");
  }

  void check_loop(Pc pc, Ins i) {
    auto at = [&](Pc q, Op o) { return q >= 1 && q < p_.size() && op(p_.code[q]) == o; };
    const Pc t = info(i).c == Mode::Jump ? jump_target(pc, i) : 0;
    switch (op(i)) {
      case Op::FORI:
        if (!at(t - 1, Op::FORL) || op_a(p_.code[t - 1]) != op_a(i) || jump_target(t - 1, p_.code[t - 1]) != pc + 1) {
          wrong(pc, "no FORL of its own");
        }
        break;
      case Op::FORL:
        if (!at(t - 1, Op::FORI) || jump_target(t - 1, p_.code[t - 1]) != pc + 1) wrong(pc, "no FORI of its own");
        break;
      case Op::ISNEXT:
        if ((!at(t, Op::ITERN) && !at(t, Op::ITERC)) || op_a(p_.code[t]) != op_a(i)) wrong(pc, "no ITERN of its own");
        break;
      case Op::ITERC:
      case Op::ITERN:
        if (!at(pc + 1, Op::ITERL) || op_a(p_.code[pc + 1]) != op_a(i)) wrong(pc, "no ITERL follows");
        break;
      case Op::ITERL:
        if (!at(pc - 1, Op::ITERC) && !at(pc - 1, Op::ITERN)) wrong(pc, "no ITERC before it");
        if (t > pc || t < 2) wrong(pc, "its body does not come before it");
        break;
      default: break;
    }
  }

  // Checks that no jump leads between a compare and its JMP, or between producer and consumer of MULTRES values.
  void check_jumps_into_pairs() {
    for (Pc pc = 1; pc < p_.size(); ++pc) {
      const Ins i = p_.code[pc];
      if (info(i).c != Mode::Jump) continue;
      const Pc t = jump_target(pc, i);
      if (t > 1 && has(p_.code[t - 1], kCompare)) wrong(pc, "jumps between a compare and its JMP");
      if (has(p_.code[t], kTakes) && !closes_behind_maker(pc)) wrong(pc, "jumps to a taker of values");
      if (op(p_.code[t]) == Op::ITERL) wrong(pc, "jumps to an ITERL");
    }
  }

  void check_flow() {
    const Liveness live = liveness(p_);
    for (unsigned s = p_.num_params; s < 256; ++s) {
      if (live.before[1][s]) {
        error_ = str("slot ", s, " is read before it is written");
        return;
      }
    }
    for (Pc pc = 1; pc < p_.size(); ++pc) {
      const Ins i = p_.code[pc];
      if (op(i) != Op::JMP || !live.reached[pc]) continue;
      const Pc target = jump_target(pc, i);
      Slots kept = live.before[target] & ~live.open[target];  // an open slot may be out of scope until a UCLO closes it
      const Ins test = p_.code[pc - 1];
      if (known(test) && has(test, kCompare)) kept |= live.before[pc + 1];       // its base applies to both branches
      if (op(test) == Op::ISTC || op(test) == Op::ISFC) kept.reset(op_a(test));  // the jump itself writes the copy
      kept >>= op_a(i);
      if (kept.any()) wrong(pc, "declares live slots from ", op_a(i), " on dead");
    }
  }

  const Proto& p_;
  const Dump* dump_;
  std::string error_;
};

}  // namespace

std::string verify(const Proto& proto, const Dump* dump) { return Verifier(proto, dump).run(); }

}  // namespace lutra::bc
