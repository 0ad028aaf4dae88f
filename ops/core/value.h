// What an op's argument can be. A Scalar is a Lua number (weak in promotion), an exact int64 or a bool; it may be
// symbolic.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "ops/core/error.h"
#include "ops/core/function.h"
#include "ops/core/tensor.h"

namespace lutra {

// Invariants: expr != 0 means symbolic: an expression of the current SymEnv whose hint is in d (kNumber) or i (kInt).
struct Scalar {
  // kUInt: above what an int64 holds, its bits in i.
  enum Kind : uint8_t { kNumber, kInt, kBool, kUInt } kind = kNumber;
  bool is_complex = false;  // a kNumber whose imaginary part is im: an element, not an op's argument
  int32_t expr = 0;
  union {
    double d = 0;
    int64_t i;
  };
  double im = 0;
  Scalar() = default;
  Scalar(double v) : d(v) {}  // NOLINT
  static Scalar of_int(int64_t v) {
    Scalar s;
    s.kind = kInt, s.i = v;
    return s;
  }
  static Scalar of_uint(uint64_t v) {
    Scalar s = of_int(int64_t(v));
    if (s.i < 0) s.kind = kUInt;
    return s;
  }
  static Scalar of_complex(double re, double im) {
    Scalar s(re);
    s.is_complex = true, s.im = im;
    return s;
  }
  static Scalar of_bool(bool v) {
    Scalar s;
    s.kind = kBool, s.i = v;
    return s;
  }
  static Scalar of_sym(SymInt v) {
    Scalar s = of_int(v.hint);
    s.expr = v.expr;
    return s;
  }
  // A whole number within +-2^53 (or an int or bool). Asking a symbolic number records a guard.
  bool is_whole() const;
  // The hint, when symbolic.
  double to_double() const { return kind == kNumber ? d : kind == kUInt ? double(uint64_t(i)) : double(i); }
  int64_t to_int() const { return kind == kNumber ? int64_t(d) : i; }
};

// The expression of s as a number, which an integer becomes.
int32_t number_expr(SymEnv& env, const Scalar& s);
// An integer that is a symbol as Lua has it: a number, which is no int64.
Scalar as_number(const Scalar& s);
// Arithmetic (kNAdd, kNSub, kNMul, kNDiv) and questions of Scalars as numbers, symbolic ones included.
Scalar scalar_binary(SymOp op, const Scalar& a, const Scalar& b);
bool scalar_ask(SymCmp cmp, const Scalar& a, const Scalar& b);
// A number that the program depends on: a symbol is pinned to what was seen, bit for bit.
Scalar pin(Scalar s);
// s as the integer that it is, false where it has a fraction. A symbolic number stays a symbol where what it is made of
// varies; else it is pinned.
bool to_integer(Scalar& s);
std::string to_string(const Scalar& s);
// Whether dtype holds s, its fraction aside: infinities and NaN are floats' own, bool takes everything, and uint8 takes
// -255 to -1 as their remainders (all this is PyTorch's). Asking a symbolic number records guards.
bool converts(const Scalar& s, DType dtype);

struct Value {
  // Sizes is a list of sizes or dims; a single int is a Scalar of kind kInt with a SymInt expression.
  std::variant<std::monostate, Tensor, std::vector<Tensor>, Scalar, bool, Sizes, DType, Device, std::string,
               FunctionRef, std::vector<double>>
      v;
  Value() = default;
  template <class T>
  Value(T x) : v(std::move(x)) {}  // NOLINT
  bool is_none() const { return v.index() == 0; }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(v);
  }
  template <class T>
  const T& as() const {
    LUTRA_CHECK(std::holds_alternative<T>(v), "argument of another kind");
    return std::get<T>(v);
  }
  template <class T>
  T& as() {
    LUTRA_CHECK(std::holds_alternative<T>(v), "argument of another kind");
    return std::get<T>(v);
  }
  Tensor tensor() const { return is_none() ? Tensor() : as<Tensor>(); }  // null for None
  SymInt sym_int() const {
    const Scalar& s = as<Scalar>();
    SymInt r(s.to_int());
    r.expr = s.expr;
    return r;
  }
};

// How errors name a value: "number 3", "a tensor f32[2, 3]".
std::string describe(const Value& v);

using Args = std::vector<Value>;
using Results = std::vector<Tensor>;

}  // namespace lutra
