// Replaces tail calls by calls whose results are returned, so that tracebacks show the callers' frames; and the
// reverse. LuaJIT's parser never emits the pair CALL A 0 C; RETM A 0, so the pair always stands for CALLT A C.
#include "vm/bytecode/analysis.h"

namespace lutra::bc {
namespace {

bool is_tail_call(Ins i) { return op(i) == Op::CALLT || op(i) == Op::CALLMT; }

bool is_bare_return(const Proto& p, Pc pc, unsigned a) {
  return pc < p.size() && op(p.code[pc]) == Op::RETM && op_a(p.code[pc]) == a && op_d(p.code[pc]) == 0;
}

// Rebuilds the code: `place(pc)` returns the instructions that replace the one at pc (zero, one or two).
template <class F>
void lay_out(Proto& p, F place) {
  const Proto old = p;
  const Pc n = old.size();
  std::vector<Pc> moved(n + 1);
  p.code.resize(1);
  if (p.has_debug) p.lines.resize(1);
  for (Pc pc = 1; pc < n; ++pc) {
    moved[pc] = p.size();
    for (const Ins i : place(pc)) {
      p.code.push_back(i);
      if (p.has_debug) p.lines.push_back(old.lines[pc]);
    }
  }
  moved[n] = p.size();
  for (Pc pc = 1; pc < n; ++pc) {
    const Ins i = old.code[pc];
    if (info(i).c == Mode::Jump) p.code[moved[pc]] = ins_jump(op(i), op_a(i), moved[pc], moved[jump_target(pc, i)]);
  }
  for (Var& v : p.vars) {
    if (v.start >= 1 && v.start <= n) v.start = moved[v.start];
    if (v.end >= 1 && v.end <= n) v.end = moved[v.end];
  }
}

bool fits(const Proto& p, size_t added) { return p.size() + added < 0x7000; }  // then every jump fits too

}  // namespace

bool expand_tail_calls(Dump& dump) {
  bool any = false;
  for (Proto& p : dump.protos) {
    size_t found = 0;
    for (Pc pc = 1; pc < p.size(); ++pc) found += is_tail_call(p.code[pc]);
    if (found == 0 || !fits(p, found)) continue;
    any = true;
    const std::vector<Ins> code = p.code;
    lay_out(p, [&](Pc pc) -> std::vector<Ins> {
      const Ins i = code[pc];
      if (!is_tail_call(i)) return {i};
      const Op call = op(i) == Op::CALLT ? Op::CALL : Op::CALLM;
      return {ins_abc(call, op_a(i), 0, op_d(i)), ins_ad(Op::RETM, op_a(i), 0)};
    });
  }
  return any;
}

bool restore_tail_calls(Dump& dump) {
  bool any = false;
  for (Proto& p : dump.protos) {
    const Proto old = p;
    const auto expanded = [&](Pc pc) {  // or was expanded and has become a tail call again
      const Ins i = old.code[pc];
      const bool calls = ((op(i) == Op::CALL || op(i) == Op::CALLM) && op_b(i) == 0) || is_tail_call(i);
      return calls && is_bare_return(old, pc + 1, op_a(i));
    };
    bool here = false;
    for (Pc pc = 1; pc < old.size(); ++pc) here = here || expanded(pc);
    if (!here) continue;
    any = true;
    lay_out(p, [&](Pc pc) -> std::vector<Ins> {
      const Ins i = old.code[pc];
      if (pc > 1 && expanded(pc - 1)) return {};
      if (!expanded(pc) || is_tail_call(i)) return {i};
      return {ins_ad(op(i) == Op::CALL ? Op::CALLT : Op::CALLMT, op_a(i), op_c(i))};
    });
  }
  return any;
}

}  // namespace lutra::bc
