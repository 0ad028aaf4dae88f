// Draws from distributions: in place, and normal, whose mean and std are tensors or numbers.
#include <cmath>
#include <limits>
#include <lua.hpp>

#include "vm/bind/composite.h"
#include "vm/bind/lua_reader.h"

namespace lutra {
namespace {

double number(const Value& v) { return pin(v.as<Scalar>()).to_double(); }

Tensor draw(OpId op, const Tensor& t) {
  return op1(op, {t->sizes, t->dtype == DType::kFloat64 ? t->dtype : DType::kFloat32, t->device()});
}

LuaResults fill(const Tensor& t, const Value& values) { return {call_inplace(OpId::copy_, {t, values})}; }

void check_float(const char* fn, const Tensor& t) {
  if (!is_float(t->dtype)) fail(fn, ": expected a floating point dtype, got ", name(t->dtype));
}

Tensor checked(const Tensor& x, const char* test, const char* message) {
  return op1(OpId::check_values, {x, std::string(test), std::string(message)});
}

// -log(1 - u), u uniform: an exponential of rate 1.
Tensor exponential(const Tensor& t) {
  return op1(OpId::neg, {op1(OpId::log, {op1(OpId::sub, {vnum(1), draw(OpId::rand, t)})})});
}

LuaResults exponential_inplace(Args& a) {
  const Tensor t = a[0].tensor();
  check_float("exponential_", t);
  const double rate = number(a[1]);
  if (!(rate > 0)) fail("exponential_: lambd must be positive, got ", rate);
  GradModeScope off(false);
  return fill(t, op1(OpId::div, {exponential(t), vnum(rate)}));
}

// How often one has to try until something of probability p happens.
LuaResults geometric_inplace(Args& a) {
  const Tensor t = a[0].tensor();
  const double p = number(a[1]);
  if (!(p > 0 && p < 1)) fail("geometric_: p must be between 0 and 1, got ", p);
  GradModeScope off(false);
  const Tensor tries = op1(OpId::ceil, {op1(OpId::div, {exponential(t), vnum(-std::log1p(-p))})});
  return fill(t, op1(OpId::clamp, {tries, vnum(1), Value()}));
}

LuaResults log_normal_inplace(Args& a) {
  const Tensor t = a[0].tensor();
  check_float("log_normal_", t);
  const double std = number(a[2]);
  if (!(std > 0)) fail("log_normal_: std must be positive, got ", std);
  GradModeScope off(false);
  const Tensor normal = op1(OpId::add, {op1(OpId::mul, {draw(OpId::randn, t), vnum(std)}), a[1]});
  return fill(t, op1(OpId::exp, {normal}));
}

LuaResults bernoulli_inplace(Args& a) {
  const Tensor t = a[0].tensor();
  GradModeScope off(false);
  if (!a[1].is<Tensor>()) return fill(t, op1(OpId::bernoulli, {t, a[1]}));
  const Tensor p = a[1].tensor();
  check_float("bernoulli_", p);
  return fill(
      t, op1(OpId::lt, {draw(OpId::rand, t), checked(p, "unit", "bernoulli_: probabilities must be between 0 and 1")}));
}

// Whole numbers up to what the dtype holds exactly.
int64_t most(DType dtype) {
  switch (dtype) {
    case DType::kBool: return 2;
    case DType::kUInt8: return 256;
    case DType::kInt8: return 128;
    case DType::kInt16: return 32768;
    case DType::kInt32: return int64_t(1) << 31;
    case DType::kFloat16: return (1 << 11) + 1;
    case DType::kBFloat16: return (1 << 8) + 1;
    case DType::kFloat32: return (1 << 24) + 1;
    case DType::kFloat64: return (int64_t(1) << 53) + 1;
    default: return std::numeric_limits<int64_t>::max();
  }
}

LuaResults random_fill(const Tensor& t, SymInt from, SymInt to) {
  if (from >= to) fail("random_: expected from < to, got ", from.hint, " and ", to.hint);
  GradModeScope off(false);
  return fill(t, op1(OpId::randint, {vint(from), vint(to), t->sizes, DType::kInt64, t->device()}));
}
LuaResults random_all(Args& a) { return random_fill(a[0].tensor(), 0, most(a[0].tensor()->dtype)); }
LuaResults random_below(Args& a) { return random_fill(a[0].tensor(), 0, a[1].sym_int()); }
LuaResults random_between(Args& a) { return random_fill(a[0].tensor(), a[1].sym_int(), a[2].sym_int()); }

// -- normal

LuaResults scaled_normal(const Tensor& like, const Value& mean, const Value& std) {
  check_float("normal", like);
  if (std.is<Scalar>() && !(number(std) >= 0))
    fail("normal: std must not be negative, got ", to_string(std.as<Scalar>()));
  GradModeScope off(false);
  const Value scale = std.is<Scalar>() ? std : checked(std.tensor(), "nonnegative", "normal: std must not be negative");
  return {op1(OpId::to_dtype, {op1(OpId::add, {op1(OpId::mul, {draw(OpId::randn, like), scale}), mean}), like->dtype})};
}

LuaResults normal_tensors(Args& a) {
  GradModeScope off(false);
  return scaled_normal(op1(OpId::add, {a[0], op1(OpId::mul, {a[1], vnum(0)})}), a[0], a[1]);
}
LuaResults normal_mean(Args& a) { return scaled_normal(a[0].tensor(), a[0], a[1]); }
LuaResults normal_std(Args& a) { return scaled_normal(a[1].tensor(), a[0], a[1]); }
LuaResults normal_numbers(Args& a) {
  const Value dtype = a[3].is_none() ? Value(DType::kFloat32) : a[3];
  const Tensor like = op1(OpId::empty, {a[2], dtype, a[4].is_none() ? default_device_value() : a[4]});
  Tensor out = scaled_normal(like, a[0], a[1])[0].tensor();
  if (a[5].as<bool>()) set_requires_grad(out, true);
  return {out};
}

#define OPTIONS "*, dtype? dtype=None, Device? device=None, bool requires_grad=False"

LuaResults integers_like(const Args& a, const Value& low, const Value& high) {
  const Tensor t = a[0].tensor();
  const Args options(a.end() - 3, a.end());
  Tensor out = op1(OpId::randint, {low, high, t->sizes, options[0].is_none() ? Value(t->dtype) : options[0],
                                   options[1].is_none() ? Value(t->device()) : options[1]});
  if (options[2].as<bool>()) set_requires_grad(out, true);
  return {out};
}

const Composite kRows[] = {
    {"bernoulli_", "Tensor input, Scalar p=0.5", kMethod | kDraws, bernoulli_inplace},
    {"bernoulli_", "Tensor input, Tensor p", kMethod | kDraws, bernoulli_inplace},
    {"exponential_", "Tensor input, Scalar lambd=1", kMethod | kDraws, exponential_inplace},
    {"geometric_", "Tensor input, Scalar p", kMethod | kDraws, geometric_inplace},
    {"log_normal_", "Tensor input, Scalar mean=1, Scalar std=2", kMethod | kDraws, log_normal_inplace},
    {"random_", "Tensor input", kMethod | kDraws, random_all},
    {"random_", "Tensor input, int to", kMethod | kDraws, random_below},
    {"random_", "Tensor input, int from, int to", kMethod | kDraws, random_between},
    {"normal", "Tensor mean, Tensor std", kFunctionOf | kDraws, normal_tensors},
    {"normal", "Tensor mean, Scalar std=1", kFunctionOf | kDraws, normal_mean},
    {"normal", "Scalar mean, Tensor std", kFunctionOf | kDraws, normal_std},
    {"normal", "Scalar mean, Scalar std, int[] size, " OPTIONS, kFunctionOf | kDraws, normal_numbers},
    {"randint_like", "Tensor input, int high, " OPTIONS, kBoth | kDraws,
     [](Args& a) { return integers_like(a, vdim(0), a[1]); }},
    {"randint_like", "Tensor input, int low, int high, " OPTIONS, kBoth | kDraws,
     [](Args& a) { return integers_like(a, a[1], a[2]); }},
};

}  // namespace

GeneratorScope::GeneratorScope(const std::string& fn, ArgReader& in, const ExtraKeyword& keyword)
    : saved_(default_generator()) {
  if (keyword.value < 0) return;
  auto* reader = dynamic_cast<LuaReader*>(&in);
  if (!reader) throw NeedsData(fn + ": the state of a generator= is read");
  const auto field = [&](const char* name) {
    if (in.kind(keyword.value) != LuaKind::kTable || in.kind(in.field(keyword.value, name)) != LuaKind::kNumber) {
      fail(fn, ": argument 'generator' must be made by lt.Generator, got ", in.describe(keyword.value));
    }
    return in.number(in.field(keyword.value, name)).to_double();
  };
  const double seed = field("seed"), call = field("call");
  default_generator() = {uint64_t(int64_t(seed)), uint64_t(call)};
  L_ = reader->state(), table_ = keyword.value + 1;
}

GeneratorScope::~GeneratorScope() {
  if (L_) default_generator() = saved_;
}

void GeneratorScope::keep() {
  if (!L_) return;
  lua_pushnumber(L_, double(default_generator().next_call));
  lua_setfield(L_, table_, "call");
}

std::span<const Composite> random_rows() { return kRows; }

}  // namespace lutra
