// Wholeness and arithmetic of Scalars, symbolic ones included.
#include "ops/core/value.h"

#include <cmath>

namespace lutra {

bool Scalar::is_whole() const {
  if (kind != kNumber) return true;
  if (expr) return SymEnv::current()->ask(SymCmp::kWhole, expr, 0);
  return std::floor(d) == d && std::fabs(d) <= 9007199254740992.0;
}

int32_t number_expr(SymEnv& env, const Scalar& s) {
  if (!s.expr) return env.number(s.to_double());
  return is_number(env[s.expr].op) ? s.expr : env.make(SymOp::kToNum, s.expr);
}

Scalar scalar_binary(SymOp op, const Scalar& a, const Scalar& b) {
  SymEnv* env = a.expr || b.expr ? SymEnv::current() : nullptr;
  if (env) {
    int32_t id = env->make(op, number_expr(*env, a), arity(op) > 1 ? number_expr(*env, b) : 0);
    Scalar r((*env)[id].d);
    if ((*env)[id].op != SymOp::kConstNum) r.expr = id;
    return r;
  }
  return eval_number(op, a.to_double(), b.to_double());
}

bool scalar_ask(SymCmp cmp, const Scalar& a, const Scalar& b) {
  if (a.expr || b.expr) {
    SymEnv& env = *SymEnv::current();
    return env.ask(cmp, number_expr(env, a), number_expr(env, b));
  }
  double x = a.to_double(), y = b.to_double();
  switch (cmp) {
    case SymCmp::kEq: return x == y;
    case SymCmp::kNe: return x != y;
    case SymCmp::kLt: return x < y;
    case SymCmp::kLe: return x <= y;
    default: fail_internal("scalar_ask");
  }
}

Scalar as_number(const Scalar& s) {
  if (s.kind != Scalar::kInt || !s.expr) return s;
  Scalar number(double(s.i));
  number.expr = number_expr(*SymEnv::current(), s);
  return number;
}

Scalar pin(Scalar s) {
  if (s.expr) SymEnv::current()->pin(s.expr);
  s.expr = 0;
  return s;
}

bool to_integer(Scalar& s) {
  if (s.kind != Scalar::kNumber) return s.kind == Scalar::kInt;
  SymEnv* env = s.expr ? SymEnv::current() : nullptr;
  const int32_t integer = env && env->varies(s.expr) ? env->ask_integer(s.expr) : 0;
  if (integer) return s = Scalar::of_sym(SymInt::of_expr(*env, integer)), true;
  if (!s.is_whole()) return false;
  s = Scalar::of_int(int64_t(pin(s).d));
  return true;
}

bool converts(const Scalar& s, DType dtype) {
  const double least = info(dtype).least, most = info(dtype).most;
  if (most == HUGE_VAL || s.kind == Scalar::kBool) return true;
  if (dtype == DType::kInt64 && s.kind == Scalar::kInt) return true;
  // Whole numbers below zero wrap around, fractions don't.
  const bool wraps = least < 0 && dtype == DType::kUInt8;
  if (wraps && s.kind == Scalar::kNumber && scalar_ask(SymCmp::kLt, s, 0.0) && !s.is_whole()) return false;
  if (!s.expr) {
    const double v = s.to_double();
    if (v >= least && v <= most) return true;
    return is_float(dtype) && !std::isfinite(v);
  }
  if (!is_float(dtype)) return scalar_ask(SymCmp::kLe, least, s) && scalar_ask(SymCmp::kLe, s, most);
  // These questions accept a NaN, too.
  if (!scalar_ask(SymCmp::kLt, s, least) && !scalar_ask(SymCmp::kLt, most, s)) return true;
  return scalar_ask(SymCmp::kEq, s, HUGE_VAL) || scalar_ask(SymCmp::kEq, s, -HUGE_VAL);
}

std::string to_string(const Scalar& s) {
  if (s.kind == Scalar::kBool) return s.i ? "true" : "false";
  if (s.kind == Scalar::kInt) return std::to_string(s.i);
  if (s.kind == Scalar::kUInt) return std::to_string(uint64_t(s.i));
  const auto text = [](const char* format, double d) {
    char out[32];
    std::snprintf(out, sizeof out, format, std::isnan(d) ? std::fabs(d) : d);
    return std::string(out);
  };
  return text("%.14g", s.d) + (s.is_complex ? text("%+.14g", s.im) + "i" : "");
}

std::string describe(const Value& v) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "nil"; }
    std::string operator()(const Tensor& t) const { return t ? "a tensor " + describe(t) : "nil"; }
    std::string operator()(const std::vector<Tensor>& l) const { return str("a list of ", l.size(), " tensors"); }
    std::string operator()(const Scalar& s) const {
      return (s.kind == Scalar::kBool ? "boolean " : "number ") + to_string(s);
    }
    std::string operator()(bool b) const { return b ? "boolean true" : "boolean false"; }
    std::string operator()(const Sizes& s) const { return "list " + to_string(s); }
    std::string operator()(DType t) const { return std::string("dtype ") + name(t); }
    std::string operator()(Device d) const { return "device " + to_string(d); }
    std::string operator()(const std::string& s) const { return "string '" + s + "'"; }
    std::string operator()(const FunctionRef&) const { return "a function"; }
    std::string operator()(const std::vector<double>& l) const { return str("a list of ", l.size(), " numbers"); }
  };
  return std::visit(Visitor{}, v.v);
}

}  // namespace lutra
