// Adds and multiplies affine forms.
#include "jit/lower/affine.h"

#include <tuple>

namespace lutra {
namespace {

bool is_zero(SymInt v) { return v.is_constant() && v.hint == 0; }

void append_key(std::string& key, SymInt v) {
  append_bytes(key, v.expr);
  append_bytes(key, v.expr ? int64_t(0) : v.hint);
}

}  // namespace

Affine Affine::constant(SymInt v) {
  Affine a;
  a.offset = v;
  return a;
}

Affine Affine::loop(int32_t id) {
  Affine a;
  a.terms.push_back({false, id, SymInt(1)});
  return a;
}

Affine Affine::value(int32_t id) {
  Affine a;
  a.terms.push_back({true, id, SymInt(1)});
  return a;
}

SymInt Affine::coef_of(int32_t id) const {
  for (const Term& t : terms) {
    if (!t.is_value && t.id == id) return t.coef;
  }
  return 0;
}

Affine operator+(const Affine& a, const Affine& b) {
  Affine sum;
  sum.offset = a.offset + b.offset;
  size_t i = 0, j = 0;
  auto key = [](const Affine::Term& t) { return std::make_tuple(t.is_value, t.id); };
  while (i < a.terms.size() || j < b.terms.size()) {
    if (j == b.terms.size() || (i < a.terms.size() && key(a.terms[i]) < key(b.terms[j]))) {
      sum.terms.push_back(a.terms[i++]);
    } else if (i == a.terms.size() || key(b.terms[j]) < key(a.terms[i])) {
      sum.terms.push_back(b.terms[j++]);
    } else {
      Affine::Term t = a.terms[i];
      t.coef = a.terms[i++].coef + b.terms[j++].coef;
      if (!is_zero(t.coef)) sum.terms.push_back(t);
    }
  }
  return sum;
}

Affine operator*(const Affine& a, SymInt by) {
  Affine product;
  if (is_zero(by)) return product;
  product.offset = a.offset * by;
  for (const Affine::Term& t : a.terms) product.terms.push_back({t.is_value, t.id, t.coef * by});
  return product;
}

bool identical(SymInt a, SymInt b) { return a.expr == b.expr && (a.expr || a.hint == b.hint); }

bool identical(const Affine& a, const Affine& b) {
  if (!identical(a.offset, b.offset) || a.terms.size() != b.terms.size()) return false;
  for (size_t i = 0; i < a.terms.size(); i++) {
    const Affine::Term &s = a.terms[i], &t = b.terms[i];
    if (s.is_value != t.is_value || s.id != t.id || !identical(s.coef, t.coef)) return false;
  }
  return true;
}

bool identical(const Index& a, const Index& b) {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); d++) {
    if (!identical(a[d], b[d])) return false;
  }
  return true;
}

void append_key(std::string& key, const Affine& a) {
  append_key(key, a.offset);
  append_bytes(key, uint32_t(a.terms.size()));
  for (const Affine::Term& t : a.terms) {
    append_bytes(key, t.is_value ? -1 - t.id : t.id);
    append_key(key, t.coef);
  }
}

void append_key(std::string& key, const Index& index) {
  for (const Affine& a : index) append_key(key, a);
}

Affine at_strides(const Index& index, const Sizes& strides, SymInt offset) {
  Affine at = Affine::constant(offset);
  for (size_t d = 0; d < index.size(); d++) at = at + index[d] * strides[d];
  return at;
}

}  // namespace lutra
