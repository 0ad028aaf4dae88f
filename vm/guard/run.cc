// The witness executor: runs a guard program over the public Lua API. Out: whether its entry may run.
#include <cmath>
#include <lua.hpp>

#include "ops/core/overlap.h"
#include "ops/defs/element.h"
#include "vm/bind/hooks.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/guard/lists.h"
#include "vm/guard/native_run.h"
#include "vm/guard/program.h"
#include "vm/guard/random.h"
#include "vm/mirror/prototypes.h"

namespace lutra {

int prototype_number(lua_State* L, int index) {
  if (lua_iscfunction(L, index)) return lua_tocfunction(L, index) ? 0 : kLibraryFunction;
  return int(reinterpret_cast<uintptr_t>(prototype_identity(L, index)));
}

namespace {

// Runs the check kListCheck with that operand.
bool is_list_for(lua_State* L, int table, int operand) {
  if (operand >= 0) return is_list(L, table, operand);
  const bool grows = operand < -1 && mirror::available(L) &&
                     grows_in_place(static_cast<const mirror::Tab*>(lua_topointer(L, table)), -1 - operand);
  return grows || is_list(L, table, int64_t(lua_objlen(L, table)));
}

struct Runner {
  lua_State* L;
  const GuardProgram& p;
  const CallValues& call;
  int constants, weak;  // stack indexes of the entry's tables
  GuardValues& out;

  int reg(int r) const { return out.base + r; }

  void load(const GuardStep& s) {
    switch (s.op) {
      case GuardOp::kArgLoad: lua_pushvalue(L, s.index + 1); break;
      case GuardOp::kVarargLoad:
        if (call.nslots + s.index < call.nargs) {
          lua_pushvalue(L, call.nslots + s.index + 1);
        } else {
          lua_pushnil(L);
        }
        break;
      case GuardOp::kSelfLoad: lua_pushvalue(L, call.self); break;
      case GuardOp::kUpvalueLoad:
        if (!lua_getupvalue(L, reg(s.a), s.index + 1)) lua_pushnil(L);
        break;
      case GuardOp::kEnvLoad: lua_getfenv(L, reg(s.a)); break;
      case GuardOp::kFieldLoad:
        lua_rawgeti(L, constants, s.index);
        lua_rawget(L, reg(s.a));
        break;
      case GuardOp::kFieldByLoad:
        lua_pushvalue(L, reg(s.b));
        lua_rawget(L, reg(s.a));
        break;
      case GuardOp::kMetatableLoad:
        if (!lua_getmetatable(L, reg(s.a))) lua_pushnil(L);
        break;
      case GuardOp::kLengthLoad: lua_pushnumber(L, double(lua_objlen(L, reg(s.a)))); break;
      case GuardOp::kSizeLoad: {
        const Tensor* t = to_tensor(L, reg(s.a));
        const bool has = t && size_t(s.index) < (*t)->sizes.size();
        has ? lua_pushnumber(L, double((*t)->sizes[size_t(s.index)].hint)) : lua_pushnil(L);
        break;
      }
      case GuardOp::kComputedLoad: {
        const int b = reg(s.b < 0 ? s.a : s.b);
        const bool numbers = lua_type(L, reg(s.a)) == LUA_TNUMBER && lua_type(L, b) == LUA_TNUMBER;
        numbers ? lua_pushnumber(L, compute(SymOp(s.index), lua_tonumber(L, reg(s.a)), lua_tonumber(L, b)))
                : lua_pushnil(L);
        break;
      }
      case GuardOp::kOffsetLoad: {
        const Tensor* t = to_tensor(L, reg(s.a));
        t ? lua_pushnumber(L, double((*t)->offset.hint)) : lua_pushnil(L);
        break;
      }
      case GuardOp::kElementLoad: {
        const Tensor* t = to_tensor(L, reg(s.a));
        const std::optional<double> element = t ? only_element(*t) : std::nullopt;
        element ? lua_pushnumber(L, *element) : lua_pushnil(L);
        break;
      }
      case GuardOp::kIntegerLoad: {
        const bool is = lua_type(L, reg(s.a)) == kCdataType;
        const auto n = is ? number_of_integer(mirror::object(L, reg(s.a)), s.index) : std::nullopt;
        n ? lua_pushnumber(L, *n) : lua_pushnil(L);
        break;
      }
      case GuardOp::kRandomLoad: {
        const LuaRandom* state = random_of(L, reg(s.a));
        if (!state || (s.b >= 0 && lua_type(L, reg(s.b)) != LUA_TNUMBER)) {
          lua_pushnil(L);
          break;
        }
        LuaRandom own = *state;
        if (s.b >= 0) seed_random(own, lua_tonumber(L, reg(s.b)));
        lua_pushnumber(L, draw_ahead(own, s.index));
        break;
      }
      case GuardOp::kHookLoad: {
        const Tensor* t = to_tensor(L, reg(s.a));
        t ? push_hook(L, *t, s.index) : lua_pushnil(L);
        break;
      }
      case GuardOp::kConstantLoad: lua_rawgeti(L, constants, s.index); break;
      case GuardOp::kStringMetaLoad:
        lua_pushliteral(L, "");
        if (!lua_getmetatable(L, -1)) lua_pushnil(L);
        lua_remove(L, -2);
        break;
      case GuardOp::kThreadLoad:
        if (!lua_pushthread(L)) break;
        lua_pop(L, 1);
        lua_pushnil(L);
        break;
      default: {  // kGradLoad
        const Tensor& t = out.tensors[s.a];
        out.tensors.hold(size_t(s.index), t->autograd ? t->autograd->grad : Tensor());
      }
    }
  }

  bool equals(const GuardStep& s, int table) {
    lua_rawgeti(L, table, s.index);
    bool same = lua_rawequal(L, -1, reg(s.a)) && !lua_isnil(L, -1);
    // Bit for bit: 0 and -0 are equal, but not the same constant. NaN is the same, but not equal.
    if (lua_type(L, -1) == LUA_TNUMBER) {
      same = lua_type(L, reg(s.a)) == LUA_TNUMBER &&
             compare_number(SymCmp::kSame, lua_tonumber(L, -1), lua_tonumber(L, reg(s.a)));
    }
    lua_pop(L, 1);
    return same;
  }

  bool keys(const GuardStep& s) {
    const int t = reg(s.a);
    lua_pushnil(L);
    for (int k : p.keys[s.index]) {
      if (!lua_next(L, t)) return false;
      lua_pop(L, 1);
      lua_rawgeti(L, constants, k);
      const bool same = lua_rawequal(L, -1, -2);
      lua_pop(L, 1);
      if (!same) return lua_pop(L, 1), false;
    }
    if (!lua_next(L, t)) return true;
    lua_pop(L, 2);
    return false;
  }

  bool equals_integer(const GuardStep& s) {
    if (lua_type(L, reg(s.a)) != kCdataType) return false;
    lua_rawgeti(L, constants, s.index);
    const bool same = is_same_integer(mirror::object(L, reg(s.a)), mirror::object(L, lua_gettop(L)));
    lua_pop(L, 1);
    return same;
  }

  bool group(const GuardStep& s) {
    const GuardGroup& g = p.groups[size_t(s.index)];
    std::vector<const void*> ids;
    for (const auto& [a, upvalue] : g.members) {
      ids.push_back(s.op == GuardOp::kDistinctCheck          ? lua_topointer(L, reg(a))
                    : s.op == GuardOp::kDistinctTensorsCheck ? out.tensors[size_t(a)].get()
                                                             : lua_upvalueid(L, reg(a), upvalue + 1));
    }
    return s.op == GuardOp::kSameVariableCheck ? ids[0] == ids[1] : distinct(g, ids.data());
  }

  bool check(const GuardStep& s) {
    if (is_setting(s.op)) return setting(s.op) == s.index;
    switch (s.op) {
      case GuardOp::kNilCheck: return lua_isnil(L, reg(s.a));
      case GuardOp::kNotNilCheck: return !lua_isnil(L, reg(s.a));
      case GuardOp::kTypeCheck: return lua_type(L, reg(s.a)) == s.index;
      case GuardOp::kValueCheck:
      case GuardOp::kFieldCheck:
      case GuardOp::kGlobalCheck:
      case GuardOp::kUpvalueCheck: return equals(s, constants);
      case GuardOp::kNotValueCheck: return !equals(s, constants);
      case GuardOp::kCdataCheck: return equals_integer(s);
      case GuardOp::kIdentityCheck: return equals(s, weak);
      case GuardOp::kPrototypeCheck: return lua_isfunction(L, reg(s.a)) && prototype_number(L, reg(s.a)) == s.index;
      case GuardOp::kSameCheck:
      case GuardOp::kMetatableCheck: return lua_rawequal(L, reg(s.a), reg(s.b));
      case GuardOp::kNotSameCheck: return !lua_rawequal(L, reg(s.a), reg(s.b));
      case GuardOp::kDistinctCheck:
      case GuardOp::kDistinctTensorsCheck:
      case GuardOp::kDistinctVariablesCheck:
      case GuardOp::kSameVariableCheck: return group(s);
      case GuardOp::kMemoryCheck: return load_memory(p, p.groups[size_t(s.index)], out.tensors);
      case GuardOp::kOwnVariableCheck:
        return lua_isfunction(L, reg(s.a)) &&
               is_own_variable(L, static_cast<const mirror::Func*>(mirror::object(L, reg(s.a))), s.index);
      case GuardOp::kNotOwnVariableCheck:
        return lua_isfunction(L, reg(s.a)) &&
               is_not_own_variable(L, static_cast<const mirror::Func*>(mirror::object(L, reg(s.a))), s.index);
      case GuardOp::kListCheck: return lua_istable(L, reg(s.a)) && is_list_for(L, reg(s.a), s.index);
      case GuardOp::kLengthCheck: return lua_istable(L, reg(s.a)) && int(lua_objlen(L, reg(s.a))) == s.index;
      case GuardOp::kKeysCheck: return keys(s);
      case GuardOp::kArgCountCheck: return call.nargs - call.nslots == s.index;
      case GuardOp::kTensorCheck: {
        Tensor* t = to_tensor(L, reg(s.a));
        if (!t || !matches(*t, p.tensors[s.index], nullptr)) return false;
        out.tensors.hold(size_t(s.index), *t);
        return true;
      }
      case GuardOp::kGradTensorCheck:
        return out.tensors[s.index] && matches(out.tensors[s.index], p.tensors[s.index], nullptr);
      case GuardOp::kGradNilCheck: {
        const Tensor& t = out.tensors[s.a];
        return !t->autograd || !t->autograd->grad;
      }
      case GuardOp::kNumberCheck:
        if (lua_type(L, reg(s.a)) != LUA_TNUMBER) return false;
        out.scalars[s.index] = lua_tonumber(L, reg(s.a));
        return true;
      case GuardOp::kSymbolsCheck: {
        int failed = 0;
        return p.symbols.run(out.tensors, out.scalars, out.symbols, &failed);
      }
      default:  // kOverlapCheck
        return !overlaps(p, out.tensors);
    }
  }
};

}  // namespace

namespace {

// A set of pointers with open addressing, in memory that the thread keeps.
class PointerSet {
 public:
  explicit PointerSet(size_t n) : slots_(memory()) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    slots_.assign(size, nullptr);
  }
  bool insert(const void* p) {  // returns whether it was absent
    const void** slot = find(p);
    if (*slot) return false;
    *slot = p;
    return true;
  }
  bool has(const void* p) { return *find(p) != nullptr; }

 private:
  static std::vector<const void*>& memory() {
    static thread_local std::vector<const void*> kept;
    return kept;
  }
  const void** find(const void* p) {
    const size_t mask = slots_.size() - 1;
    size_t at = (reinterpret_cast<uintptr_t>(p) >> 4) * 0x9e3779b97f4a7c15u >> 20 & mask;
    while (slots_[at] && slots_[at] != p) at = (at + 1) & mask;
    return &slots_[at];
  }
  std::vector<const void*>& slots_;
};

constexpr size_t kFewPairs = 64;  // so many pairs are compared one by one

}  // namespace

// A complex element is not a double.
std::optional<double> only_element(const Tensor& t) {
  if (t->device() != Device() || t->is_fake() || t->storage->freed || t->numel().hint != 1) return {};
  if (is_complex(t->dtype)) return {};
  return load_element(t->data(), t->dtype).to_double();
}

bool distinct(const GuardGroup& group, const void* const* ids) {
  const size_t n = group.members.size(), writers = size_t(group.writers);
  if (writers * n <= kFewPairs) {
    for (size_t w = 0; w < writers; w++) {
      for (size_t i = w + 1; i < n; i++) {
        if (ids[i] == ids[w]) return false;
      }
    }
    return true;
  }
  PointerSet written(writers);
  for (size_t w = 0; w < writers; w++) {
    if (!written.insert(ids[w])) return false;
  }
  for (size_t i = writers; i < n; i++) {
    if (written.has(ids[i])) return false;
  }
  return true;
}

bool is_list(lua_State* L, int index, int64_t n) {
  int64_t count = 0;
  bool is = true;
  lua_pushnil(L);
  while (is && lua_next(L, index)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TNUMBER) continue;
    const double key = lua_tonumber(L, -1);
    if (key < 1 || key != std::floor(key)) continue;
    count++;
    is = key <= double(n);
  }
  if (!is) lua_pop(L, 1);
  return is && count == n;
}

bool load_memory(const GuardProgram& program, const GuardGroup& group, GuardTensors& tensors) {
  const auto [memory, first] = group.members[0];
  const Tensor one = tensors[size_t(group.members[1].first)];
  for (size_t i = 1; i < group.members.size(); i++) {
    const Tensor& t = tensors[size_t(group.members[i].first)];
    if (!(t->storage == one->storage) || t->offset.hint != group.members[i].second) return false;
  }
  tensors.hold(size_t(memory), alias(one, {program.tensors[size_t(memory)].sizes[0]}, {1}, first));
  return true;
}

// Equal tensors are one input, so a shared storage means another view of it.
bool overlaps(const GuardProgram& program, const std::vector<Tensor>& tensors) {
  const auto storage = [&](size_t i) -> const void* { return tensors[i] ? tensors[i]->storage.get() : nullptr; };
  const auto pairs = [&] {
    for (int w : program.written) {
      for (size_t i = 0; i < tensors.size(); i++) {
        if (int(i) == w || program.tensors[i].in_shared_memory || storage(i) != storage(size_t(w))) continue;
        if (!program.may_share_storage || overlap(tensors[i], tensors[size_t(w)]) != Overlap::kNone) return true;
      }
    }
    return false;
  };
  if (program.written.size() * tensors.size() <= kFewPairs) return pairs();
  PointerSet written(program.written.size());
  for (int w : program.written) {
    if (!written.insert(storage(size_t(w)))) return pairs();
  }
  size_t members = 0;
  for (size_t i = 0; i < tensors.size(); i++)
    members += !program.tensors[i].in_shared_memory && written.has(storage(i));
  return members != program.written.size() && pairs();
}

int run_guards(lua_State* L, const GuardProgram& program, const CallValues& call, int tables, GuardValues* out) {
  if (!lua_checkstack(L, program.registers + 8)) return kNoRoom;
  out->base = lua_gettop(L) + 1;
  out->tensors.reset(program.tensors.size());
  out->scalars.assign(program.scalar_sources.size(), 0);
  Runner r{L, program, call, tables, tables + 1, *out};
  for (size_t i = 0; i < program.steps.size(); i++) {
    const GuardStep& s = program.steps[i];
    if (is_load(s.op)) {
      r.load(s);
    } else if (!r.check(s)) {
      lua_settop(L, out->base - 1);
      return int(i);
    }
  }
  return -1;
}

namespace {

std::string describe_value(lua_State* L, int index) {
  if (Tensor* t = to_tensor(L, index)) return describe(*t);
  switch (lua_type(L, index)) {
    case LUA_TNIL: return "nil";
    case LUA_TBOOLEAN: return lua_toboolean(L, index) ? "true" : "false";
    case LUA_TNUMBER: {
      lua_pushvalue(L, index);
      std::string s = lua_tostring(L, -1);
      lua_pop(L, 1);
      return s;
    }
    case LUA_TSTRING: return str("\"", lua_tostring(L, index), "\"");
    default: return str("a ", luaL_typename(L, index));
  }
}

}  // namespace

std::string describe_found(lua_State* L, const GuardProgram& p, int failed, const CallValues& call, int tables,
                           int* relation) {
  GuardValues out;
  *relation = -1;
  out.base = lua_gettop(L) + 1;
  luaL_checkstack(L, p.registers + 8, "guards");
  out.tensors.reset(p.tensors.size());
  out.scalars.assign(p.scalar_sources.size(), 0);
  Runner r{L, p, call, tables, tables + 1, out};
  for (int i = 0; i < failed; i++) is_load(p.steps[i].op) ? r.load(p.steps[i]) : void(r.check(p.steps[i]));
  const GuardStep& s = p.steps[failed];
  std::string text = is_setting(s.op) ? setting_text(s.op) : "";
  switch (s.op) {
    case GuardOp::kGradNilCheck: text = describe(out.tensors[s.a]->autograd->grad); break;
    case GuardOp::kGradTensorCheck: text = out.tensors[s.index] ? describe(out.tensors[s.index]) : "nil"; break;
    case GuardOp::kArgCountCheck: text = str(call.nargs - call.nslots); break;
    case GuardOp::kCdataCheck:
      text = describe_value(L, r.reg(s.a));
      if (lua_type(L, r.reg(s.a)) == kCdataType && luaL_callmeta(L, r.reg(s.a), "__tostring")) {
        if (lua_isstring(L, -1)) text = lua_tostring(L, -1);
      }
      break;
    case GuardOp::kLengthCheck:
      text = lua_istable(L, r.reg(s.a)) ? str(lua_objlen(L, r.reg(s.a))) : describe_value(L, r.reg(s.a));
      break;
    case GuardOp::kSymbolsCheck: {
      p.symbols.run(out.tensors, out.scalars, out.symbols, relation);
      text = relation_values(p, *relation, out.tensors, out.scalars);
      if (text.empty()) text = "not " + relation_text(p, *relation);
      break;
    }
    case GuardOp::kOverlapCheck:
    case GuardOp::kDistinctCheck:
    case GuardOp::kDistinctTensorsCheck:
    case GuardOp::kDistinctVariablesCheck: text = "the same twice"; break;
    case GuardOp::kSameVariableCheck: text = "two variables"; break;
    case GuardOp::kMemoryCheck: text = "other memory"; break;
    case GuardOp::kOwnVariableCheck:
    case GuardOp::kNotOwnVariableCheck: text = "another variable"; break;
    case GuardOp::kListCheck: text = "holes"; break;
    case GuardOp::kKeysCheck: text = "changed"; break;
    case GuardOp::kSameCheck:
    case GuardOp::kMetatableCheck:
    case GuardOp::kIdentityCheck: text = "another " + std::string(luaL_typename(L, r.reg(s.a))); break;
    default:
      if (text.empty()) text = describe_value(L, r.reg(s.a));
  }
  lua_settop(L, out.base - 1);
  return text;
}

}  // namespace lutra
