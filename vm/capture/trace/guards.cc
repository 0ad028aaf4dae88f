// Builds the guard program of a trace: sources become registers, facts become checks.
#include <lua.hpp>

#include "vm/capture/trace/state.h"
#include "vm/capture/trace/trace.h"

namespace lutra {
namespace {

GuardOp load_of(SourceKind kind) {
  switch (kind) {
    case SourceKind::kArg: return GuardOp::kArgLoad;
    case SourceKind::kVararg: return GuardOp::kVarargLoad;
    case SourceKind::kSelf: return GuardOp::kSelfLoad;
    case SourceKind::kUpvalue: return GuardOp::kUpvalueLoad;
    case SourceKind::kEnv: return GuardOp::kEnvLoad;
    case SourceKind::kField: return GuardOp::kFieldLoad;
    case SourceKind::kFieldBy: return GuardOp::kFieldByLoad;
    case SourceKind::kMetatable: return GuardOp::kMetatableLoad;
    case SourceKind::kLength: return GuardOp::kLengthLoad;
    case SourceKind::kSize: return GuardOp::kSizeLoad;
    case SourceKind::kComputed: return GuardOp::kComputedLoad;
    case SourceKind::kOffset: return GuardOp::kOffsetLoad;
    case SourceKind::kElement: return GuardOp::kElementLoad;
    case SourceKind::kInteger: return GuardOp::kIntegerLoad;
    case SourceKind::kRandom: return GuardOp::kRandomLoad;
    case SourceKind::kHook: return GuardOp::kHookLoad;
    case SourceKind::kConstant: return GuardOp::kConstantLoad;
    case SourceKind::kStringMeta: return GuardOp::kStringMetaLoad;
    case SourceKind::kThread: return GuardOp::kThreadLoad;
    case SourceKind::kGrad: return GuardOp::kGradLoad;
  }
  return GuardOp::kCount;
}

}  // namespace

const Source* Trace::source(SourceKind kind, const Source* base, const Source* key, int index,
                            const std::string& text) {
  return sources.get(kind, base, key, index, text, file(), line());
}

const Source* Trace::computed(int32_t expr) {
  constexpr int kMaxOperands = 32;
  int left = kMaxOperands;
  return computed(expr, left);
}

const Source* Trace::computed(int32_t expr, int& left) {
  const SymExpr e = (*graph->env)[expr];
  if (left-- <= 0 || e.op == SymOp::kStride) return nullptr;
  if (e.op == SymOp::kScalarInput) return program.scalar_sources[size_t(e.a)];
  const std::string text = number_text(program, *graph->env, expr);
  if (e.op == SymOp::kConstInt || e.op == SymOp::kConstNum) {
    lua_pushnumber(L, e.op == SymOp::kConstInt ? double(e.i) : e.d);
    return source(SourceKind::kConstant, nullptr, nullptr, constant_slot_from_stack(), text);
  }
  if (e.op == SymOp::kSize) {
    const Source* tensor = inputs[size_t(e.a)].source;
    const bool is_loaded = tensor && tensor->kind != SourceKind::kGrad;
    return is_loaded ? source(SourceKind::kSize, tensor, nullptr, e.b, text) : nullptr;
  }
  const Source* a = computed(e.a, left);
  const Source* b = arity(e.op) == 2 ? computed(e.b, left) : nullptr;
  return a && (b || arity(e.op) == 1) ? source(SourceKind::kComputed, a, b, int(e.op), text) : nullptr;
}

int Trace::reg(const Source* s) {
  auto it = registers.find(s);
  if (it != registers.end()) return it->second;
  LUTRA_CHECK(s->kind != SourceKind::kGrad, s->text);
  GuardStep load;
  load.op = load_of(s->kind);
  load.index = s->index;
  if (s->base) load.a = reg(s->base);
  if (s->key) load.b = reg(s->key);
  load.source = s;
  program.steps.push_back(load);
  program.expected.push_back("");
  return registers[s] = program.registers++;
}

// Returns the kind of a comparison with a constant, which depends on where the value was read.
static GuardOp value_check(const Source* s) {
  if (s->kind == SourceKind::kUpvalue) return GuardOp::kUpvalueCheck;
  if (s->kind != SourceKind::kField) return GuardOp::kValueCheck;
  return s->base->kind == SourceKind::kEnv ? GuardOp::kGlobalCheck : GuardOp::kFieldCheck;
}

void Trace::check(GuardOp op, const Source* s, int index, const std::string& expected) {
  GuardStep step;
  step.op = op == GuardOp::kValueCheck ? value_check(s) : op;
  if (s) step.a = reg(s);
  step.index = index;
  step.source = s;
  program.steps.push_back(step);
  program.expected.push_back(expected);
}

void Trace::check_pair(GuardOp op, const Source* s, const Source* other) {
  GuardStep step;
  step.op = op;
  step.a = reg(s);
  step.b = reg(other);
  step.source = s;
  step.other = other;
  program.steps.push_back(step);
  program.expected.push_back(str(op == GuardOp::kNotSameCheck ? "not " : "", other->text));
}

void Trace::check_group(GuardOp op, const Source* s, GuardGroup group, const std::string& expected) {
  if (op != GuardOp::kDistinctTensorsCheck && op != GuardOp::kMemoryCheck) {
    for (auto& [a, upvalue] : group.members) LUTRA_CHECK(a >= 0 && a < program.registers, expected);
  }
  GuardStep step;
  step.op = op;
  step.index = int(program.groups.size());
  step.source = s;
  program.groups.push_back(std::move(group));
  program.steps.push_back(step);
  program.expected.push_back(expected);
}

int Trace::constant_slot_from_stack() {
  const int type = lua_type(L, -1);
  std::string bytes;
  if (type == LUA_TNUMBER) {
    double d = lua_tonumber(L, -1);
    bytes.assign(reinterpret_cast<const char*>(&d), sizeof d);
  } else if (type == LUA_TSTRING) {
    size_t n;
    const char* p = lua_tolstring(L, -1, &n);
    bytes.assign(p, n);
  } else if (type == LUA_TBOOLEAN) {
    bytes = lua_toboolean(L, -1) ? "1" : "0";
  } else {
    const void* p = lua_topointer(L, -1);
    bytes.assign(reinterpret_cast<const char*>(&p), sizeof p);
  }
  int& slot = constant_slots[{type, bytes}];
  if (slot) {
    lua_pop(L, 1);
  } else {
    slot = ++constant_count;
    lua_rawseti(L, constants, slot);
  }
  return slot;
}

int Trace::constant_slot(Var* v) {
  switch (v->kind) {
    case VarKind::kBool: lua_pushboolean(L, v->b); break;
    case VarKind::kNumber: push_number(L, v->num.to_double()); break;
    case VarKind::kString: lua_pushlstring(L, v->s.data(), v->s.size()); break;
    default: push_pin(v->pin);
  }
  return constant_slot_from_stack();
}

int Trace::weak_slot(int pin) {
  push_pin(pin);
  lua_rawseti(L, weak, ++weak_count);
  return weak_count;
}

}  // namespace lutra
