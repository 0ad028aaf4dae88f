// Tests that the two executors of guard programs, the witness and the machine code, agree on every step and value.
#include "vm/guard/native.h"
#include <random>

#include "ops/defs/call.h"
#include "ops/grad/tape.h"
#include "tests/guard/step.h"
#include "tests/host/lutra_state.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/mirror/mirror.h"

namespace lutra {
namespace {

// Pushes the values of the pool, one of every kind that could be confused with another, as globals v[1..n].
const char* const kPool = R"lua(
  local ffi = require "ffi"
  local lt = require "lutra"
  local mt = {__index = {q = 1}}
  local function lua_function() return mt, lt end
  v = {
    false, true, 0, -0.0, 1, 2, 2.5, 0/0, 1/0, -7, 2^40, "", "x", "key", "2",
    {}, {1, 2, 3}, {x = 1, key = 2}, {10, 20, 30, 40, 50, x = 5, [2.5] = "h", [-7] = "n", [true] = 1},
    setmetatable({1, nil, 3}, mt), mt, lua_function, function() end, print, lt.add,
    lt.ones(2, 3), lt.ones(2, 3, {requires_grad = true}), lt.zeros(3), lt.ones(2, 3):t(),
    coroutine.create(function() end), ffi.new("int64_t", 2), io.stdout, newproxy(true),
  }
  v[#v + 1] = {[v[26]] = "by tensor", [v[20]] = 2, [print] = 3}
  w = v[27] w.grad = lt.zeros(2, 3)
  return #v
)lua";

struct Pool : LutraState {
  int n = 0, runs = 0, unsure = 0;  // how often the machine code ran, and left the answer to the witness
  Pool() { n = int(number(kPool)); }
  ~Pool() {
    CHECK(runs > 0);
    CHECK(unsure * 4 < runs);
  }
  void push(int i) {  // 0: nil
    if (i == 0) return lua_pushnil(L);
    lua_getglobal(L, "v");
    lua_rawgeti(L, -1, i);
    lua_remove(L, -2);
  }
};

struct Call {
  lua_State* L;
  const GuardProgram* program;
  NativeGuards* native;
  int nslots, witness = -9, fast = -9;
  bool same_registers = true, same_tensors = true;
  GuardValues a, b;
};

// A C function, since both executors read its frame: the arguments are the portal's; upvalues: constants, weak, self.
int run_both(lua_State* L) {
  Call& c = *static_cast<Call*>(lua_touserdata(L, lua_upvalueindex(4)));
  const int nargs = lua_gettop(L);
  for (int i = 1; i <= 3; i++) lua_pushvalue(L, lua_upvalueindex(i));
  const CallValues values{c.nslots, nargs, nargs + 3};
  c.fast = c.native->run(L, values, &c.b);
  c.witness = run_guards(L, *c.program, values, nargs + 1, &c.a);
  if (c.witness == -1 && c.fast == -1) {
    for (size_t i = 0; i < c.a.tensors.size(); i++) c.same_tensors &= c.a.tensors[i].same(c.b.tensors[i]);
  }
  if (c.witness < 0 && c.fast < 0) {
    for (int r = 0; r < c.program->registers; r++) {
      const double d = lua_tonumber(L, c.a.base + r);
      if (d == d && !lua_rawequal(L, c.a.base + r, c.b.base + r)) c.same_registers = false;
    }
  }
  return 0;
}

// Runs program on the pool's values a and b as arguments, with constant c and weak object w.
void compare(Pool& pool, const GuardProgram& program, int a, int b, int c, int w, int self) {
  lua_State* L = pool.L;
  lua_settop(L, 0);
  lua_newtable(L);
  pool.push(c);
  lua_rawseti(L, 1, 1);
  lua_newtable(L);
  pool.push(w);
  lua_rawseti(L, 2, 1);
  pool.push(self);
  auto native = compile_guards(L, program, 1, 2);
  if (!native) {
    REQUIRE(c == 0);  // a constant nil has no code, anything else has
    lua_settop(L, 0);
    return;
  }
  Call call{L, &program, native.get(), 1};
  lua_pushlightuserdata(L, &call);
  lua_pushcclosure(L, run_both, 4);
  pool.push(a);
  pool.push(b);
  lua_call(L, 2, 0);
  INFO("arguments " << a << " " << b << " constant " << c << " weak " << w << "\n" << print(program));
  const bool same = call.fast == call.witness || call.fast == NativeGuards::kUnsure;
  CHECK(same);
  CHECK(call.same_registers);
  CHECK(call.same_tensors);
  pool.runs++;
  if (call.fast == NativeGuards::kUnsure) pool.unsure++;
}

GuardProgram program_of(std::vector<GuardStep> steps, int registers) {
  GuardProgram p;
  p.steps = std::move(steps);
  p.registers = registers;
  p.expected.resize(p.steps.size());
  return p;
}

}  // namespace

TEST_CASE("both guard executors agree on checks of values", "[guard]") {
  Pool pool;
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0), vararg = step(GuardOp::kVarargLoad, -1, -1, 0);
  for (int a = 0; a <= pool.n; a++) {
    for (int type = 0; type <= 10; type++) {
      if (type != 9) compare(pool, program_of({arg, step(GuardOp::kTypeCheck, 0, -1, type)}, 1), a, 0, 1, 1, 22);
    }
    compare(pool, program_of({arg, step(GuardOp::kNilCheck, 0)}, 1), a, 0, 1, 1, 22);
    for (int n : {0, 1, 3, 5}) {
      compare(pool, program_of({arg, step(GuardOp::kLengthCheck, 0, -1, n)}, 1), a, 0, 1, 1, 22);
    }
    compare(pool, program_of({step(GuardOp::kArgCountCheck, -1, -1, 1), arg}, 1), a, 0, 1, 1, 22);
    for (int b = 0; b <= pool.n; b++) {
      compare(pool, program_of({arg, step(GuardOp::kValueCheck, 0, -1, 1)}, 1), a, 0, b, 1, 22);
      const bool object = b < 3 || b > 11;  // identity is asked of objects only, not of numbers
      if (object) compare(pool, program_of({arg, step(GuardOp::kIdentityCheck, 0, -1, 1)}, 1), a, 0, 1, b, 22);
      compare(pool, program_of({arg, vararg, step(GuardOp::kSameCheck, 0, 1)}, 2), a, b, 1, 1, 22);
      compare(pool, program_of({arg, vararg, step(GuardOp::kNotSameCheck, 0, 1)}, 2), a, b, 1, 1, 22);
    }
  }
}

TEST_CASE("guards have machine code from their second run on", "[guard]") {
  Pool pool;
  lua_State* L = pool.L;
  const GuardProgram p = program_of(
      {step(GuardOp::kArgLoad, -1, -1, 0), step(GuardOp::kVarargLoad, -1, -1, 0), step(GuardOp::kSameCheck, 0, 1)}, 2);
  lua_settop(L, 0);
  lua_newtable(L), lua_newtable(L), lua_newtable(L);
  const auto guards = make_guards(L, p, 1, 2);
  REQUIRE(guards);
  for (const int want : {NativeGuards::kUnsure, -1, -1, 2}) {
    Call call{L, &p, guards.get(), 1};
    for (int i = 1; i <= 3; i++) lua_pushvalue(L, i);
    lua_pushlightuserdata(L, &call);
    lua_pushcclosure(L, run_both, 4);
    lua_pushvalue(L, 1), lua_pushvalue(L, want == 2 ? 2 : 1);
    lua_call(L, 2, 0);
    CHECK(call.fast == want);
    if (want == NativeGuards::kUnsure) continue;
    CHECK(call.witness == want);
    pool.runs++;
  }
}

TEST_CASE("both guard executors agree on prototypes", "[guard]") {
  Pool pool;
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0);
  for (int of = 0; of <= pool.n; of++) {
    pool.push(of);
    const bool lua = lua_isfunction(pool.L, -1) && !lua_iscfunction(pool.L, -1);
    const int number = lua ? prototype_number(pool.L, -1) : 7;
    lua_settop(pool.L, 0);
    for (int a = 0; a <= pool.n; a++) {
      compare(pool, program_of({arg, step(GuardOp::kPrototypeCheck, 0, -1, number)}, 1), a, 0, 1, 1, 22);
    }
  }
}

TEST_CASE("the mirror finds the length that LuaJIT finds", "[guard]") {
  LutraState state;
  lua_State* L = state.L;
  std::mt19937 random(1);
  for (int round = 0; round < 4000; round++) {
    lua_settop(L, 0);
    lua_createtable(L, random() % 3 ? 0 : int(random() % 9), random() % 2 ? 0 : int(random() % 9));
    const unsigned steps = random() % 40, most = 1 + random() % 40;
    for (unsigned i = 0; i < steps; i++) {
      random() % 4 ? lua_pushboolean(L, 1) : lua_pushnil(L);
      lua_rawseti(L, 1,
                  random() % 8   ? int(lua_objlen(L, 1) + 1)
                  : random() % 8 ? int(random() % most)
                                 : 1 << random() % 31);
    }
    INFO("round " << round);
    REQUIRE(mirror::length(static_cast<const mirror::Tab*>(lua_topointer(L, 1))) == int64_t(lua_objlen(L, 1)));
  }
  for (int i = 0; i < 31; i++) lua_pushboolean(L, 1), lua_rawseti(L, 1, 1 << i);
  REQUIRE(mirror::length(static_cast<const mirror::Tab*>(lua_topointer(L, 1))) == int64_t(lua_objlen(L, 1)));
}

TEST_CASE("both guard executors agree on loads", "[guard]") {
  Pool pool;
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0), vararg = step(GuardOp::kVarargLoad, -1, -1, 0);
  const GuardStep table = step(GuardOp::kTypeCheck, 0, -1, LUA_TTABLE);
  for (int a = 0; a <= pool.n; a++) {
    for (int b = 1; b <= pool.n; b++) {
      if (b == 8) continue;  // NaN is no key
      compare(pool, program_of({arg, table, step(GuardOp::kFieldLoad, 0, -1, 1)}, 2), a, 0, b, 1, 22);
      compare(pool, program_of({arg, table, vararg, step(GuardOp::kFieldByLoad, 0, 1)}, 3), a, b, 1, 1, 22);
    }
    compare(pool, program_of({arg, step(GuardOp::kMetatableLoad, 0)}, 2), a, 0, 1, 1, 22);
    compare(pool, program_of({arg, table, step(GuardOp::kLengthLoad, 0)}, 2), a, 0, 1, 1, 22);
    const GuardStep function = step(GuardOp::kTypeCheck, 0, -1, LUA_TFUNCTION);
    compare(pool, program_of({arg, function, step(GuardOp::kUpvalueLoad, 0, -1, 0)}, 2), a, 0, 1, 1, 22);
    compare(pool, program_of({arg, function, step(GuardOp::kUpvalueLoad, 0, -1, 1)}, 2), a, 0, 1, 1, 22);
    compare(pool, program_of({arg, function, step(GuardOp::kEnvLoad, 0)}, 2), a, 0, 1, 1, 22);
  }
  compare(pool, program_of({step(GuardOp::kSelfLoad), step(GuardOp::kUpvalueLoad, 0, -1, 0)}, 2), 0, 0, 1, 1, 22);
}

TEST_CASE("both guard executors agree on sizes and on what is computed of numbers", "[guard]") {
  Pool pool;
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0), vararg = step(GuardOp::kVarargLoad, -1, -1, 0);
  GuardProgram numbers = program_of({arg, step(GuardOp::kNumberCheck, 0, -1, 0), vararg, arg, arg}, 3);
  numbers.scalar_sources.resize(2);
  numbers.steps[3] = step(GuardOp::kNumberCheck, 1, -1, 1);
  for (const SymOp op :
       {SymOp::kAdd, SymOp::kSub, SymOp::kMul, SymOp::kFloorDiv, SymOp::kMod, SymOp::kMin, SymOp::kToInt, SymOp::kToNum,
        SymOp::kNAdd, SymOp::kNDiv, SymOp::kNMod, SymOp::kNFloor, SymOp::kBitAnd}) {
    numbers.steps[4] = step(GuardOp::kComputedLoad, 0, arity(op) == 2 ? 1 : -1, int(op));
    for (int a = 0; a <= pool.n; a++) {
      for (int b = 0; b <= pool.n; b++) compare(pool, numbers, a, b, 1, 1, 22);
    }
  }
  for (int a = 26; a <= 29; a++) {  // tensors
    GuardProgram p = program_of({arg, step(GuardOp::kTensorCheck, 0, -1, 0), step(GuardOp::kSizeLoad, 0, -1, 0)}, 2);
    pool.push(a);
    const TensorImpl& t = *to_tensor(pool.L, -1)->get();
    TensorSpec spec;
    for (const SymInt& size : t.sizes) spec.sizes.push_back(size.hint);
    for (const SymInt& stride : t.strides) spec.strides.push_back(stride.hint);
    spec.requires_grad = t.requires_grad;
    p.tensors = {spec};
    for (int b = 26; b <= 29; b++) compare(pool, p, b, 0, 1, 1, 22);
  }
}

TEST_CASE("both guard executors agree on integers of 64 bits", "[guard]") {
  constexpr int kCdata = 10;
  Pool pool;
  const int first = pool.n + 1;
  pool.n = int(pool.number(R"lua(
    local ffi = require "ffi"
    for _, k in ipairs {0LL, 5LL, -5LL, 2LL ^ 53LL, 2LL ^ 53LL + 1, -(2LL ^ 53LL), -(2LL ^ 53LL) - 1, 5ULL, -1LL + 0ULL,
      3i, ffi.new("int32_t", 5), ffi.new("int64_t[1]", 5), ffi.cast("int64_t&", ffi.new("int64_t[1]", 5)), 5} do
      v[#v + 1] = k
    end
    return #v)lua"));
  const int types[] = {int(pool.number("return tonumber(require('ffi').typeof('int64_t'))")),
                       int(pool.number("return tonumber(require('ffi').typeof('uint64_t'))"))};
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0), cdata = step(GuardOp::kTypeCheck, 0, -1, kCdata);
  for (int a = first; a <= pool.n; a++) {
    for (const int type : types) {
      const GuardStep load = step(GuardOp::kIntegerLoad, 0, -1, type), number = step(GuardOp::kNumberCheck, 1, -1, 0);
      GuardProgram p = program_of({arg, cdata, load, number}, 2);
      p.scalar_sources.resize(1);
      compare(pool, p, a, 0, 1, 1, 22);
    }
  }
}

TEST_CASE("both guard executors agree on hooks", "[guard]") {
  Pool pool;
  pool.n = int(pool.number(R"lua(
    local lt = require "lutra"
    local w = lt.ones(2, {requires_grad = true})
    v[#v + 1] = w
    w:register_hook(print).remove()
    w:register_hook(lt.add)
    w:register_hook(function() end)
    return #v)lua"));
  pool.push(pool.n);
  register_hook(*to_tensor(pool.L, -1), [](const Tensor& g) { return g; });
  lua_pop(pool.L, 1);
  for (const int tensor : {26, 27, pool.n}) {
    for (int k = 0; k < 5; k++) {
      const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0), load = step(GuardOp::kHookLoad, 0, -1, k);
      for (const int type : {LUA_TNIL, LUA_TBOOLEAN, LUA_TFUNCTION}) {
        compare(pool, program_of({arg, load, step(GuardOp::kTypeCheck, 1, -1, type)}, 2), tensor, 0, 1, 1, 22);
      }
      compare(pool, program_of({arg, load, step(GuardOp::kNilCheck, 1)}, 2), tensor, 0, 1, 1, 22);
    }
  }
}

TEST_CASE("both guard executors agree on groups, lists and roots", "[guard]") {
  constexpr int kFunction = 22;  // of the pool, with two upvalues
  Pool pool;
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0), vararg = step(GuardOp::kVarargLoad, -1, -1, 0);
  const GuardStep strings = step(GuardOp::kStringMetaLoad), constant = step(GuardOp::kConstantLoad, -1, -1, 1);
  const std::vector<GuardStep> tables{arg, step(GuardOp::kTypeCheck, 0, -1, LUA_TTABLE), vararg,
                                      step(GuardOp::kTypeCheck, 1, -1, LUA_TTABLE)};
  for (int a = 0; a <= pool.n; a++) {
    for (int n = -5; n <= 6; n++) {
      compare(pool, program_of({arg, step(GuardOp::kListCheck, 0, -1, n)}, 1), a, 0, 1, 1, kFunction);
    }
    if (a > 0) compare(pool, program_of({constant}, 1), 0, 0, a, 1, kFunction);
    for (int b = 0; b <= pool.n; b++) {
      GuardProgram few = program_of(tables, 2);
      few.groups = {{1, {{0, 0}, {1, 0}}}, {2, {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {2, 0}}}};
      GuardProgram many = few;
      few.steps.push_back(step(GuardOp::kDistinctCheck, -1, -1, 0));
      many.steps.insert(many.steps.end(), {strings, constant, step(GuardOp::kDistinctCheck, -1, -1, 1)});
      many.registers = 4;
      compare(pool, few, a, b, 1, 1, kFunction);
      compare(pool, many, a, b, 18, 1, kFunction);
    }
  }
  for (int i = 0; i < 2; i++) {
    for (GuardOp op : {GuardOp::kSameVariableCheck, GuardOp::kDistinctVariablesCheck}) {
      GuardProgram p = program_of({arg, vararg, step(op, -1, -1, 0)}, 2);
      p.groups = {{1, {{0, 0}, {1, i}}}};
      compare(pool, p, kFunction, kFunction, 1, 1, kFunction);
    }
  }
}

TEST_CASE("both guard executors agree on tensors, gradients and numbers", "[guard]") {
  Pool pool;
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0);
  TensorSpec spec;
  spec.sizes = {2, 3};
  spec.strides = {3, 1};
  for (bool requires_grad : {false, true}) {
    spec.requires_grad = requires_grad;
    for (int a = 0; a <= pool.n; a++) {
      GuardProgram p = program_of({arg, step(GuardOp::kTensorCheck, 0, -1, 0)}, 1);
      p.tensors = {spec, TensorSpec{}};
      compare(pool, p, a, 0, 1, 1, 22);
      p.steps.push_back(step(GuardOp::kGradNilCheck, 0));
      compare(pool, p, a, 0, 1, 1, 22);
      p.steps.back() = step(GuardOp::kGradLoad, 0, -1, 1);
      p.steps.push_back(step(GuardOp::kGradTensorCheck, -1, -1, 1));
      p.tensors[1] = p.tensors[0];
      p.tensors[1].requires_grad = false;
      p.expected.resize(p.steps.size());
      compare(pool, p, a, 0, 1, 1, 22);
      GuardProgram q = program_of({arg, step(GuardOp::kNumberCheck, 0, -1, 0)}, 1);
      q.scalar_sources.resize(1);
      compare(pool, q, a, 0, 1, 1, 22);
    }
  }
  for (int on : {0, 1}) compare(pool, program_of({arg, step(GuardOp::kGradModeCheck, -1, -1, on)}, 1), 1, 0, 1, 1, 22);
}

// Both executors find a tensor that differs from a spec in one fact. Machine code calls its helper for facts that it
// does not decide.
TEST_CASE("both guard executors agree on tensors that are almost what is wanted", "[guard]") {
  Pool pool;
  const int first = pool.n + 1;
  pool.n = int(pool.number(R"lua(
    local lt = require "lutra"
    local function add(...)
      for i = 1, select("#", ...) do v[#v + 1] = (select(i, ...)) end
    end
    local leaf = {requires_grad = true}
    local plain, hooked, unhooked, made, freed = lt.ones(2, 3), lt.ones(2, 3, leaf), lt.ones(2, 3, leaf),
      lt.ones(2, 3, leaf) * 2, lt.ones(2, 3)
    hooked:register_hook(function() end)
    unhooked:register_hook(function() end):remove()
    freed:free()
    local kept = lt.ones(2, 3, leaf)
    kept_sum = (kept * 2):sum()
    kept_sum:backward()
    add(plain, hooked, unhooked, made, freed, kept, kept:detach(), plain:detach(), made:detach())
    add(lt.ones(2, 3, {dtype = lt.float64}), lt.ones(2, 3, {dtype = lt.int32}), lt.ones(2, 4), lt.ones(3, 3),
      lt.ones(2, 3, 1), lt.ones(2), lt.tensor(1), lt.ones(3, 2):t(), lt.ones(4, 3):narrow(0, 1, 2),
      lt.ones(2, 6):view(4, 3))
    add(lt.ones(2, 6):narrow(1, 0, 3), lt.ones(1, 3):expand(2, 3), lt.ones(1, 3, leaf):expand(2, 3),
      lt.ones(1, 1, 2, 1, 1, 1, 3), lt.ones(1, 1, 2, 1, 1, 1, 4), lt.ones(1, 1, 2, 1, 1, 3, 1), lt.zeros(0),
      lt.zeros(0, 3))
    add(lt.ones(1):expand(2 ^ 31), lt.ones(1):expand(2 ^ 31 - 1),
      lt.ones(2 ^ 20, {dtype = lt.uint8}):as_strided({2}, {2 ^ 19}))
    return #v
  )lua"));
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0);
  std::vector<TensorSpec> specs;
  for (int i = first; i <= pool.n; i++) {
    pool.push(i);
    const Tensor t = *to_tensor(pool.L, -1);
    lua_settop(pool.L, 0);
    TensorSpec spec;
    spec.dtype = t->dtype, spec.device = t->device(), spec.requires_grad = t->requires_grad;
    spec.leaf = !t->autograd || !t->autograd->grad_fn;
    for (SymInt n : t->sizes) spec.sizes.push_back(n.hint);
    for (SymInt n : t->strides) spec.strides.push_back(n.hint);
    specs.push_back(spec);
    spec.hooks = true;
    specs.push_back(spec);
    spec.device.type = DeviceType::kCUDA;
    specs.push_back(spec);
  }
  for (const TensorSpec& spec : specs) {
    for (int a = 0; a <= pool.n; a++) {
      GuardProgram p = program_of({arg, step(GuardOp::kTensorCheck, 0, -1, 1)}, 1);
      p.tensors = {TensorSpec{}, spec};
      compare(pool, p, a, 0, 1, 1, 22);
    }
  }
}

TEST_CASE("both guard executors agree on key lists", "[guard]") {
  Pool pool;
  const GuardStep arg = step(GuardOp::kArgLoad, -1, -1, 0);
  for (int a = 0; a <= pool.n; a++) {
    for (int b = 1; b <= pool.n; b++) {
      for (int count : {0, 1, 2}) {
        GuardProgram p =
            program_of({arg, step(GuardOp::kTypeCheck, 0, -1, LUA_TTABLE), step(GuardOp::kKeysCheck, 0)}, 1);
        p.keys = {std::vector<int>(size_t(count), 1)};
        compare(pool, p, a, 0, b, 1, 22);
      }
    }
  }
}

}  // namespace lutra
