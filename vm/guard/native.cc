// Guard programs to x64 with asmjit's Assembler, one pass over the steps.
//
// Registers: rbx the Run, r12 register 0 of the program (a Lua stack slot), r13 argument 0, r14 the payload mask of GC
// pointers. Values in rax, rcx, rdx. A failing check jumps to a stub that returns the step's number.
// Invariants:
// 1. The code calls no Lua API: it reads structs, or calls the helpers below, which read structs and tensors.
// 2. Objects that the code embeds are kept alive by the entry's table of constants; others are read from the weak
// table.
#include "vm/guard/native.h"

#include <asmjit/x86.h>
#include <lua.hpp>

#include <cmath>
#include <cstddef>

#include "ops/core/current_device.h"
#include "ops/defs/autocast.h"
#include "ops/defs/call.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/mirror/mirror.h"

namespace lutra {
namespace {

using namespace asmjit;
using mirror::Func;
using mirror::Node;
using mirror::Str;
using mirror::Tab;
using mirror::TValue;
using mirror::Udata;
using mirror::Upval;

struct Run {
  TValue* regs;
  const TValue* args;
  const Tab* weak;
  TValue self;
  const Tab* string_meta;  // null where the program does not ask
  double* scalars;
  int nslots, nargs;
  const GuardProgram* program;
  GuardValues* out;
};

// -- Helpers of the generated code. They answer 1 (holds), 0 (fails) or NativeGuards::kUnsure.

uint64_t get_field(const Tab* t, uint64_t key) noexcept { return mirror::raw_get(t, TValue{key}).u64; }

int equal_values(uint64_t a, uint64_t b) noexcept { return mirror::raw_equal(TValue{a}, TValue{b}); }

// A number, or nil where finding it takes the API.
uint64_t get_length(const Tab* t) noexcept {
  const int64_t n = mirror::length(t);
  return n < 0 ? mirror::kNilValue : mirror::make_number(double(n)).u64;
}

int check_length(const Tab* t, int64_t wanted) noexcept {
  const int64_t n = mirror::length(t);
  return n < 0 ? NativeGuards::kUnsure : n == wanted;
}

// The order of lua_next: the array, then the nodes.
int check_keys(const Tab* t, const TValue* keys, int64_t count) noexcept {
  int64_t at = 0;
  for (uint32_t i = 0; i < t->asize; i++) {
    if (t->array[i].u64 == mirror::kNilValue) continue;
    if (at == count || !mirror::raw_equal(keys[at++], mirror::make_number(i))) return 0;
  }
  for (uint32_t i = 0; i <= t->hmask; i++) {
    const Node& n = t->node[i];
    if (n.val.u64 == mirror::kNilValue) continue;
    if (at == count || !mirror::raw_equal(keys[at++], n.key)) return 0;
  }
  return at == count;
}

// Table `t` has the positive whole keys 1 .. n.
int check_list(const Tab* t, int64_t n) noexcept {
  int64_t count = 0;
  for (uint32_t i = 1; i < t->asize; i++) {
    if (t->array[i].u64 == mirror::kNilValue) continue;
    if (int64_t(i) > n) return 0;
    count++;
  }
  for (uint32_t i = 0; i <= t->hmask; i++) {
    const Node& node = t->node[i];
    if (node.val.u64 == mirror::kNilValue || !mirror::is_number(node.key)) continue;
    const double key = mirror::number(node.key);
    if (key < 1 || key != std::floor(key)) continue;
    if (key > double(n)) return 0;
    count++;
  }
  return count == n;
}

const void* member_id(const Run* run, GuardOp op, const std::pair<int, int>& member) {
  const size_t at = size_t(member.first);
  if (op == GuardOp::kDistinctTensorsCheck) return run->out->tensors[at].get();
  const void* object = mirror::gc_pointer(run->regs[at]);
  if (op == GuardOp::kDistinctCheck) return object;
  const Func* f = static_cast<const Func*>(object);
  return f->is_lua() && member.second < f->nupvalues ? f->upvalues[member.second] : nullptr;
}

int check_group(const Run* run, GuardOp op, int64_t index) {
  const GuardGroup& g = run->program->groups[size_t(index)];
  constexpr size_t kFew = 16;
  const void* few[kFew];
  std::vector<const void*> many(g.members.size() > kFew ? g.members.size() : 0);
  const void** ids = many.empty() ? few : many.data();
  for (size_t i = 0; i < g.members.size(); i++) ids[i] = member_id(run, op, g.members[i]);
  return op == GuardOp::kSameVariableCheck ? ids[0] == ids[1] : distinct(g, ids);
}

int check_distinct(Run* run, int64_t, int64_t i) noexcept { return check_group(run, GuardOp::kDistinctCheck, i); }
int check_distinct_tensors(Run* run, int64_t, int64_t i) noexcept {
  return check_group(run, GuardOp::kDistinctTensorsCheck, i);
}
int check_distinct_variables(Run* run, int64_t, int64_t i) noexcept {
  return check_group(run, GuardOp::kDistinctVariablesCheck, i);
}
int check_same_variable(Run* run, int64_t, int64_t i) noexcept {
  return check_group(run, GuardOp::kSameVariableCheck, i);
}

uint64_t get_offset(uint64_t value) noexcept {
  const Udata* u = static_cast<const Udata*>(mirror::gc_pointer(TValue{value}));
  return mirror::make_number(double((*tensor_in_userdata(u->payload(), u->len))->offset.hint)).u64;
}

int check_tensor(Run* run, uint64_t value, int64_t index) noexcept {
  const Udata* u = static_cast<const Udata*>(mirror::gc_pointer(TValue{value}));
  Tensor* t = tensor_in_userdata(u->payload(), u->len);
  if (!t || !matches(*t, run->program->tensors[index], nullptr)) return 0;
  run->out->tensors[index] = *t;
  return 1;
}

void load_grad(Run* run, int64_t from, int64_t to) noexcept {
  const Tensor& t = run->out->tensors[from];
  run->out->tensors[to] = t->autograd ? t->autograd->grad : Tensor();
}

int check_grad_tensor(Run* run, int64_t, int64_t index) noexcept {
  const Tensor& t = run->out->tensors[index];
  return t && matches(t, run->program->tensors[index], nullptr);
}

int check_grad_nil(Run* run, int64_t from, int64_t) noexcept {
  const Tensor& t = run->out->tensors[from];
  return !t->autograd || !t->autograd->grad;
}

int check_grad_mode(Run*, int64_t, int64_t on) noexcept { return grad_enabled() == (on != 0); }
int check_autocast(Run*, int64_t, int64_t mode) noexcept { return pack(autocast_mode()) == mode; }
int check_current_gpu(Run*, int64_t, int64_t index) noexcept { return current_cuda_index() == index; }
int check_default_device(Run*, int64_t, int64_t index) noexcept { return gpu_index(default_device()) == index; }

int check_symbols(Run* run, int64_t, int64_t) noexcept {
  int failed = 0;
  return run->program->symbols.run(run->out->tensors, run->out->scalars, run->out->symbols, &failed);
}

int check_overlap(Run* run, int64_t, int64_t) noexcept { return !overlaps(*run->program, run->out->tensors); }

uint64_t constant_at(const Tab* constants, int slot) {
  return mirror::raw_get(constants, mirror::make_number(slot)).u64;
}

const Tab* metatable_of_strings(lua_State* L) {
  lua_pushliteral(L, "");
  const Tab* found = nullptr;
  if (lua_getmetatable(L, -1)) {
    found = static_cast<const Tab*>(lua_topointer(L, -1));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return found;
}

struct Code : NativeGuards {
  ~Code() override;
  using Fn = int (*)(Run*);
  const GuardProgram* program = nullptr;
  const Tab* weak = nullptr;
  std::vector<std::vector<TValue>> keys;
  Fn fn = nullptr;

  bool asks_strings = false;

  int run(lua_State* L, int nslots, int nargs, int self, GuardValues* out) const override {
    if (!lua_checkstack(L, program->registers + 8)) return kNoRoom;
    const Tab* string_meta = asks_strings ? metatable_of_strings(L) : nullptr;
    const int base = lua_gettop(L) + 1;
    lua_settop(L, base - 1 + program->registers);
    out->base = base;
    out->tensors.assign(program->tensors.size(), Tensor());
    out->scalars.assign(program->scalar_sources.size(), 0);
    const TValue* stack = mirror::base(L);
    Run run{mirror::base(L) + base - 1, stack,  weak,  stack[self - 1], string_meta,
            out->scalars.data(),        nslots, nargs, program,         out};
    const int result = fn(&run);
    if (result != -1) lua_settop(L, base - 1);
    return result;
  }
};

JitRuntime& jit() {
  static JitRuntime* runtime = [] {
    JitAllocator::CreateParams params;
    params.options = JitAllocatorOptions::kUseDualMapping;
    return new JitRuntime(&params);
  }();
  return *runtime;
}

Code::~Code() {
  if (fn) jit().release(fn);
}

class GuardEmitter {
 public:
  GuardEmitter(const GuardProgram& p, const Tab* constants, Code& code) : p_(p), constants_(constants), out_(code) {}

  bool run() {
    CodeHolder holder;
    holder.init(jit().environment());
    holder.attach(&a_);
    unsure_ = a_.newLabel();
    done_ = a_.newLabel();
    prologue();
    int reg = 0;
    for (size_t i = 0; i < p_.steps.size(); i++) {
      miss_ = a_.newLabel();
      misses_.push_back(miss_);
      const GuardStep& s = p_.steps[i];
      if (!is_load(s.op)) {
        check(s);
      } else if (s.op == GuardOp::kGradLoad) {
        call_run(reinterpret_cast<void*>(&load_grad), s.a, s.index);
      } else {
        load(s, x86::qword_ptr(x86::r12, 8 * reg++));
      }
    }
    epilogue();
    if (!ok_ || jit().add(&out_.fn, &holder)) return false;
    out_.bytes = holder.codeSize();
    return true;
  }

 private:
  void prologue() {
    for (x86::Gp r : {x86::rbx, x86::r12, x86::r13, x86::r14, x86::r15}) a_.push(r);
    a_.mov(x86::rbx, x86::rdi);
    a_.mov(x86::r12, x86::qword_ptr(x86::rbx, offsetof(Run, regs)));
    a_.mov(x86::r13, x86::qword_ptr(x86::rbx, offsetof(Run, args)));
    a_.mov(x86::r14, mirror::kPayload);
  }
  void epilogue() {
    a_.mov(x86::eax, -1);
    a_.bind(done_);
    for (x86::Gp r : {x86::r15, x86::r14, x86::r13, x86::r12, x86::rbx}) a_.pop(r);
    a_.ret();
    for (size_t i = 0; i < misses_.size(); i++) {
      a_.bind(misses_[i]);
      a_.mov(x86::eax, int(i));
      a_.jmp(done_);
    }
    a_.bind(unsure_);
    a_.mov(x86::eax, NativeGuards::kUnsure);
    a_.jmp(done_);
  }

  x86::Mem reg(int r) { return x86::qword_ptr(x86::r12, 8 * r); }
  void value(x86::Gp to, int r) { a_.mov(to, reg(r)); }
  // The GC object in register r; its type was checked by an earlier step.
  void object(x86::Gp to, int r) {
    value(to, r);
    a_.and_(to, x86::r14);
  }
  void call(const void* fn) {
    a_.mov(x86::rax, uint64_t(fn));
    a_.call(x86::rax);
  }
  void call_run(const void* fn, int64_t a, int64_t b) {
    a_.mov(x86::rdi, x86::rbx);
    a_.mov(x86::rsi, a);
    a_.mov(x86::rdx, b);
    call(fn);
  }
  void require_answer() {
    a_.cmp(x86::eax, 1);
    Label ok = a_.newLabel();
    a_.je(ok);
    a_.test(x86::eax, x86::eax);
    a_.jne(unsure_);
    a_.jmp(miss_);
    a_.bind(ok);
  }
  void tag_of(x86::Gp to, x86::Gp value) {
    a_.mov(to, value);
    a_.sar(to, 47);
  }

  void load(const GuardStep& s, x86::Mem to) {
    switch (s.op) {
      case GuardOp::kArgLoad: a_.mov(x86::rax, x86::qword_ptr(x86::r13, 8 * s.index)); break;
      case GuardOp::kVarargLoad: load_vararg(s.index); break;
      case GuardOp::kSelfLoad: a_.mov(x86::rax, x86::qword_ptr(x86::rbx, offsetof(Run, self))); break;
      case GuardOp::kUpvalueLoad: load_upvalue(s); break;
      case GuardOp::kEnvLoad:
        object(x86::rcx, s.a);
        a_.mov(x86::rax, x86::qword_ptr(x86::rcx, offsetof(Func, env)));
        tag_table();
        break;
      case GuardOp::kFieldLoad: load_field(s); break;
      case GuardOp::kFieldByLoad:
        object(x86::rdi, s.a);
        value(x86::rsi, s.b);
        call(reinterpret_cast<void*>(&get_field));
        break;
      case GuardOp::kLengthLoad:
        object(x86::rdi, s.a);
        call(reinterpret_cast<void*>(&get_length));
        a_.cmp(x86::rax, -1);
        a_.je(unsure_);
        break;
      case GuardOp::kOffsetLoad:
        value(x86::rdi, s.a);
        call(reinterpret_cast<void*>(&get_offset));
        break;
      case GuardOp::kConstantLoad: a_.mov(x86::rax, constant_at(constants_, s.index)); break;
      case GuardOp::kStringMetaLoad:
        out_.asks_strings = true;
        a_.mov(x86::rax, x86::qword_ptr(x86::rbx, offsetof(Run, string_meta)));
        tag_table();
        break;
      default: load_metatable(s);
    }
    a_.mov(to, x86::rax);
  }
  // rax: a Tab*, perhaps null, becomes a value.
  void tag_table() {
    Label nil = a_.newLabel(), end = a_.newLabel();
    a_.test(x86::rax, x86::rax);
    a_.je(nil);
    a_.mov(x86::rcx, mirror::make_gc(mirror::kTab, nullptr).u64);
    a_.or_(x86::rax, x86::rcx);
    a_.jmp(end);
    a_.bind(nil);
    a_.mov(x86::rax, -1);
    a_.bind(end);
  }
  void load_vararg(int index) {
    Label nil = a_.newLabel(), end = a_.newLabel();
    a_.movsxd(x86::rcx, x86::dword_ptr(x86::rbx, offsetof(Run, nslots)));
    a_.add(x86::rcx, index);
    a_.cmp(x86::ecx, x86::dword_ptr(x86::rbx, offsetof(Run, nargs)));
    a_.jge(nil);
    a_.mov(x86::rax, x86::qword_ptr(x86::r13, x86::rcx, 3));
    a_.jmp(end);
    a_.bind(nil);
    a_.mov(x86::rax, -1);
    a_.bind(end);
  }
  void load_upvalue(const GuardStep& s) {
    Label end = a_.newLabel(), lua = a_.newLabel(), nil = a_.newLabel();
    const int at = int(offsetof(Func, upvalues)) + 8 * s.index;
    object(x86::rcx, s.a);
    a_.cmp(x86::byte_ptr(x86::rcx, offsetof(Func, nupvalues)), s.index);
    a_.jbe(nil);
    a_.cmp(x86::byte_ptr(x86::rcx, offsetof(Func, ffid)), 0);
    a_.je(lua);
    a_.mov(x86::rax, x86::qword_ptr(x86::rcx, at + 8));  // a C function has its address first, then the values
    a_.jmp(end);
    a_.bind(nil);
    a_.mov(x86::rax, -1);
    a_.jmp(end);
    a_.bind(lua);
    a_.mov(x86::rax, x86::qword_ptr(x86::rcx, at));
    a_.mov(x86::rax, x86::qword_ptr(x86::rax, offsetof(Upval, v)));
    a_.mov(x86::rax, x86::qword_ptr(x86::rax));
    a_.bind(end);
  }
  void load_field(const GuardStep& s) {
    const TValue key{constant_at(constants_, s.index)};
    if (mirror::tag(key) != mirror::kStr) {
      object(x86::rdi, s.a);
      a_.mov(x86::rsi, key.u64);
      call(reinterpret_cast<void*>(&get_field));
      return;
    }
    Label loop = a_.newLabel(), found = a_.newLabel(), end = a_.newLabel();
    object(x86::rcx, s.a);
    a_.mov(x86::edx, x86::dword_ptr(x86::rcx, offsetof(Tab, hmask)));
    a_.and_(x86::edx, static_cast<const Str*>(mirror::gc_pointer(key))->sid);
    a_.lea(x86::rdx, x86::ptr(x86::rdx, x86::rdx, 1));  // a node is 24 bytes
    a_.mov(x86::rax, x86::qword_ptr(x86::rcx, offsetof(Tab, node)));
    a_.lea(x86::rdx, x86::ptr(x86::rax, x86::rdx, 3));
    a_.mov(x86::rsi, key.u64);
    a_.bind(loop);
    a_.cmp(x86::qword_ptr(x86::rdx, offsetof(Node, key)), x86::rsi);
    a_.je(found);
    a_.mov(x86::rdx, x86::qword_ptr(x86::rdx, offsetof(Node, next)));
    a_.test(x86::rdx, x86::rdx);
    a_.jne(loop);
    a_.mov(x86::rax, -1);
    a_.jmp(end);
    a_.bind(found);
    a_.mov(x86::rax, x86::qword_ptr(x86::rdx, offsetof(Node, val)));
    a_.bind(end);
  }
  void load_metatable(const GuardStep& s) {
    Label table = a_.newLabel(), got = a_.newLabel();
    value(x86::rcx, s.a);
    tag_of(x86::rdx, x86::rcx);
    a_.and_(x86::rcx, x86::r14);
    a_.cmp(x86::edx, int(mirror::kTab));
    a_.je(table);
    a_.cmp(x86::edx, int(mirror::kUdata));
    a_.jne(unsure_);  // the metatables of the other types belong to the VM
    a_.mov(x86::rax, x86::qword_ptr(x86::rcx, offsetof(Udata, metatable)));
    a_.jmp(got);
    a_.bind(table);
    a_.mov(x86::rax, x86::qword_ptr(x86::rcx, offsetof(Tab, metatable)));
    a_.bind(got);
    tag_table();
  }

  void check(const GuardStep& s) {
    switch (s.op) {
      case GuardOp::kNilCheck:
        a_.cmp(reg(s.a), -1);
        a_.jne(miss_);
        break;
      case GuardOp::kTypeCheck: check_type(s); break;
      case GuardOp::kValueCheck:
      case GuardOp::kFieldCheck:
      case GuardOp::kGlobalCheck:
      case GuardOp::kUpvalueCheck: check_value(s); break;
      case GuardOp::kIdentityCheck: check_identity(s); break;
      case GuardOp::kSameCheck:
      case GuardOp::kMetatableCheck:
      case GuardOp::kNotSameCheck:
        value(x86::rdi, s.a);
        value(x86::rsi, s.b);
        call(reinterpret_cast<void*>(&equal_values));
        a_.test(x86::eax, x86::eax);
        s.op == GuardOp::kNotSameCheck ? a_.jne(miss_) : a_.je(miss_);
        break;
      case GuardOp::kLengthCheck:
        require_tag(s.a, mirror::kTab);
        object(x86::rdi, s.a);
        a_.mov(x86::rsi, int64_t(s.index));
        call(reinterpret_cast<void*>(&check_length));
        require_answer();
        break;
      case GuardOp::kListCheck:
        require_tag(s.a, mirror::kTab);
        object(x86::rdi, s.a);
        a_.mov(x86::rsi, int64_t(s.index));
        call(reinterpret_cast<void*>(&check_list));
        require_answer();
        break;
      case GuardOp::kDistinctCheck: check_distinct_objects(s); break;
      case GuardOp::kKeysCheck: check_key_list(s); break;
      case GuardOp::kArgCountCheck:
        a_.mov(x86::eax, x86::dword_ptr(x86::rbx, offsetof(Run, nargs)));
        a_.sub(x86::eax, x86::dword_ptr(x86::rbx, offsetof(Run, nslots)));
        a_.cmp(x86::eax, s.index);
        a_.jne(miss_);
        break;
      case GuardOp::kTensorCheck:
        require_tag(s.a, mirror::kUdata);
        a_.mov(x86::rdi, x86::rbx);
        value(x86::rsi, s.a);
        a_.mov(x86::rdx, int64_t(s.index));
        call(reinterpret_cast<void*>(&check_tensor));
        require_answer();
        break;
      case GuardOp::kNumberCheck: check_number(s); break;
      default: check_by_helper(s);
    }
  }
  void check_by_helper(const GuardStep& s) {
    const void* fn = nullptr;
    if (s.op == GuardOp::kGradTensorCheck) fn = reinterpret_cast<void*>(&check_grad_tensor);
    if (s.op == GuardOp::kGradNilCheck) fn = reinterpret_cast<void*>(&check_grad_nil);
    if (s.op == GuardOp::kGradModeCheck) fn = reinterpret_cast<void*>(&check_grad_mode);
    if (s.op == GuardOp::kAutocastCheck) fn = reinterpret_cast<void*>(&check_autocast);
    if (s.op == GuardOp::kCurrentGpuCheck) fn = reinterpret_cast<void*>(&check_current_gpu);
    if (s.op == GuardOp::kDefaultDeviceCheck) fn = reinterpret_cast<void*>(&check_default_device);
    if (s.op == GuardOp::kDistinctCheck) fn = reinterpret_cast<void*>(&check_distinct);
    if (s.op == GuardOp::kDistinctTensorsCheck) fn = reinterpret_cast<void*>(&check_distinct_tensors);
    if (s.op == GuardOp::kDistinctVariablesCheck) fn = reinterpret_cast<void*>(&check_distinct_variables);
    if (s.op == GuardOp::kSameVariableCheck) fn = reinterpret_cast<void*>(&check_same_variable);
    if (s.op == GuardOp::kSymbolsCheck) fn = reinterpret_cast<void*>(&check_symbols);
    if (s.op == GuardOp::kOverlapCheck) fn = reinterpret_cast<void*>(&check_overlap);
    if (!fn) return void(ok_ = false);
    call_run(fn, s.a, s.index);
    require_answer();
  }
  void require_tag(int r, mirror::Tag tag) {
    value(x86::rax, r);
    tag_of(x86::rcx, x86::rax);
    a_.cmp(x86::ecx, int(tag));
    a_.jne(miss_);
  }
  void check_type(const GuardStep& s) {
    value(x86::rax, s.a);
    tag_of(x86::rcx, x86::rax);
    switch (s.index) {
      case LUA_TNUMBER:
        a_.cmp(x86::ecx, int(mirror::kNumX));
        a_.jae(miss_);
        return;
      case LUA_TBOOLEAN:
        a_.sub(x86::ecx, int(mirror::kTrue));
        a_.cmp(x86::ecx, 1);
        a_.ja(miss_);
        return;
      case LUA_TNIL: a_.cmp(x86::ecx, int(mirror::kNil)); break;
      case LUA_TLIGHTUSERDATA: a_.cmp(x86::ecx, int(mirror::kLightud)); break;
      case LUA_TSTRING: a_.cmp(x86::ecx, int(mirror::kStr)); break;
      case LUA_TTABLE: a_.cmp(x86::ecx, int(mirror::kTab)); break;
      case LUA_TFUNCTION: a_.cmp(x86::ecx, int(mirror::kFunc)); break;
      case LUA_TUSERDATA: a_.cmp(x86::ecx, int(mirror::kUdata)); break;
      case LUA_TTHREAD: a_.cmp(x86::ecx, int(mirror::kThread)); break;
      default: a_.cmp(x86::ecx, int(mirror::kCdata));
    }
    a_.jne(miss_);
  }
  void check_value(const GuardStep& s) {
    const uint64_t wanted = constant_at(constants_, s.index);
    if (wanted == mirror::kNilValue) return void(ok_ = false);
    a_.mov(x86::rcx, wanted);
    a_.cmp(reg(s.a), x86::rcx);
    a_.jne(miss_);
  }
  void check_identity(const GuardStep& s) {
    a_.mov(x86::rcx, x86::qword_ptr(x86::rbx, offsetof(Run, weak)));
    a_.cmp(x86::dword_ptr(x86::rcx, offsetof(Tab, asize)), s.index);
    a_.jbe(unsure_);
    a_.mov(x86::rcx, x86::qword_ptr(x86::rcx, offsetof(Tab, array)));
    a_.mov(x86::rcx, x86::qword_ptr(x86::rcx, 8 * s.index));
    a_.cmp(x86::rcx, -1);
    a_.je(miss_);
    a_.cmp(reg(s.a), x86::rcx);
    a_.jne(miss_);
  }
  void check_key_list(const GuardStep& s) {
    std::vector<TValue> list;
    for (int k : p_.keys[s.index]) list.push_back({constant_at(constants_, k)});
    out_.keys.push_back(std::move(list));
    const std::vector<TValue>& kept = out_.keys.back();
    require_tag(s.a, mirror::kTab);
    object(x86::rdi, s.a);
    a_.mov(x86::rsi, uint64_t(kept.data()));
    a_.mov(x86::rdx, int64_t(kept.size()));
    call(reinterpret_cast<void*>(&check_keys));
    require_answer();
  }
  void check_distinct_objects(const GuardStep& s) {
    constexpr size_t kInline = 8;
    const GuardGroup& g = p_.groups[size_t(s.index)];
    if (size_t(g.writers) * g.members.size() > kInline) return check_by_helper(s);
    for (size_t w = 0; w < size_t(g.writers); w++) {
      value(x86::rax, g.members[w].first);
      for (size_t i = w + 1; i < g.members.size(); i++) {
        a_.cmp(x86::rax, reg(g.members[i].first));
        a_.je(miss_);
      }
    }
  }
  void check_number(const GuardStep& s) {
    value(x86::rax, s.a);
    tag_of(x86::rcx, x86::rax);
    a_.cmp(x86::ecx, int(mirror::kNumX));
    a_.jae(miss_);
    a_.mov(x86::rcx, x86::qword_ptr(x86::rbx, offsetof(Run, scalars)));
    a_.mov(x86::qword_ptr(x86::rcx, 8 * s.index), x86::rax);
  }

  const GuardProgram& p_;
  const Tab* constants_;
  Code& out_;
  x86::Assembler a_;
  Label miss_, unsure_, done_;
  std::vector<Label> misses_;
  bool ok_ = true;
};

}  // namespace

std::unique_ptr<NativeGuards> compile_guards(lua_State* L, const GuardProgram& program, int constants, int weak) {
  if (!mirror::available(L)) return nullptr;
  auto code = std::make_unique<Code>();
  code->program = &program;
  code->weak = static_cast<const Tab*>(lua_topointer(L, weak));
  const Tab* table = static_cast<const Tab*>(lua_topointer(L, constants));
  if (!GuardEmitter(program, table, *code).run()) return nullptr;
  return code;
}

}  // namespace lutra
