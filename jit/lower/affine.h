// Positions as affine forms. An index has one form for each dimension, over the loops of a kernel under construction
// and i64 values in it.
#pragma once
#include <string>
#include <vector>

#include "ops/core/sym.h"

namespace lutra {

// offset + sum of coef * (loop variable or value).
// Invariants: terms are sorted by (is_value, id), each once; no coefficient is the constant 0.
struct Affine {
  struct Term {
    bool is_value = false;
    int32_t id = 0;
    SymInt coef;
  };
  SymInt offset;
  SmallVec<Term, 3> terms;

  static Affine constant(SymInt v);
  static Affine loop(int32_t id);
  static Affine value(int32_t id);
  // Returns the coefficient of loop `id`; 0 if the loop does not occur.
  SymInt coef_of(int32_t id) const;
};

Affine operator+(const Affine& a, const Affine& b);
Affine operator*(const Affine& a, SymInt by);
// Returns true if both are equal term by term. Adds no guards.
bool identical(SymInt a, SymInt b);
bool identical(const Affine& a, const Affine& b);

using Index = std::vector<Affine>;
bool identical(const Index& a, const Index& b);
// Appends bytes to key that are equal exactly for identical values.
template <class T>
void append_bytes(std::string& key, T v) {
  key.append(reinterpret_cast<const char*>(&v), sizeof v);
}
void append_key(std::string& key, const Affine& a);
void append_key(std::string& key, const Index& index);
// Replaces each term by of(term).
template <class F>
Affine substitute(const Affine& a, F&& of) {
  const auto is_constant = [](SymInt v, int64_t n) { return v.is_constant() && v.hint == n; };
  if (a.terms.size() == 1 && is_constant(a.offset, 0) && is_constant(a.terms[0].coef, 1)) return of(a.terms[0]);
  Affine sum = Affine::constant(a.offset);
  for (const Affine::Term& t : a.terms) sum = sum + of(t) * t.coef;
  return sum;
}
// Returns the position in memory of the element at index.
Affine at_strides(const Index& index, const Sizes& strides, SymInt offset);

}  // namespace lutra
