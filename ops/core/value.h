// The arguments of ops. A Scalar is a Lua number (weak in promotion), an exact integer or a bool. It may be symbolic.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "ops/core/error.h"
#include "ops/core/function.h"
#include "ops/core/tensor.h"

namespace lutra {

// Invariant: expr != 0 means symbolic: an expression of the current SymEnv with its hint in d (kNumber) or i (kInt).
struct Scalar {
  // kUInt: an integer that only a uint64 holds, with its bits in i.
  enum Kind : uint8_t { kNumber, kInt, kBool, kUInt } kind = kNumber;
  bool is_complex = false;  // a kNumber with imaginary part im: only an element, never an argument of an op
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
  // Returns whether it is a whole number within +-2^53 (or an int or bool). Asking a symbolic number records a guard.
  bool is_whole() const;
  // Return the hint if symbolic.
  double to_double() const { return kind == kNumber ? d : kind == kUInt ? double(uint64_t(i)) : double(i); }
  int64_t to_int() const { return kind == kNumber ? int64_t(d) : i; }
};

// Returns the expression of s as a number. An integer is converted.
int32_t number_expr(SymEnv& env, const Scalar& s);
// Returns a symbolic integer as Lua has it: as a number, not an int64.
Scalar as_number(const Scalar& s);
// Arithmetic (kNAdd, kNSub, kNMul, kNDiv) and comparison of Scalars as numbers, symbolic ones included.
Scalar scalar_binary(SymOp op, const Scalar& a, const Scalar& b);
bool scalar_ask(SymCmp cmp, const Scalar& a, const Scalar& b);
inline bool scalar_equals(const Scalar& a, double b) { return scalar_ask(SymCmp::kEq, a, Scalar(b)); }
// Returns s as a constant that the program depends on. A symbol is pinned to the bits of the value seen.
Scalar pin(Scalar s);
// Converts s to an integer. Returns false if it has a fraction. A symbolic number stays a symbol if its operands vary,
// else it is pinned.
bool to_integer(Scalar& s);
std::string to_string(const Scalar& s);
// Returns whether dtype can hold s, its fraction aside. As in PyTorch, only floats hold infinities and NaN, bool takes
// everything, and uint8 takes -255 to -1 modulo 256. Asking a symbolic number records guards.
bool converts(const Scalar& s, DType dtype);

struct Value {
  // Sizes is a list of sizes or dims. A single int is a Scalar of kind kInt with a SymInt expression.
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

// Formats a value for an error message: "number 3", "a tensor f32[2, 3]".
std::string describe(const Value& v);

using Args = std::vector<Value>;
using Results = std::vector<Tensor>;

}  // namespace lutra
