// Decides whether symbolic sizes are equal, by polynomials over atoms (leaves, quotients, remainders, extrema).
#include "jit/lower/facts.h"

#include <algorithm>
#include <numeric>

namespace lutra {
namespace {

using Poly = std::map<std::vector<int32_t>, int64_t>;
constexpr size_t kMaxPolyTerms = 64, kMaxSteps = 256;

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

// Substitutes rest for the atom in p.
Poly put(const Poly& p, int32_t atom, const Poly& rest) {
  Poly q;
  for (const auto& [m, c] : p) {
    Poly part{{{}, c}};
    for (int32_t a : m) part = product(part, a == atom ? rest : Poly{{{a}, 1}});
    add_to(q, part, 1);
  }
  return q;
}

// Returns the greatest term, one of the highest degree. Products preserve this order, so replacing this term by the
// others terminates.
std::vector<int32_t> leading(const Poly& p) {
  const auto less = [](const auto& a, const auto& b) {
    return a.first.size() != b.first.size() ? a.first.size() < b.first.size() : a.first < b.first;
  };
  return std::max_element(p.begin(), p.end(), less)->first;
}

}  // namespace

// An expression with more than kMaxTerms terms becomes an atom.
Poly SymFacts::compute(int32_t id) {
  const SymExpr e = env_[id];
  const Poly atom{{{id}, 1}};
  if (e.op == SymOp::kConstInt) return e.i ? Poly{{{}, e.i}} : Poly{};
  if (e.op == SymOp::kMul) {
    const Poly &p = polys_.at(e.a), &q = polys_.at(e.b);
    const auto degree = [](const Poly& r) { return r.empty() ? 0 : r.rbegin()->first.size(); };
    if (p.size() * q.size() > kMaxPolyTerms || degree(p) + degree(q) > kMaxPolyTerms) return atom;
    return product(p, q);
  }
  if (e.op == SymOp::kAdd || e.op == SymOp::kSub) {
    Poly p = polys_.at(e.a);
    add_to(p, polys_.at(e.b), e.op == SymOp::kAdd ? 1 : -1);
    return p.size() > kMaxPolyTerms ? atom : p;
  }
  auto known = known_.find(id);
  return known != known_.end() ? known->second : atom;
}

// Computes operands first, with a stack of its own, since chains of expressions may be long.
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

// x - p = 0 defines the atom x as p if p does not contain x. Eliminates the newest atom, so that definitions form no
// cycle. zeros: receives the polynomials of zeros_ that contained the atom, without it.
bool SymFacts::define(const Poly& zero, std::vector<Poly>& zeros) {
  for (auto it = zero.rbegin(); it != zero.rend(); ++it) {
    if (it->first.size() != 1 || (it->second != 1 && it->second != -1)) continue;
    const int32_t atom = it->first[0];
    Poly rest;
    add_to(rest, zero, -it->second);
    add_to(rest, {{{atom}, 1}}, 1);
    if (mentions(rest, atom)) continue;
    for (auto& [other, p] : known_) {
      if (mentions(p, atom)) p = put(p, atom, rest);
    }
    known_[atom] = rest;
    std::erase_if(zeros_, [&](const auto& z) {
      if (!mentions(z.second, atom)) return false;
      zeros.push_back(put(z.second, atom, rest));
      return true;
    });
    return true;
  }
  return false;
}

// Subtracts multiples of known zeros from p. Returns true if p has changed. Each step replaces a term by lesser ones.
bool SymFacts::reduce(Poly& p) const {
  const auto step = [&] {
    for (const auto& [lead, zero] : zeros_) {
      for (const auto& [m, c] : p) {
        const int64_t by = zero.at(lead);
        if (c % by || !std::includes(m.begin(), m.end(), lead.begin(), lead.end())) continue;
        Monomial rest;
        std::set_difference(m.begin(), m.end(), lead.begin(), lead.end(), std::back_inserter(rest));
        add_to(p, product(zero, Poly{{rest, c / by}}), -1);
        return true;
      }
    }
    return false;
  };
  size_t steps = 0;
  while (steps < kMaxSteps && step()) steps++;
  return steps > 0;
}

void SymFacts::vanishes(const Poly& zero) {
  std::vector<Poly> zeros{zero};
  while (!zeros.empty()) {
    Poly z = std::move(zeros.back());
    zeros.pop_back();
    // A polynomial that waited may contain an atom that has been defined since.
    for (const auto& [atom, value] : known_) {
      if (mentions(z, atom)) z = put(z, atom, value);
    }
    reduce(z);
    if (z.empty()) continue;
    int64_t common = 0;
    for (const auto& [m, c] : z) common = std::gcd(common, c);
    for (auto& [m, c] : z) c /= common;
    if (define(z, zeros)) continue;
    const Monomial lead = leading(z);
    const int64_t by = z.at(lead);
    std::erase_if(zeros_, [&](const auto& other) {
      const bool reads = std::any_of(other.second.begin(), other.second.end(), [&](const auto& term) {
        const Monomial& m = term.first;
        return term.second % by == 0 && std::includes(m.begin(), m.end(), lead.begin(), lead.end());
      });
      if (reads) zeros.push_back(other.second);
      return reads;
    });
    zeros_.emplace_back(lead, std::move(z));
  }
  polys_.clear();
}

bool SymFacts::is_zero(Poly difference) const {
  if (!difference.empty()) reduce(difference);
  return difference.empty();
}

bool SymFacts::equal(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return a.hint == b.hint;
  if (a.expr == b.expr) return true;
  if (a.hint != b.hint) return false;
  learn();
  Poly d = poly_of(a);
  add_to(d, poly_of(b), -1);
  return is_zero(std::move(d));
}

bool SymFacts::ask_equal(SymInt a, SymInt b) {
  if (equal(a, b)) return true;
  if (!(a == b)) return false;
  // If bounds of sizes imply the answer, no guard was added to learn it from.
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
