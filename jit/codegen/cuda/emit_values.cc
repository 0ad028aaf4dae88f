// Instructions of loop IR as C++ expressions.
#include <cinttypes>
#include <cmath>
#include <cstring>

#include "jit/codegen/cuda/writer.h"
#include "ops/core/half.h"

namespace lutra::cuda {

using namespace loop;

const char* value_type(DType t) {
  switch (t) {
    case DType::kBool: return "bool";
    case DType::kUInt8: return "uint8_t";
    case DType::kInt8: return "int8_t";
    case DType::kInt16: return "int16_t";
    case DType::kInt32: return "int";
    case DType::kInt64: return "i64";
    case DType::kFloat64: return "double";
    default: return "float";
  }
}

const char* memory_type(DType t) {
  if (is_bool(t)) return "uint8_t";
  if (is_half(t)) return "uint16_t";
  return value_type(t);
}

std::string Writer::coef(const Coef& c) const { return c.arg >= 0 ? str("n", c.arg) : str(c.literal); }

// Returns the index of an access's element. The variable of loop_id is called `as`.
std::string Writer::address(const Access& a, int32_t loop_id, const std::string& as) const {
  std::string text;
  auto plus = [&](const std::string& t) { text += (text.empty() ? "" : " + ") + t; };
  if (!(a.offset == Coef::of(0))) plus(coef(a.offset));
  for (const Access::Term& t : a.terms) {
    if (t.stride == Coef::of(0)) continue;
    const std::string of = t.is_value ? str("v", t.id) : t.id == loop_id ? as : str("i", t.id);
    plus(t.stride == Coef::of(1) ? of : str(of, " * ", coef(t.stride)));
  }
  return text.empty() ? "0" : text;
}

std::string Writer::from_memory(DType t, const std::string& v) const {
  if (t == DType::kFloat16) return str("f16_value(", v, ")");
  if (t == DType::kBFloat16) return str("bf16_value(", v, ")");
  if (is_bool(t)) return str(v, " != 0");
  return v;
}

std::string Writer::to_memory(DType t, const std::string& v) const {
  if (t == DType::kFloat16) return str("f16_bits(", v, ")");
  if (t == DType::kBFloat16) return str("bf16_bits(", v, ")");
  if (is_bool(t)) return str("uint8_t(", v, ")");
  return v;
}

std::string Writer::rounded(DType t, const std::string& v) const {
  if (t == DType::kFloat16) return str("f16(", v, ")");
  if (t == DType::kBFloat16) return str("bf16(", v, ")");
  return v;
}

bool Writer::guarded(const Inst& in) const {
  if (!checks_) return false;
  for (const Access::Term& t : in.access.terms) {
    if (t.is_value) return true;
  }
  return false;
}

std::string Writer::load(const Inst& in) const {
  const auto pack = packs_.find(&in);
  if (pack != packs_.end()) return from_memory(in.type, pack->second + ".e[j]");
  const auto tile = tiles_.find(&in);
  if (tile != tiles_.end()) return from_memory(in.type, tile->second);
  const std::string at = str("p", in.access.ptr, " + (", address(in.access), ")");
  std::string v = str(is_constant(k_.params[size_t(in.access.ptr)]) ? "__ldg(" : "*(", at, ")");
  if (guarded(in)) v = str("(ok ? ", v, " : ", memory_type(in.type), "(0))");
  return from_memory(in.type, v);
}

void Writer::store(const Inst& in, const std::string& guard) {
  const std::string v = to_memory(in.type, str("v", in.a));
  const auto pack = packs_.find(&in);
  if (pack != packs_.end()) return line(str(pack->second, ".e[j] = ", v, ";"));
  if (dead_.count(&in) && fast_) return;
  std::string condition = guard;
  if (guarded(in)) condition = condition.empty() ? "ok" : condition + " && ok";
  const std::string at = str("p", in.access.ptr, "[", address(in.access), "]");
  std::string text = str(at, " = ", v, ";");
  if (in.op == Op::kStoreAdd) {
    const std::string sum = str("add(", from_memory(in.type, at), ", v", in.a, ")");
    text = str(at, " = ", to_memory(in.type, sum), ";");
  }
  line(condition.empty() ? text : str("if (", condition, ") ", text));
}

std::string Writer::constant(const Inst& in) const {
  char text[64];
  if (!is_float(in.type)) {
    const uint64_t bits = uint64_t(in.iimm);
    if (is_bool(in.type)) return in.iimm ? "true" : "false";
    if (in.iimm >= -1000000 && in.iimm <= 1000000) return str(value_type(in.type), "(", in.iimm, ")");
    snprintf(text, sizeof text, "%s(0x%" PRIx64 "ull)", value_type(in.type), bits);
    return text;
  }
  if (in.type == DType::kFloat64) {
    uint64_t bits;
    memcpy(&bits, &in.imm, 8);
    if (std::isfinite(in.imm) && std::fabs(in.imm) < 1e6 && in.imm == std::trunc(in.imm) && !std::signbit(in.imm)) {
      snprintf(text, sizeof text, "%.1f", in.imm);
    } else {
      snprintf(text, sizeof text, "__longlong_as_double(i64(0x%" PRIx64 "ull))", bits);
    }
    return text;
  }
  const float f = float(in.imm);
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (std::isfinite(f) && std::fabs(f) < 1e6f && double(f) == std::trunc(double(f)) && !std::signbit(f)) {
    snprintf(text, sizeof text, "%.1ff", double(f));
  } else {
    snprintf(text, sizeof text, "__uint_as_float(0x%xu)", bits);
  }
  return rounded(in.type, text);
}

std::string Writer::cast(DType from, DType to, const std::string& v) const {
  if (from == to) return v;
  if (is_bool(to)) return str(v, " != 0");
  if (to == DType::kFloat64) return str("double(", v, ")");
  if (is_float(to)) return rounded(to, str("float(", v, ")"));
  const std::string type = value_type(to);
  if (!is_float(from)) return str(type, "(", v, ")");
  if (to == DType::kInt64) return str("to_i64(", v, ")");
  return to == DType::kInt32 ? str("to_i32(", v, ")") : str(type, "(to_i32(", v, "))");
}

std::string Writer::unary(const Inst& in) const {
  const std::string a = str("v", in.a);
  if (in.op == Op::kNot) return is_bool(in.type) ? "!" + a : str(value_type(in.type), "(~", a, ")");
  if (!is_float(in.type)) return str(in.op == Op::kNeg ? "negated(" : "absolute(", a, ")");
  const bool wide = in.type == DType::kFloat64;
  switch (in.op) {
    case Op::kNeg: return "-" + a;
    case Op::kAbs: return str(wide ? "fabs(" : "fabsf(", a, ")");
    case Op::kSqrt: return str(wide ? "sqrt(" : "sqrtf(", a, ")");
    case Op::kFloor: return str(wide ? "floor(" : "floorf(", a, ")");
    case Op::kCeil: return str(wide ? "ceil(" : "ceilf(", a, ")");
    default: return str("lutra::loop::", name(in.op), "_of(", a, ")");
  }
}

std::string Writer::binary(const Inst& in) const {
  const std::string a = str("v", in.a), b = str("v", in.b);
  const bool real = is_float(in.type), compares = info(in.op).rule == TypeRule::kCompare;
  auto infix = [&](const char* op) { return str(a, " ", op, " ", b); };
  auto call = [&](const char* f) { return str(f, "(", a, ", ", b, ")"); };
  auto wrapped = [&](const char* op) { return str(value_type(in.type), "(", a, " ", op, " ", b, ")"); };
  switch (in.op) {
    case Op::kAdd: return real ? infix("+") : call("add");
    case Op::kSub: return real ? infix("-") : call("sub");
    case Op::kMul: return real ? infix("*") : call("mul");
    case Op::kDiv: return real ? infix("/") : call("quotient");
    case Op::kRem: return call(real ? "lutra::loop::remainder_of" : "remainder_of_ints");
    case Op::kFloorDiv: return call(real ? "lutra::loop::floor_divide_of" : "quotient_down");
    case Op::kPow: return real ? call("lutra::loop::pow_of") : str(value_type(in.type), "(", call("power"), ")");
    case Op::kMin: return call("minimum");
    case Op::kMax: return call("maximum");
    case Op::kAtan2: return call("lutra::loop::atan2_of");
    case Op::kNextAfter: return call("lutra::loop::nextafter_of");
    case Op::kFmod: return call("lutra::loop::fmod_of");
    case Op::kCopysign: return str("lutra::loop::with_sign_of(lutra::loop::magnitude(", a, "), ", b, ")");
    case Op::kGcd: return str(value_type(in.type), "(", call("divisor"), ")");
    case Op::kAnd: return wrapped("&");
    case Op::kOr: return wrapped("|");
    case Op::kXor: return wrapped("^");
    case Op::kEq: return infix("==");
    case Op::kNe: return infix("!=");
    case Op::kLt: return infix("<");
    case Op::kLe: return infix("<=");
    case Op::kGt: return infix(">");
    case Op::kGe: return infix(">=");
    default: fail_internal("cuda: ", name(in.op), compares ? " of what" : "");
  }
}

std::string Writer::value(const Inst& in) const {
  const OpInfo& row = info(in.op);
  switch (in.op) {
    case Op::kConst: return constant(in);
    case Op::kScalar: return cast(DType::kFloat64, in.type, str("b.x[", in.arg, "]"));
    case Op::kIntArg: return str("n", in.arg);
    case Op::kIndex: return str("i", in.arg);
    case Op::kLoad: return load(in);
    case Op::kSelect: return str("v", in.a, " ? v", in.b, " : v", in.c);
    case Op::kCast: return cast(types_[size_t(in.a)], in.type, str("v", in.a));
    default: break;
  }
  if (row.rule == TypeRule::kRandom) {
    const std::string w =
        str("lutra::loop::philox<uint64_t>(uint64_t(v", in.a, "), b.head.call + ", in.arg, "u, b.head.seed)");
    if (in.op == Op::kRandBits) return str("i64(lutra::loop::random_bits(", w, "))");
    const bool normal = in.op == Op::kNormal;
    if (in.type == DType::kFloat64) {
      return str(normal ? "lutra::loop::normal_double<double>(" : "uniform_double(", w, ")");
    }
    return rounded(in.type, str(normal ? "lutra::loop::normal_single<double>(" : "uniform_single(", w, ")"));
  }
  const std::string v = row.operands == 1 ? unary(in) : binary(in);
  return row.rule == TypeRule::kSame ? rounded(in.type, v) : v;
}

void Writer::define(const Inst& in, const std::string& text) {
  line(str("const ", value_type(in.type), " v", in.id, " = ", text, ";"));
}

std::string Writer::op_type(const Accumulator& a) const {
  static const char* const kNames[] = {"Sum", "Prod", "Max", "Min", "ArgMax", "ArgMin", "Any", "All"};
  const char* round = a.type == DType::kFloat16 ? ", F16" : a.type == DType::kBFloat16 ? ", BF16" : "";
  return str(kNames[int(a.op)], "<", value_type(a.type), round, ">");
}

void Writer::accum(const Inst& in) {
  const Accumulator& a = *accs_[size_t(in.arg)];
  const std::string partial = a.lanes > 1 ? str("a", a.id, "[", phase_, "]") : str("a", a.id);
  std::string v = str("v", in.a);
  if (is_position(a.op)) {
    const std::string at = a.lanes > 1 ? str("q", a.id, " + i", shared_->id) : str("q", a.id, "++");
    v = str("At<", value_type(a.type), ">{", v, ", ", at, "}");
  }
  if (a.lanes == 1) begin_feed(a);
  line(str(partial, " = ", op_type(a), "::of(", partial, ", ", v, ");"));
}

void Writer::check(const Inst& in) {
  line(str("ok &= ", in_groups_ ? "live && " : "", "within(v", in.a, ", n", in.arg, ", ", in.arg,
           ", b.head.fault, b.head.site);"));
}

void Writer::inst(const Inst& in) {
  switch (in.op) {
    case Op::kStore:
    case Op::kStoreAdd: return store(in, "");
    case Op::kAccum: return accum(in);
    case Op::kCheck: return check(in);
    default: define(in, value(in));
  }
}

}  // namespace lutra::cuda
