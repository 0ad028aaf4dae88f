// Pointwise ops: one function for each op writes the instructions of one element. It converts operands to the op's
// compute type first, as PyTorch does (float32 for half types). The result is rounded to its dtype once, at the end.
#include <cmath>
#include <limits>

#include "jit/lower/element.h"
#include "ops/core/half.h"
#include "ops/meta/rules.h"

namespace lutra {

using loop::Op;

// Numbers are arguments of the kernel, so that a kernel serves every value of them.
int32_t Element::scalar(const Scalar& s, DType to) {
  SymEnv& env = *SymEnv::current();
  bool number = s.expr ? is_number(env[s.expr].op) : s.kind == Scalar::kNumber;
  if (is_stored(to)) {
    const DType from = number ? DType::kFloat64 : DType::kInt64;
    return converted(*this, scalar(s, from), from, to);
  }
  if (!s.expr && s.kind == Scalar::kBool) return body().constant(to, double(s.i));
  if (number) {
    int32_t expr = s.expr ? s.expr : env.number(s.d);
    if (is_bool(to)) return body().cast(body().scalar(expr, DType::kFloat64), to);
    return body().scalar(expr, to);
  }
  SymInt v(s.i);
  v.expr = s.expr;
  return body().cast(body().int_value(v), to);
}

namespace {

int32_t binary(Element& x, Op op, Op logic = Op::kCount) {
  DType t = x.type();
  return x.op(is_bool(t) && logic != Op::kCount ? logic : op, t, x.arg(0, t), x.arg(1, t));
}

int32_t unary(Element& x, Op op) { return x.op(op, x.type(), x.arg(0, x.type())); }

bool is_one(const Scalar& s) { return !s.expr && s.to_double() == 1; }

int32_t add_scaled(Element& x, Op op) {
  DType t = x.type();
  int32_t a = x.arg(0, t), b = x.arg(1, t);
  if (x.has(2) && !is_one(x.node.args[2].as<Scalar>())) {
    b = x.op(is_bool(t) ? Op::kAnd : Op::kMul, t, b, x.arg(2, t));
  }
  if (is_bool(t)) op = Op::kOr;
  return x.op(op, t, a, b);
}

// An integer division by zero is an error, so it is checked. The instruction itself returns 0 then.
int32_t divide(Element& x, Op op) {
  DType t = x.type();
  int32_t a = x.arg(0, t), b = op == Op::kRem ? x.arg(1, t) : x.unrounded_arg(1, t);
  if (!is_float(t)) {
    int32_t zero = x.op(Op::kEq, DType::kBool, b, x.body().constant_int(t, 0));
    x.e.check(x.body().cast(zero, DType::kInt64), 1, -1);
  }
  return x.op(op, t, a, b);
}

int32_t compare(Element& x, Op op) {
  const DType common = result_type(x.node.args, {0, 1});  // the type that the operands promote to
  DType t = info(common).compared_as;
  if (is_bool(t) && op != Op::kEq && op != Op::kNe) t = DType::kUInt8;
  const auto operand = [&](size_t k) {
    const bool stored = x.is_tensor(k) && is_stored(x.type_of(k));
    return stored ? converted(x, x.tensor(k), x.type_of(k), t) : x.arg(k, t);
  };
  const int32_t a = operand(0), b = operand(1);
  if (!is_complex(t)) return x.op(op, DType::kBool, a, b);
  const auto parts = [&](int k) { return x.op(op, DType::kBool, x.body().part(a, k), x.body().part(b, k)); };
  return x.op(op == Op::kEq ? Op::kAnd : Op::kOr, DType::kBool, parts(0), parts(1));
}

int32_t logical(Element& x, Op op) { return x.op(op, DType::kBool, x.arg(0, DType::kBool), x.arg(1, DType::kBool)); }

int32_t rounding(Element& x, Op op) { return is_float(x.type()) ? unary(x, op) : x.arg(0, x.type()); }

}  // namespace

int32_t pointwise_add(Element& x) { return add_scaled(x, Op::kAdd); }
int32_t pointwise_sub(Element& x) { return add_scaled(x, Op::kSub); }
// A half tensor's factor or divisor is taken in float32, as PyTorch's kernels do.
int32_t pointwise_mul(Element& x) {
  DType t = x.type();
  int32_t a = x.is_tensor(0) ? x.arg(0, t) : x.unrounded_arg(0, t);
  return x.op(is_bool(t) ? Op::kAnd : Op::kMul, t, a, x.unrounded_arg(1, t));
}
int32_t pointwise_div(Element& x) {
  DType t = x.type();
  if (!x.has(2)) return x.op(Op::kDiv, t, x.arg(0, t), x.unrounded_arg(1, t));
  if (x.node.args[2].as<std::string>() == "floor") return divide(x, Op::kFloorDiv);
  int32_t q = divide(x, Op::kDiv);
  if (!is_float(t)) return q;
  // As in PyTorch's kernels: the quotient of two half tensors is rounded before it is truncated, a quotient by a number
  // is not.
  if (x.is_tensor(1) && x.node.args[1].tensor()->dim() > 0) q = x.body().cast(q, x.result()->dtype);
  return truncated(x, t, q);
}
int32_t pointwise_fmod(Element& x) {
  if (is_float(x.type())) return binary(x, Op::kFmod);
  DType t = x.type();
  return x.op(Op::kSub, t, x.arg(0, t), x.op(Op::kMul, t, divide(x, Op::kDiv), x.arg(1, t)));
}
// Computes squares and cubes as products, as PyTorch's kernels do. Guards on whether the exponent is 2 or 3.
int32_t pointwise_pow(Element& x) {
  const DType t = x.type();
  if (!is_float(t) || !x.is_tensor(0) || !x.node.args[1].is<Scalar>()) return binary(x, Op::kPow);
  const Scalar& exponent = x.node.args[1].as<Scalar>();
  const bool square = scalar_ask(SymCmp::kEq, exponent, Scalar(2.0));
  if (!square && !scalar_ask(SymCmp::kEq, exponent, Scalar(3.0))) return binary(x, Op::kPow);
  const int32_t a = x.arg(0, t), twice = x.op(Op::kMul, t, a, a);
  return square ? twice : x.op(Op::kMul, t, twice, a);
}
int32_t pointwise_remainder(Element& x) { return divide(x, Op::kRem); }
int32_t pointwise_floor_divide(Element& x) { return divide(x, Op::kFloorDiv); }
int32_t pointwise_minimum(Element& x) { return binary(x, Op::kMin, Op::kAnd); }
int32_t pointwise_maximum(Element& x) { return binary(x, Op::kMax, Op::kOr); }
int32_t pointwise_neg(Element& x) { return unary(x, Op::kNeg); }
int32_t pointwise_abs(Element& x) { return unary(x, Op::kAbs); }
int32_t pointwise_exp(Element& x) { return unary(x, Op::kExp); }
int32_t pointwise_log(Element& x) { return unary(x, Op::kLog); }
int32_t pointwise_tanh(Element& x) { return unary(x, Op::kTanh); }
int32_t pointwise_sqrt(Element& x) { return unary(x, Op::kSqrt); }
int32_t pointwise_floor(Element& x) { return rounding(x, Op::kFloor); }
int32_t pointwise_ceil(Element& x) { return rounding(x, Op::kCeil); }
int32_t pointwise_sigmoid(Element& x) {
  DType t = x.type();
  int32_t e = x.op(Op::kExp, t, x.op(Op::kNeg, t, x.arg(0, t)));
  return x.op(Op::kDiv, t, x.number(t, 1), x.op(Op::kAdd, t, x.number(t, 1), e));
}
int32_t pointwise_rsqrt(Element& x) { return x.op(Op::kDiv, x.type(), x.number(x.type(), 1), unary(x, Op::kSqrt)); }
int32_t pointwise_reciprocal(Element& x) { return x.op(Op::kDiv, x.type(), x.number(x.type(), 1), x.arg(0, x.type())); }
int32_t pointwise_relu(Element& x) { return x.op(Op::kMax, x.type(), x.arg(0, x.type()), x.number(x.type(), 0)); }
int32_t pointwise_sign(Element& x) {
  DType t = x.type();
  int32_t a = x.arg(0, t), zero = x.number(t, 0);
  if (is_bool(t)) return a;
  if (is_int(t) && least_integer(t) == 0) return x.body().cast(x.op(Op::kNe, DType::kBool, a, zero), t);
  int32_t below = x.op(Op::kSelect, t, x.op(Op::kLt, DType::kBool, a, zero), x.number(t, -1), zero);
  return x.op(Op::kSelect, t, x.op(Op::kGt, DType::kBool, a, zero), x.number(t, 1), below);
}

int32_t pointwise_eq(Element& x) { return compare(x, Op::kEq); }
int32_t pointwise_ne(Element& x) { return compare(x, Op::kNe); }
int32_t pointwise_lt(Element& x) { return compare(x, Op::kLt); }
int32_t pointwise_le(Element& x) { return compare(x, Op::kLe); }
int32_t pointwise_gt(Element& x) { return compare(x, Op::kGt); }
int32_t pointwise_ge(Element& x) { return compare(x, Op::kGe); }
int32_t pointwise_logical_and(Element& x) { return logical(x, Op::kAnd); }
int32_t pointwise_logical_or(Element& x) { return logical(x, Op::kOr); }
int32_t pointwise_logical_xor(Element& x) { return logical(x, Op::kXor); }
int32_t pointwise_logical_not(Element& x) { return x.op(Op::kNot, DType::kBool, x.arg(0, DType::kBool)); }
int32_t pointwise_isnan(Element& x) {
  int32_t a = x.tensor(0);
  return is_float(x.type_of(0)) ? x.op(Op::kNe, DType::kBool, a, a) : x.body().constant_int(DType::kBool, 0);
}
int32_t pointwise_where(Element& x) {
  return x.op(Op::kSelect, x.type(), x.arg(0, DType::kBool), x.arg(1, x.type()), x.arg(2, x.type()));
}
int32_t pointwise_to_dtype(Element& x) {
  const DType from = x.type_of(0), to = x.result()->dtype;
  return is_stored(from) || is_stored(to) ? converted(x, x.tensor(0), from, to) : x.arg(0, x.type());
}
int32_t pointwise_check_values(Element& x) {
  DType t = x.type();
  const int32_t v = x.arg(0, t), zero = x.number(t, 0);
  const std::string& test = x.node.args[1].as<std::string>();
  const bool finite = test == "finite";
  int32_t good = finite ? x.op(Op::kEq, DType::kBool, x.op(Op::kSub, t, v, v), zero)
                        : x.op(test == "positive" ? Op::kGt : Op::kGe, DType::kBool, v, zero);
  if (test == "unit" || test == "weight") {
    const int32_t most = x.number(t, test == "unit" ? 1 : std::numeric_limits<double>::infinity());
    good = x.op(Op::kAnd, DType::kBool, good, x.op(test == "unit" ? Op::kLe : Op::kLt, DType::kBool, v, most));
  }
  const int32_t bad = x.op(Op::kNot, DType::kBool, good, -1);
  x.e.check(x.body().cast(bad, DType::kInt64), 1, -1);
  return v;
}
int32_t pointwise_clone(Element& x) { return x.arg(0, x.type()); }

int32_t pointwise_full(Element& x) { return x.arg(1, x.type()); }
int32_t pointwise_empty(Element& x) { return x.number(x.type(), 0); }
int32_t pointwise_arange(Element& x) {
  // arange(end) has its end in the first argument.
  bool starts = x.has(1);
  DType t = is_float(x.type()) ? DType::kFloat64 : DType::kInt64;
  int32_t at = x.body().cast(x.body().index(x.index[0]), t);
  // For whole numbers from 0 in steps of 1, the result is the index itself.
  const auto is_whole = [](const Scalar& s, int64_t v) { return !s.expr && s.kind == Scalar::kInt && s.i == v; };
  int32_t v = at;
  if (x.has(2) && !is_whole(x.node.args[2].as<Scalar>(), 1)) {
    v = x.op(Op::kMul, t, at, x.scalar(x.node.args[2].as<Scalar>(), t));
  }
  if (starts && !is_whole(x.node.args[0].as<Scalar>(), 0)) {
    v = x.op(Op::kAdd, t, x.scalar(x.node.args[0].as<Scalar>(), t), v);
  }
  return x.body().cast(v, x.type());
}

namespace {
int32_t random(Element& x, Op op, DType t) {
  LUTRA_CHECK(x.node.rng >= 0, "a random op without its call index");
  return x.body().op(op, t, x.position(), -1, -1, x.node.rng);
}
int32_t random_float(Element& x, Op op) {
  DType t = at_least_float32(x.type());
  return random(x, op, t);
}
}  // namespace

// Half types hold few bits, so rounding to the nearest could give 1. Drops the other bits instead.
int32_t pointwise_rand(Element& x) {
  int32_t u = random_float(x, Op::kUniform);
  if (!is_half(x.result()->dtype)) return u;
  const double steps = x.result()->dtype == DType::kFloat16 ? 2048 : 256;
  u = x.op(Op::kFloor, x.type(), x.op(Op::kMul, x.type(), u, x.number(x.type(), steps)));
  return x.op(Op::kMul, x.type(), u, x.number(x.type(), 1 / steps));
}
int32_t pointwise_randn(Element& x) { return random_float(x, Op::kNormal); }
namespace {
// Args are (size, dtype, device, scale, shift). Rounds where mul and add would.
int32_t scaled(Element& x, int32_t draw) {
  const DType t = x.type();
  const auto rounded = [&](int32_t v) { return x.body().cast(x.body().cast(v, x.result()->dtype), t); };
  const int32_t product = x.op(Op::kMul, t, rounded(draw), x.unrounded_arg(3, t));
  return x.op(Op::kAdd, t, rounded(product), x.arg(4, t));
}
}  // namespace
int32_t pointwise_rand_scaled(Element& x) { return scaled(x, pointwise_rand(x)); }
int32_t pointwise_randn_scaled(Element& x) { return scaled(x, pointwise_randn(x)); }
int32_t pointwise_randint(Element& x) {
  DType t = DType::kInt64;
  int32_t low = x.arg(0, t);
  int32_t span = x.op(Op::kSub, t, x.arg(1, t), low);
  int32_t v = x.op(Op::kRem, t, random(x, Op::kRandBits, t), span);
  return x.body().cast(x.op(Op::kAdd, t, low, v), x.type());
}

namespace {

using ElementRule = int32_t (*)(Element&);
constexpr bool is_pointwise(std::string_view lower) { return lower == "pointwise"; }
const ElementRule kElementRules[] = {
#define OP(name, schema, results, meta, vjp, lower, ...) \
  []() -> ElementRule {                                  \
    if constexpr (is_pointwise(#lower))                  \
      return &pointwise_##name;                          \
    else                                                 \
      return nullptr;                                    \
  }(),
#include "ops/defs/ops.def"
#undef OP
};

}  // namespace

Lowered lower_pointwise(const Node& node, SymFacts& facts) {
  Lowered l;
  for (const Value& v : node.args) {
    if (v.is<Tensor>() && v.tensor()) l.reads.push_back(v.tensor());
  }
  l.heavy = info(node.op).has(kHeavy);
  l.element = element_function(l, facts, size_t(node.results[0]->dim()), [&](RuleContext& e, const Index& index) {
    Element x{node, e, index};
    return e.body.cast(kElementRules[size_t(node.op)](x), x.result()->dtype);
  });
  return l;
}

}  // namespace lutra
