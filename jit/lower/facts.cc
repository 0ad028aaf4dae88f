// Symbolic sizes in; equality out, decided on polynomials over atoms (leaves, quotients, remainders, extrema).
#include "jit/lower/facts.h"

#include <algorithm>

namespace lutra {
namespace {

using Poly = std::map<std::vector<int32_t>, int64_t>;
constexpr size_t kMostTerms = 64;

void add_to(Poly& p, const Poly& q, int64_t times) {
  for (const auto& [m, c] : q) {
    int64_t& v = p[m];
    v += c * times;
    if (v == 0) p.erase(m);
  }
}

Poly product(const Poly& p, const Poly& q) {
  Poly r;
  for (const auto& [m, c] : p) {
    for (const auto& [n, d] : q) {
      std::vector<int32_t> mn(m);
      mn.insert(mn.end(), n.begin(), n.end());
      std::sort(mn.begin(), mn.end());
      add_to(r, {{mn, c * d}}, 1);
    }
  }
  return r;
}

bool mentions(const Poly& p, int32_t atom) {
  for (const auto& [m, c] : p) {
    if (std::find(m.begin(), m.end(), atom) != m.end()) return true;
  }
  return false;
}

}  // namespace

// What grows beyond kMostTerms is an atom of its own.
Poly SymFacts::compute(int32_t id) {
  const SymExpr e = env_[id];
  const Poly atom{{{id}, 1}};
  if (e.op == SymOp::kConstInt) return e.i ? Poly{{{}, e.i}} : Poly{};
  if (e.op == SymOp::kMul) {
    const Poly &p = polys_.at(e.a), &q = polys_.at(e.b);
    const auto degree = [](const Poly& r) { return r.empty() ? 0 : r.rbegin()->first.size(); };
    if (p.size() * q.size() > kMostTerms || degree(p) + degree(q) > kMostTerms) return atom;
    return product(p, q);
  }
  if (e.op == SymOp::kAdd || e.op == SymOp::kSub) {
    Poly p = polys_.at(e.a);
    add_to(p, polys_.at(e.b), e.op == SymOp::kAdd ? 1 : -1);
    return p.size() > kMostTerms ? atom : p;
  }
  auto known = known_.find(id);
  return known != known_.end() ? known->second : atom;
}

// Operands first: a chain of them may be long.
const SymFacts::Poly& SymFacts::poly(int32_t wanted) {
  auto found = polys_.find(wanted);
  if (found != polys_.end()) return found->second;
  std::vector<int32_t> stack{wanted};
  while (!stack.empty()) {
    const int32_t id = stack.back();
    const SymExpr& e = env_[id];
    if (e.op == SymOp::kMul || e.op == SymOp::kAdd || e.op == SymOp::kSub) {
      if (!polys_.count(e.a)) stack.push_back(e.a);
      if (!polys_.count(e.b)) stack.push_back(e.b);
    }
    if (stack.back() != id) continue;
    stack.pop_back();
    if (!polys_.count(id)) polys_.emplace(id, compute(id));
  }
  return polys_.at(wanted);
}

SymFacts::Poly SymFacts::poly_of(SymInt v) {
  if (v.expr) return poly(v.expr);
  return v.hint ? Poly{{{}, v.hint}} : Poly{};
}

void SymFacts::learn() {
  while (guards_seen_ < env_.guards().size()) {
    SymGuard g = env_.guards()[guards_seen_++];
    if (g.cmp != SymCmp::kEq || !g.outcome || is_number(env_[g.a].op) || is_number(env_[g.b].op)) continue;
    Poly zero = poly(g.a);
    add_to(zero, poly(g.b), -1);
    if (!zero.empty()) vanishes(zero);
  }
}

void SymFacts::vanishes(const Poly& zero) {
  bool defined = false;
  // x - p = 0 defines the atom x where p has no x. The newest atom goes, so that definitions form no cycle.
  for (auto it = zero.rbegin(); it != zero.rend() && !defined; ++it) {
    if (it->first.size() != 1 || (it->second != 1 && it->second != -1)) continue;
    int32_t atom = it->first[0];
    Poly rest;
    add_to(rest, zero, -it->second);
    add_to(rest, {{{atom}, 1}}, 1);
    if (mentions(rest, atom)) continue;
    known_[atom] = rest;
    for (auto& [other, p] : known_) {
      if (other == atom || !mentions(p, atom)) continue;
      Poly q;
      for (const auto& [m, c] : p) {
        Poly part{{{}, c}};
        for (int32_t a : m) part = product(part, a == atom ? rest : Poly{{{a}, 1}});
        add_to(q, part, 1);
      }
      p = q;
    }
    defined = true;
  }
  if (!defined) zeros_.push_back(zero);
  polys_.clear();
}

bool SymFacts::equal(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return a.hint == b.hint;
  if (a.expr == b.expr) return true;
  if (a.hint != b.hint) return false;
  learn();
  Poly d = poly_of(a);
  add_to(d, poly_of(b), -1);
  if (d.empty()) return true;
  for (const Poly& z : zeros_) {
    Poly plus = d, minus = d;
    add_to(plus, z, 1), add_to(minus, z, -1);
    if (plus.empty() || minus.empty()) return true;
  }
  return false;
}

bool SymFacts::ask_equal(SymInt a, SymInt b) {
  if (equal(a, b)) return true;
  if (!(a == b)) return false;
  // Where bounds of sizes imply the answer there is no new guard to learn it from.
  if (!equal(a, b)) {
    Poly zero = poly_of(a);
    add_to(zero, poly_of(b), -1);
    vanishes(zero);
  }
  return true;
}

bool SymFacts::multiple(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return a.hint >= b.hint;
  if (a.expr == b.expr) return true;
  learn();
  Poly p = poly_of(a), q = poly_of(b);
  if (p.size() != 1 || q.size() != 1) return false;
  const auto& [m, c] = *p.begin();
  const auto& [n, d] = *q.begin();
  if (d < 1 || c < d || !std::includes(m.begin(), m.end(), n.begin(), n.end())) return false;
  std::vector<int32_t> extra;
  std::set_difference(m.begin(), m.end(), n.begin(), n.end(), std::back_inserter(extra));
  return std::all_of(extra.begin(), extra.end(), [&](int32_t atom) { return env_[atom].op == SymOp::kSize; });
}

bool SymFacts::ask_less(SymInt a, SymInt b) {
  if (multiple(a, b)) return false;
  return a < b;
}

}  // namespace lutra
