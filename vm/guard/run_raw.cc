// The fast executor: a guard program in, run on LuaJIT's structs; whether its entry may run out. Registers are written
// to the Lua stack itself, so that the collector sees them and both executors leave the same behind.
#include <cstring>
#include <lua.hpp>

#include "ops/defs/call.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/guard/program.h"
#include "vm/mirror/mirror.h"

namespace lutra {
namespace {

using mirror::TValue;

const TValue kNilValue{~uint64_t{0}};

struct RawRunner {
  lua_State* L;
  const GuardProgram& p;
  const RawConstants& k;
  int nslots, nargs;
  const mirror::Func* self;
  GuardValues& out;
  const TValue* args;
  TValue* regs;

  static const mirror::Tab* table(TValue v) { return static_cast<const mirror::Tab*>(mirror::gc_pointer(v)); }

  static TValue metatable(TValue v) {
    const mirror::Tab* mt = nullptr;
    if (mirror::tag(v) == mirror::kTab) mt = table(v)->metatable;
    if (mirror::tag(v) == mirror::kUdata) mt = static_cast<const mirror::Udata*>(mirror::gc_pointer(v))->metatable;
    return mt ? mirror::make_gc(mirror::kTab, mt) : kNilValue;
  }

  TValue field(TValue t, TValue key) const {
    if (mirror::tag(key) != mirror::kStr) return mirror::raw_get(table(t), key);
    const TValue* v = mirror::raw_get(table(t), static_cast<const mirror::Str*>(mirror::gc_pointer(key)));
    return v ? *v : kNilValue;
  }

  TValue load(const GuardStep& s) const {
    switch (s.op) {
      case GuardOp::kArgLoad:
        return args[s.index];
      case GuardOp::kVarargLoad:
        return nslots + s.index < nargs ? args[nslots + s.index] : kNilValue;
      case GuardOp::kSelfLoad:
        return mirror::make_gc(mirror::kFunc, self);
      case GuardOp::kUpvalueLoad:
        return *static_cast<const mirror::Func*>(mirror::gc_pointer(regs[s.a]))->upvalues[s.index]->v;
      case GuardOp::kEnvLoad:
        return mirror::make_gc(mirror::kTab, static_cast<const mirror::Func*>(mirror::gc_pointer(regs[s.a]))->env);
      case GuardOp::kFieldLoad:
        return field(regs[s.a], k.values[size_t(s.index)]);
      case GuardOp::kFieldByLoad:
        return field(regs[s.a], regs[s.b]);
      case GuardOp::kLengthLoad: {
        const int64_t n = mirror::length(table(regs[s.a]));
        const double d = n < 0 ? double(lua_objlen(L, out.base + s.a)) : double(n);
        TValue v;
        memcpy(&v.u64, &d, sizeof d);
        return v;
      }
      default:  // kMetatableLoad
        return metatable(regs[s.a]);
    }
  }

  static bool is_type(TValue v, int type) {
    const uint32_t tag = mirror::tag(v);
    switch (type) {
      case LUA_TNUMBER:
        return mirror::is_number(v);
      case LUA_TSTRING:
        return tag == mirror::kStr;
      case LUA_TTABLE:
        return tag == mirror::kTab;
      case LUA_TFUNCTION:
        return tag == mirror::kFunc;
      case LUA_TUSERDATA:
        return tag == mirror::kUdata;
      case LUA_TBOOLEAN:
        return tag == mirror::kTrue || tag == mirror::kFalse;
      case LUA_TTHREAD:
        return tag == mirror::kThread;
      case LUA_TLIGHTUSERDATA:
        return tag == mirror::kLightud;
      default:
        return type == 10 && tag == mirror::kCdata;  // LuaJIT's LUA_TCDATA
    }
  }

  bool overlap() const {
    for (int w : p.written) {
      for (size_t i = 0; i < out.tensors.size(); i++) {
        if (int(i) != w && out.tensors[i] && out.tensors[i]->storage == out.tensors[size_t(w)]->storage) return false;
      }
    }
    return true;
  }

  bool tensor(const GuardStep& s) {
    const TValue v = regs[s.a];
    if (mirror::tag(v) != mirror::kUdata) return false;
    const auto* u = static_cast<const mirror::Udata*>(mirror::gc_pointer(v));
    Tensor* t = tensor_in_userdata(u->payload(), u->len);
    if (!t || !matches(*t, p.tensors[size_t(s.index)], nullptr)) return false;
    out.tensors[size_t(s.index)] = *t;
    return true;
  }

  // Checks that need more than values; the others are in check().
  bool check_other(const GuardStep& s) {
    switch (s.op) {
      case GuardOp::kLengthCheck: {
        if (mirror::tag(regs[s.a]) != mirror::kTab) return false;
        const int64_t n = mirror::length(table(regs[s.a]));
        return n == s.index || (n < 0 && int(lua_objlen(L, out.base + s.a)) == s.index);
      }
      case GuardOp::kGradTensorCheck: {
        const Tensor& t = out.tensors[size_t(s.index)];
        return t && matches(t, p.tensors[size_t(s.index)], nullptr);
      }
      case GuardOp::kGradNilCheck: {
        const Tensor& t = out.tensors[size_t(s.a)];
        return !t->autograd || !t->autograd->grad;
      }
      case GuardOp::kGradModeCheck:
        return grad_enabled() == (s.index != 0);
      case GuardOp::kSymbolsCheck: {
        int failed = 0;
        return p.symbols.run(out.tensors, out.scalars, out.symbols, &failed);
      }
      default:  // kOverlapCheck
        return overlap();
    }
  }

  bool check(const GuardStep& s) {
    switch (s.op) {
      case GuardOp::kNilCheck:
        return mirror::tag(regs[s.a]) == mirror::kNil;
      case GuardOp::kTypeCheck:
        return is_type(regs[s.a], s.index);
      case GuardOp::kValueCheck:
      case GuardOp::kFieldCheck:
      case GuardOp::kGlobalCheck:
      case GuardOp::kUpvalueCheck:
        return mirror::raw_equal(regs[s.a], k.values[size_t(s.index)]);
      case GuardOp::kIdentityCheck:
        return uint32_t(s.index) < k.weak->asize && regs[s.a].u64 == k.weak->array[s.index].u64;
      case GuardOp::kSameCheck:
      case GuardOp::kMetatableCheck:
        return mirror::raw_equal(regs[s.a], regs[s.b]);
      case GuardOp::kNotSameCheck:
        return !mirror::raw_equal(regs[s.a], regs[s.b]);
      case GuardOp::kArgCountCheck:
        return nargs - nslots == s.index;
      case GuardOp::kTensorCheck:
        return tensor(s);
      case GuardOp::kNumberCheck:
        if (!mirror::is_number(regs[s.a])) return false;
        memcpy(&out.scalars[size_t(s.index)], &regs[s.a].u64, sizeof(double));
        return true;
      default:
        return check_other(s);
    }
  }
};

}  // namespace

bool raw_guards_can_run(const GuardProgram& p) {
  for (const GuardStep& s : p.steps) {
    if (s.op == GuardOp::kKeysCheck) return false;  // iteration is the API's
  }
  return true;
}

RawConstants resolve_constants(lua_State* L, int constants, int weak) {
  RawConstants k;
  const int n = int(lua_objlen(L, constants));
  k.values.push_back(kNilValue);
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, constants, i);
    k.values.push_back(mirror::top(L)[-1]);
    lua_pop(L, 1);
  }
  k.weak = static_cast<const mirror::Tab*>(mirror::object(L, weak));
  return k;
}

int run_guards_raw(lua_State* L, const GuardProgram& program, const RawConstants& constants, int nslots, int nargs,
                   int self, GuardValues* out) {
  luaL_checkstack(L, program.registers + 8, "guards");
  out->base = lua_gettop(L) + 1;
  out->tensors.resize(program.tensors.size());
  out->scalars.resize(program.scalar_sources.size());
  TValue* regs = mirror::base(L) + out->base - 1;
  RawRunner r{L,
              program,
              constants,
              nslots,
              nargs,
              static_cast<const mirror::Func*>(mirror::gc_pointer(mirror::base(L)[self - 1])),
              *out,
              mirror::base(L),
              regs};
  int next = 0;
  for (size_t i = 0; i < program.steps.size(); i++) {
    const GuardStep& s = program.steps[i];
    if (s.op == GuardOp::kGradLoad) {
      const Tensor& t = out->tensors[size_t(s.a)];
      out->tensors[size_t(s.index)] = t->autograd ? t->autograd->grad : Tensor();
    } else if (is_load(s.op)) {
      regs[next++] = r.load(s);
      mirror::thread(L)->top = regs + next;
    } else if (!r.check(s)) {
      mirror::thread(L)->top = regs;
      return int(i);
    }
  }
  return -1;
}

}  // namespace lutra
