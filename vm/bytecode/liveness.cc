// Computes the live, hidden and open slots before each pc, by a backward dataflow for values and a forward one for the
// slots that closures hold as open upvalues.
//
// Invariants:
// 1. A slot in before[pc] is read on some path from pc before it is written, or is open at pc.
// 2. An open slot stays live until a UCLO at or below it: a closure may read it at any time.
#include "vm/bytecode/analysis.h"

namespace lutra::bc {

namespace {

Slots from(unsigned first) {
  Slots s;
  s.set();
  return s << first;
}

// Returns the slots that are always written on the way from pc to `next`. ISTC and ISFC copy only if they jump, ITERL
// only if it loops.
Slots killed(const Proto& p, Pc pc, Pc next, const Effects& e) {
  const Op o = op(p.code[pc]);
  if ((o == Op::ISTC || o == Op::ISFC) && next == pc + 2) return {};
  if (o == Op::ITERL && next == pc + 1) return {};
  return e.writes;
}

struct Flow {
  const Proto& p;
  std::vector<std::vector<Pc>> next;
  std::vector<Effects> eff;
};

void spread_open(const Flow& f, Liveness& out) {
  std::vector<Pc> work{1};
  out.reached[1] = true;
  while (!work.empty()) {
    const Pc pc = work.back();
    work.pop_back();
    Slots open = out.open[pc];
    const Ins i = f.p.code[pc];
    if (op(i) == Op::FNEW) open |= captures(f.p, op_d(i));
    if (op(i) == Op::UCLO) open &= ~from(op_a(i));
    for (Pc n : f.next[pc]) {
      const Slots merged = out.open[n] | open;
      if (out.reached[n] && merged == out.open[n]) continue;
      out.reached[n] = true;
      out.open[n] = merged;
      work.push_back(n);
    }
  }
}

void spread_live(const Flow& f, Liveness& out) {
  const Pc n = f.p.size();
  bool changed = true;
  while (changed) {
    changed = false;
    for (Pc pc = n - 1; pc >= 1; --pc) {
      Slots live = f.eff[pc].reads | out.open[pc];
      for (Pc s : f.next[pc]) live |= out.before[s] & ~killed(f.p, pc, s, f.eff[pc]);
      if (live != out.before[pc]) {
        out.before[pc] = live;
        changed = true;
      }
    }
  }
}

void mark_hidden(const Proto& p, Liveness& out) {
  for (const Loop& l : loops(p)) {
    if (l.kind != Loop::Kind::kFor && l.kind != Loop::Kind::kIterN) continue;
    for (Pc pc = l.head + 1; pc <= l.end; ++pc) {
      if (l.kind == Loop::Kind::kFor) {
        out.hidden[pc].set(l.base + 1);
        out.hidden[pc].set(l.base + 2);
      } else {
        out.hidden[pc].set(l.base - 1);
      }
    }
  }
}

}  // namespace

Liveness liveness(const Proto& p) {
  const Pc n = p.size();
  Liveness out;
  out.before.resize(n);
  out.hidden.resize(n);
  out.open.resize(n);
  out.reached.resize(n);
  if (n < 2) return out;
  Flow f{p, std::vector<std::vector<Pc>>(n), std::vector<Effects>(n)};
  for (Pc pc = 1; pc < n; ++pc) {
    for (Pc s : successors(p, pc)) {
      if (s >= 1 && s < n) f.next[pc].push_back(s);
    }
    f.eff[pc] = effects(p, pc);
  }
  spread_open(f, out);
  spread_live(f, out);
  mark_hidden(p, out);
  return out;
}

std::vector<unsigned> Liveness::passable(Pc pc) const {
  std::vector<unsigned> slots;
  for (unsigned s = 0; s < before[pc].size(); ++s) {
    if (before[pc][s] && !hidden[pc][s]) slots.push_back(s);
  }
  return slots;
}

}  // namespace lutra::bc
