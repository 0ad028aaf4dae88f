// The functions that guards' machine code calls. They read LuaJIT's structs and tensors, and call no Lua API.
#include <cmath>

#include "vm/bind/hooks.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/guard/lists.h"
#include "vm/guard/native_run.h"
#include "vm/guard/plain.h"
#include "vm/guard/random.h"

namespace lutra {

using mirror::Func;
using mirror::Tab;
using mirror::TValue;
using mirror::Udata;

uint64_t get_field(const Tab* t, uint64_t key) noexcept { return mirror::raw_get(t, TValue{key}).u64; }

uint64_t get_length(const Tab* t) noexcept { return mirror::make_number(double(mirror::length(t))).u64; }

uint64_t double_bits(uint64_t value) noexcept { return mirror::make_number(mirror::number(TValue{value})).u64; }

uint64_t get_size(uint64_t value, int64_t dim) noexcept {
  const Udata* u = static_cast<const Udata*>(mirror::gc_pointer(TValue{value}));
  return mirror::make_number(double((*tensor_in_userdata(u->payload(), u->len))->sizes[size_t(dim)].hint)).u64;
}

uint64_t get_computed(uint64_t a, uint64_t b, int64_t op) noexcept {
  return mirror::make_number(compute(SymOp(op), mirror::number(TValue{a}), mirror::number(TValue{b}))).u64;
}

uint64_t get_offset(uint64_t value) noexcept {
  const Udata* u = static_cast<const Udata*>(mirror::gc_pointer(TValue{value}));
  return mirror::make_number(double((*tensor_in_userdata(u->payload(), u->len))->offset.hint)).u64;
}

uint64_t get_element(uint64_t value) noexcept {
  const Udata* u = static_cast<const Udata*>(mirror::gc_pointer(TValue{value}));
  const std::optional<double> element = only_element(*tensor_in_userdata(u->payload(), u->len));
  return element ? mirror::make_number(*element).u64 : mirror::kNilValue;
}

std::optional<double> number_of_integer(const void* cdata, int type) {
  constexpr int64_t kMaxExact = int64_t(1) << 53;
  const auto& integer = *static_cast<const IntegerCdata*>(cdata);
  if (integer.type != type) return {};
  const auto n = int64_t(integer.value);
  if (n < -kMaxExact || n > kMaxExact) return {};
  return double(n);
}

uint64_t get_integer(const void* cdata, int64_t type) noexcept {
  const std::optional<double> n = number_of_integer(cdata, int(type));
  return n ? mirror::make_number(*n).u64 : mirror::kNilValue;
}

// A function of another Lua state is not a function here, because its address means nothing in this state.
uint64_t get_hook(uint64_t leaf, int64_t k, const GuardRun* run) noexcept {
  const Udata* u = static_cast<const Udata*>(mirror::gc_pointer(TValue{leaf}));
  const GradHook* hook = hook_at(*tensor_in_userdata(u->payload(), u->len), int(k));
  if (!hook) return mirror::kNilValue;
  const HookFunction f = function_of(*hook);
  constexpr uint64_t kFalseValue = ~(uint64_t{1} << 47);
  const bool own = f.L && mirror::thread(f.L)->glref == mirror::thread(run->L)->glref;
  return own ? mirror::make_gc(mirror::kFunc, f.address).u64 : kFalseValue;
}

uint64_t get_seeded(uint64_t seed, int64_t index) noexcept {
  LuaRandom state;
  seed_random(state, mirror::number(TValue{seed}));
  return mirror::make_number(draw_ahead(state, index)).u64;
}

uint64_t get_random(const Func* f, int64_t index) noexcept {
  const auto* first = reinterpret_cast<const TValue*>(&f->upvalues[1]);
  const auto* u = static_cast<const Udata*>(mirror::gc_pointer(*first));
  return mirror::make_number(draw_ahead(*static_cast<const LuaRandom*>(u->payload()), index)).u64;
}

void load_grad(GuardRun* run, int64_t from, int64_t to) noexcept {
  const Tensor& t = run->out->tensors[from];
  run->out->tensors.hold(size_t(to), t->autograd ? t->autograd->grad : Tensor());
}

int64_t equal_values(uint64_t a, uint64_t b) noexcept { return mirror::raw_equal(TValue{a}, TValue{b}); }

bool is_same_integer(const void* cdata, const void* integer) {
  const auto &a = *static_cast<const IntegerCdata*>(cdata), &b = *static_cast<const IntegerCdata*>(integer);
  return a.type == b.type && a.value == b.value;
}

int64_t equal_integers(uint64_t a, uint64_t integer) noexcept {
  return mirror::tag(TValue{a}) == mirror::kCdata &&
         is_same_integer(mirror::gc_pointer(TValue{a}), mirror::gc_pointer(TValue{integer}));
}

// The order of lua_next: the array, then the nodes.
int64_t check_keys(const Tab* t, const TValue* keys, int64_t count) noexcept {
  int64_t at = 0;
  for (uint32_t i = 0; i < t->asize; i++) {
    if (t->array[i].u64 == mirror::kNilValue) continue;
    if (at == count || !mirror::raw_equal(keys[at++], mirror::make_number(i))) return 0;
  }
  for (uint32_t i = 0; i <= t->hmask; i++) {
    const mirror::Node& n = t->node[i];
    if (n.val.u64 == mirror::kNilValue) continue;
    if (at == count || !mirror::raw_equal(keys[at++], n.key)) return 0;
  }
  return at == count;
}

bool is_own_variable(lua_State* L, const Func* f, int index) {
  const int upvalue = index & 255;
  return f->is_lua() && upvalue < f->nupvalues && mirror::place_of(L, f->upvalues[upvalue]) == index >> 8;
}

bool is_not_own_variable(lua_State* L, const Func* f, int index) {
  const int upvalue = index & 255, lowest = index >> 8;
  return f->is_lua() && upvalue < f->nupvalues &&
         mirror::place_of(L, f->upvalues[upvalue]).value_or(lowest - 1) < lowest;
}

namespace {

const Tab* table_at(const GuardRun* run, int64_t a) {
  return static_cast<const Tab*>(mirror::gc_pointer(run->regs[a]));
}

int64_t check_prototype(GuardRun* run, int64_t a, int64_t wanted) noexcept {
  const auto* f = static_cast<const Func*>(mirror::gc_pointer(run->regs[a]));
  if (f->is_lua()) return known_identity(run->prototypes, f) == double(wanted);
  const bc::Op op = bc::op(*f->pc);
  return wanted == kLibraryFunction && op != bc::Op::FUNCC && op != bc::Op::FUNCCW;
}

int64_t check_length(GuardRun* run, int64_t a, int64_t wanted) noexcept {
  return mirror::length(table_at(run, a)) == wanted;
}

// Checks that the positive integer keys of the table are 1 .. n (kListCheck).
int64_t check_list(GuardRun* run, int64_t a, int64_t n) noexcept {
  const Tab* t = table_at(run, a);
  if (n < -1 && grows_in_place(t, -1 - n)) return 1;
  if (n < 0) n = mirror::length(t);
  int64_t count = 0;
  for (uint32_t i = 1; i < t->asize; i++) {
    if (t->array[i].u64 == mirror::kNilValue) continue;
    if (int64_t(i) > n) return 0;
    count++;
  }
  for (uint32_t i = 0; i <= t->hmask; i++) {
    const mirror::Node& node = t->node[i];
    if (node.val.u64 == mirror::kNilValue || !mirror::is_number(node.key)) continue;
    const double key = mirror::number(node.key);
    if (key < 1 || key != std::floor(key)) continue;
    if (key > double(n)) return 0;
    count++;
  }
  return count == n;
}

const void* member_id(const GuardRun* run, GuardOp op, const std::pair<int, int>& member) {
  const size_t at = size_t(member.first);
  if (op == GuardOp::kDistinctTensorsCheck) return run->out->tensors[at].get();
  const void* object = mirror::gc_pointer(run->regs[at]);
  if (op == GuardOp::kDistinctCheck) return object;
  const Func* f = static_cast<const Func*>(object);
  return f->is_lua() && member.second < f->nupvalues ? f->upvalues[member.second] : nullptr;
}

int64_t check_group(const GuardRun* run, GuardOp op, int64_t index) {
  const GuardGroup& g = run->program->groups[size_t(index)];
  constexpr size_t kFew = 16;
  const void* few[kFew];
  std::vector<const void*> many(g.members.size() > kFew ? g.members.size() : 0);
  const void** ids = many.empty() ? few : many.data();
  for (size_t i = 0; i < g.members.size(); i++) ids[i] = member_id(run, op, g.members[i]);
  return op == GuardOp::kSameVariableCheck ? ids[0] == ids[1] : distinct(g, ids);
}

int64_t check_distinct(GuardRun* run, int64_t, int64_t i) noexcept {
  return check_group(run, GuardOp::kDistinctCheck, i);
}
int64_t check_distinct_tensors(GuardRun* run, int64_t, int64_t i) noexcept {
  return check_group(run, GuardOp::kDistinctTensorsCheck, i);
}
int64_t check_distinct_variables(GuardRun* run, int64_t, int64_t i) noexcept {
  return check_group(run, GuardOp::kDistinctVariablesCheck, i);
}
int64_t check_same_variable(GuardRun* run, int64_t, int64_t i) noexcept {
  return check_group(run, GuardOp::kSameVariableCheck, i);
}

int64_t check_own_variable(GuardRun* run, int64_t a, int64_t index) noexcept {
  const auto* f = static_cast<const Func*>(mirror::gc_pointer(run->regs[a]));
  return is_own_variable(run->L, f, int(index));
}

int64_t check_not_own_variable(GuardRun* run, int64_t a, int64_t index) noexcept {
  const auto* f = static_cast<const Func*>(mirror::gc_pointer(run->regs[a]));
  return is_not_own_variable(run->L, f, int(index));
}

int64_t check_memory(GuardRun* run, int64_t, int64_t index) noexcept {
  return load_memory(*run->program, run->program->groups[size_t(index)], run->out->tensors);
}

int64_t check_tensor(GuardRun* run, int64_t a, int64_t index) noexcept {
  const Udata* u = static_cast<const Udata*>(mirror::gc_pointer(run->regs[a]));
  Tensor* t = tensor_in_userdata(u->payload(), u->len);
  if (!t) return 0;
  const TensorSpec& spec = run->program->tensors.data()[index];
  if (!is_plainly(*t->get(), spec) && !matches(*t, spec, nullptr)) return 0;
  run->out->tensors.borrow(size_t(index), *t);
  return 1;
}

int64_t check_grad_tensor(GuardRun* run, int64_t, int64_t index) noexcept {
  const Tensor& t = run->out->tensors[index];
  return t && matches(t, run->program->tensors[index], nullptr);
}

int64_t check_grad_nil(GuardRun* run, int64_t from, int64_t) noexcept {
  const Tensor& t = run->out->tensors[from];
  return !t->autograd || !t->autograd->grad;
}

#define GUARD_LOAD(name)
#define GUARD_CHECK(name, kind, helper)
#define GUARD_MODE(name, kind, now, text) \
  int64_t check_##name(GuardRun*, int64_t, int64_t index) noexcept { return setting(GuardOp::name##Check) == index; }
#include "vm/guard/guard.def"

int64_t check_symbols(GuardRun* run, int64_t, int64_t) noexcept {
  int failed = 0;
  return run->program->symbols.run(run->out->tensors, run->out->scalars, run->out->symbols, &failed);
}

int64_t check_overlap(GuardRun* run, int64_t, int64_t) noexcept { return !overlaps(*run->program, run->out->tensors); }

}  // namespace

GuardHelper helper_of(GuardOp op) {
  static constexpr GuardHelper kHelpers[] = {
#define GUARD_LOAD(name) nullptr,
#define GUARD_CHECK(name, kind, helper) helper,
#include "vm/guard/guard.def"
  };
  return kHelpers[size_t(op)];
}

}  // namespace lutra
