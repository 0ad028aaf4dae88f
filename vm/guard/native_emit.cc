// One pass over the steps of a guard program. A failing check jumps to a stub that returns the step's number.
//
// Invariants:
// 1. The code calls no Lua API: it reads structs, or calls the helpers of native_run.h.
// 2. Objects that the code embeds are kept alive by the entry's table of constants; others are read from the weak
// table.
#include "vm/guard/native_emit.h"

#include <algorithm>
#include <cstddef>
#include <lua.hpp>

#include "jit/codegen/assembler.h"
#include "jit/inject/inject.h"
#include "vm/bind/tensor_box.h"
#include "vm/guard/field_rows.h"
#include "vm/guard/native_run.h"
#include "vm/guard/tensor_layout.h"

namespace lutra {
namespace {

using mirror::Func;
using mirror::Node;
using mirror::Str;
using mirror::Tab;
using mirror::TValue;
using mirror::Udata;
using mirror::Upval;
using enum Reg;
using enum Condition;

constexpr Reg kRun = kKept0;        // the GuardRun
constexpr Reg kRegisters = kKept1;  // register 0 of the program (a Lua stack slot)
constexpr Reg kArguments = kKept2;  // argument 0
constexpr Reg kPointers = kKept3;   // the mask of GC pointers
constexpr int32_t kNilBits = -1;    // nil, as an immediate operand
static_assert(mirror::kNilValue == uint64_t(int64_t(kNilBits)));

uint64_t bits_at(const Tab* constants, int slot) { return mirror::raw_get(constants, mirror::make_number(slot)).u64; }
Memory of_run(size_t offset) { return {kRun, int32_t(offset)}; }
Memory slot(int r) { return {kRegisters, 8 * r}; }
bool is_small(int64_t n) { return n >= 0 && n <= INT32_MAX; }

// Returns whether the code can do is_plainly's checks for this spec: a leaf with small sizes and strides.
bool has_plain_check(const TensorSpec& spec) {
  return tensor_layout() && spec.leaf && spec.sizes.size() == spec.strides.size() &&
         std::all_of(spec.sizes.begin(), spec.sizes.end(), is_small) &&
         std::all_of(spec.strides.begin(), spec.strides.end(), is_small);
}

class GuardEmitter {
 public:
  GuardEmitter(const GuardProgram& p, const Tab* constants, Assembler& a, EmittedGuards& out)
      : p_(p), constants_(constants), out_(out), a_(a), unsure_(a.label()), done_(a.label()) {}

  bool run() {
    prologue();
    int reg = 0;
    const GuardStep* lost = bug_is_on("guard") ? last_value_check() : nullptr;
    for (size_t i = 0; i < p_.steps.size(); i++) {
      if (!lost) take_rows(i, reg);
      if (i == p_.steps.size()) break;
      const GuardStep& s = p_.steps[i];
      miss_ = a_.label();
      misses_.push_back({i, miss_});
      if (&s == lost) continue;
      if (!is_load(s.op)) {
        check(s);
      } else if (s.op == GuardOp::kGradLoad) {
        call_with_run(reinterpret_cast<void*>(&load_grad), s.a, s.index);
      } else {
        load(s);
        a_.store(slot(reg++), kT0);
      }
    }
    epilogue();
    return ok_;
  }

 private:
  // Returns the last check of a value that is not a tensor (for the seeded bug "guard").
  const GuardStep* last_value_check() const {
    const GuardStep* last = nullptr;
    for (const GuardStep& s : p_.steps) {
      if (s.op == GuardOp::kValueCheck || s.op == GuardOp::kFieldCheck || s.op == GuardOp::kUpvalueCheck) last = &s;
    }
    return last;
  }
  void prologue() {
    a_.enter();
    a_.move(kRun, kArg0);
    a_.load(kRegisters, of_run(offsetof(GuardRun, regs)));
    a_.load(kArguments, of_run(offsetof(GuardRun, args)));
    a_.set(kPointers, mirror::kPayload);
  }
  void epilogue() {
    a_.set(kT0, uint64_t(-1));
    a_.bind(done_);
    a_.leave();
    for (const Doubt& d : doubts_) {
      a_.bind(d.begin);
      miss_ = d.miss;
      check_by_helper(*d.step);
      a_.jump(d.end);
    }
    for (const auto& [step, label] : misses_) {
      a_.bind(label);
      a_.set(kT0, step);
      a_.jump(done_);
    }
    a_.bind(unsure_);
    a_.set(kT0, uint64_t(int64_t(NativeGuards::kUnsure)));
    a_.jump(done_);
  }

  void take_rows(size_t& i, int& reg) {
    while (i < p_.steps.size() && p_.steps[i].op == GuardOp::kFieldLoad) {
      FieldRows rows = take_field_rows(p_, constants_, i, reg);
      if (rows.rows.empty()) return;
      out_.rows.push_back(std::make_unique<FieldRows>(std::move(rows)));
      a_.move(kArg0, kRun);
      a_.set(kArg1, uint64_t(out_.rows.back().get()));
      call(&check_field_rows);
      a_.branch(kNotEqual, kT0, -1, done_);
    }
  }

  void value(Reg to, int r) { a_.load(to, slot(r)); }
  // Loads the GC object in register r, whose type an earlier step has checked.
  void object(Reg to, int r) {
    value(to, r);
    a_.bit_and(to, kPointers);
  }
  void call_with_run(const void* fn, int64_t a, int64_t b) {
    a_.move(kArg0, kRun);
    a_.set(kArg1, uint64_t(a));
    a_.set(kArg2, uint64_t(b));
    a_.call(fn);
  }
  void require_answer() {
    const Assembler::Label ok = a_.label();
    a_.branch(kEqual, kT0, 1, ok);
    a_.branch(kNotEqual, kT0, 0, unsure_);
    a_.jump(miss_);
    a_.bind(ok);
  }
  template <class F>
  void call(F* function) {
    a_.call(reinterpret_cast<const void*>(function));
  }
  // Loads the tag of the value in register r, as a signed number.
  void tag_of(Reg to, int r) {
    value(kT0, r);
    a_.shift_right_signed(to, kT0, 47);
  }

  void load(const GuardStep& s) {
    switch (s.op) {
      case GuardOp::kArgLoad: return a_.load(kT0, {kArguments, 8 * s.index});
      case GuardOp::kVarargLoad: return load_vararg(s.index);
      case GuardOp::kSelfLoad: return a_.load(kT0, of_run(offsetof(GuardRun, self)));
      case GuardOp::kUpvalueLoad: return load_upvalue(s);
      case GuardOp::kEnvLoad:
        object(kT1, s.a);
        a_.load(kT0, {kT1, offsetof(Func, env)});
        return tag_table();
      case GuardOp::kFieldLoad: return load_field(s);
      case GuardOp::kFieldByLoad:
        object(kArg0, s.a);
        value(kArg1, s.b);
        return call(&get_field);
      case GuardOp::kLengthLoad: object(kArg0, s.a); return call(&get_length);
      case GuardOp::kSizeLoad:
        value(kArg0, s.a);
        a_.set(kArg1, uint64_t(s.index));
        return call(&get_size);
      case GuardOp::kComputedLoad:
        value(kArg0, s.a);
        value(kArg1, s.b < 0 ? s.a : s.b);
        a_.set(kArg2, uint64_t(s.index));
        return call(&get_computed);
      case GuardOp::kElementLoad:
      case GuardOp::kOffsetLoad:
        value(kArg0, s.a);
        return a_.call(reinterpret_cast<void*>(s.op == GuardOp::kOffsetLoad ? &get_offset : &get_element));
      case GuardOp::kIntegerLoad:
      case GuardOp::kRandomLoad:
        s.b < 0 ? object(kArg0, s.a) : value(kArg0, s.b);
        a_.set(kArg1, uint64_t(s.index));
        if (s.b >= 0) return call(&get_seeded);
        return s.op == GuardOp::kIntegerLoad ? call(&get_integer) : call(&get_random);
      case GuardOp::kHookLoad:
        value(kArg0, s.a);
        a_.set(kArg1, uint64_t(s.index));
        a_.move(kArg2, kRun);
        return call(&get_hook);
      case GuardOp::kConstantLoad: return a_.set(kT0, bits_at(constants_, s.index));
      case GuardOp::kStringMetaLoad:
        out_.asks_strings = true;
        a_.load(kT0, of_run(offsetof(GuardRun, string_meta)));
        return tag_table();
      case GuardOp::kThreadLoad: out_.asks_thread = true; return a_.load(kT0, of_run(offsetof(GuardRun, thread)));
      default: load_metatable(s);
    }
  }
  // Makes a value from the Tab* in kT0, which may be null.
  void tag_table() {
    const Assembler::Label nil = a_.label(), end = a_.label();
    a_.branch(kEqual, kT0, 0, nil);
    a_.set(kT1, mirror::make_gc(mirror::kTab, nullptr).u64);
    a_.bit_or(kT0, kT1);
    a_.jump(end);
    a_.bind(nil);
    a_.set(kT0, mirror::kNilValue);
    a_.bind(end);
  }
  void load_vararg(int index) {
    const Assembler::Label end = a_.label();
    a_.set(kT0, mirror::kNilValue);
    a_.branch(kLessEqual, of_run(offsetof(GuardRun, varargs)), index, end);
    a_.load(kT1, of_run(offsetof(GuardRun, first_vararg)));
    a_.load(kT0, {kT1, 8 * index});
    a_.bind(end);
  }
  void load_upvalue(const GuardStep& s) {
    const Assembler::Label end = a_.label(), lua = a_.label();
    const int at = int(offsetof(Func, upvalues)) + 8 * s.index;
    object(kT1, s.a);
    a_.set(kT0, mirror::kNilValue);
    a_.branch(kBelowEqual, {kT1, offsetof(Func, nupvalues), 1}, s.index, end);
    a_.branch(kEqual, {kT1, offsetof(Func, ffid), 1}, 0, lua);
    a_.load(kT0, {kT1, at + 8});  // a C function has its address before its upvalues
    a_.jump(end);
    a_.bind(lua);
    a_.load(kT0, {kT1, at});
    a_.load(kT0, {kT0, offsetof(Upval, v)});
    a_.load(kT0, {kT0, 0});
    a_.bind(end);
  }
  void load_field(const GuardStep& s) {
    const TValue key{bits_at(constants_, s.index)};
    if (mirror::tag(key) != mirror::kStr) {
      object(kArg0, s.a);
      a_.set(kArg1, key.u64);
      return call(&get_field);
    }
    const Assembler::Label loop = a_.label(), found = a_.label(), end = a_.label();
    object(kT1, s.a);
    a_.load(kT2, {kT1, offsetof(Tab, hmask), 4});
    a_.bit_and(kT2, static_cast<const Str*>(mirror::gc_pointer(key))->sid);
    static_assert(sizeof(Node) == 24);
    a_.add_scaled(kT2, kT2, kT2, 1);
    a_.load(kT0, {kT1, offsetof(Tab, node)});
    a_.add_scaled(kT2, kT0, kT2, 3);
    a_.set(kT1, key.u64);
    a_.bind(loop);
    a_.branch(kEqual, Memory{kT2, offsetof(Node, key)}, kT1, found);
    a_.load(kT2, {kT2, offsetof(Node, next)});
    a_.branch(kNotEqual, kT2, 0, loop);
    a_.set(kT0, mirror::kNilValue);
    a_.jump(end);
    a_.bind(found);
    a_.load(kT0, {kT2, offsetof(Node, val)});
    a_.bind(end);
  }
  void load_metatable(const GuardStep& s) {
    const Assembler::Label table = a_.label(), got = a_.label();
    tag_of(kT1, s.a);
    a_.bit_and(kT0, kPointers);
    a_.branch(kEqual, kT1, int32_t(mirror::kTab), table);
    a_.branch(kNotEqual, kT1, int32_t(mirror::kUdata), unsure_);  // the VM holds the metatables of the other types
    a_.load(kT0, {kT0, offsetof(Udata, metatable)});
    a_.jump(got);
    a_.bind(table);
    a_.load(kT0, {kT0, offsetof(Tab, metatable)});
    a_.bind(got);
    tag_table();
  }

  void check(const GuardStep& s) {
    switch (s.op) {
      case GuardOp::kNilCheck: return a_.branch(kNotEqual, slot(s.a), kNilBits, miss_);
      case GuardOp::kNotNilCheck: return a_.branch(kEqual, slot(s.a), kNilBits, miss_);
      case GuardOp::kTypeCheck: return check_type(s);
      case GuardOp::kValueCheck:
      case GuardOp::kFieldCheck:
      case GuardOp::kGlobalCheck:
      case GuardOp::kUpvalueCheck: return check_value(s);
      case GuardOp::kNotValueCheck:
        a_.set(kT1, bits_at(constants_, s.index));
        return a_.branch(kEqual, slot(s.a), kT1, miss_);
      case GuardOp::kIdentityCheck: return check_identity(s);
      case GuardOp::kCdataCheck:
      case GuardOp::kSameCheck:
      case GuardOp::kMetatableCheck:
      case GuardOp::kNotSameCheck:
        value(kArg0, s.a);
        s.op == GuardOp::kCdataCheck ? a_.set(kArg1, bits_at(constants_, s.index)) : value(kArg1, s.b);
        a_.call(reinterpret_cast<void*>(s.op == GuardOp::kCdataCheck ? &equal_integers : &equal_values));
        return a_.branch(s.op == GuardOp::kNotSameCheck ? kNotEqual : kEqual, kT0, 0, miss_);
      case GuardOp::kLengthCheck:
      case GuardOp::kListCheck: require_tag(s.a, mirror::kTab); return check_by_helper(s);
      case GuardOp::kDistinctCheck: return check_distinct_objects(s);
      case GuardOp::kKeysCheck: return check_key_list(s);
      case GuardOp::kArgCountCheck: return a_.branch(kNotEqual, of_run(offsetof(GuardRun, varargs)), s.index, miss_);
      case GuardOp::kTensorCheck: return check_tensor(s);
      case GuardOp::kNumberCheck: return check_number(s);
      case GuardOp::kPrototypeCheck:
        require_tag(s.a, mirror::kFunc);
        out_.asks_prototypes = true;
        return check_by_helper(s);
      case GuardOp::kOwnVariableCheck:
      case GuardOp::kNotOwnVariableCheck: require_tag(s.a, mirror::kFunc); return check_by_helper(s);
      default: check_by_helper(s);
    }
  }
  void check_by_helper(const GuardStep& s) {
    const GuardHelper helper = helper_of(s.op);
    LUTRA_CHECK(helper, "no machine code for a guard");
    call_with_run(reinterpret_cast<void*>(helper), s.a, s.index);
    require_answer();
  }
  void require_tag(int r, mirror::Tag tag) {
    tag_of(kT1, r);
    a_.branch(kNotEqual, kT1, int32_t(tag), miss_);
  }
  void check_type(const GuardStep& s) {
    switch (s.index) {
      case LUA_TNUMBER: return require_number(s.a);
      case LUA_TBOOLEAN:
        tag_of(kT1, s.a);
        a_.add(kT1, -int32_t(mirror::kTrue));
        return a_.branch(kAbove, kT1, 1, miss_);
      case LUA_TNIL: return require_tag(s.a, mirror::kNil);
      case LUA_TLIGHTUSERDATA: return require_tag(s.a, mirror::kLightud);
      case LUA_TSTRING: return require_tag(s.a, mirror::kStr);
      case LUA_TTABLE: return require_tag(s.a, mirror::kTab);
      case LUA_TFUNCTION: return require_tag(s.a, mirror::kFunc);
      case LUA_TUSERDATA: return require_tag(s.a, mirror::kUdata);
      case LUA_TTHREAD: return require_tag(s.a, mirror::kThread);
      default: return require_tag(s.a, mirror::kCdata);
    }
  }
  void require_number(int r) {
    tag_of(kT1, r);
    a_.branch(mirror::kDualNumbers ? kAbove : kAboveEqual, kT1, int32_t(mirror::kNumX), miss_);
  }
  void check_value(const GuardStep& s) {
    const uint64_t wanted = bits_at(constants_, s.index);
    if (wanted == mirror::kNilValue) return void(ok_ = false);
    if (mirror::kDualNumbers && mirror::is_number({wanted})) return check_number_value(s.a, wanted);
    a_.set(kT1, wanted);
    a_.branch(kNotEqual, slot(s.a), kT1, miss_);
  }
  // A number has one of two representations: both become doubles.
  void check_number_value(int r, uint64_t wanted) {
    require_number(r);
    a_.move(kArg0, kT0);
    call(&double_bits);
    a_.set(kT1, double_bits(wanted));
    a_.branch(kNotEqual, kT0, kT1, miss_);
  }
  void check_identity(const GuardStep& s) {
    out_.asks_weak = true;
    a_.load(kT1, of_run(offsetof(GuardRun, weak)));
    a_.branch(kBelowEqual, {kT1, offsetof(Tab, asize), 4}, s.index, unsure_);
    a_.load(kT1, {kT1, offsetof(Tab, array)});
    a_.load(kT1, {kT1, 8 * s.index});
    a_.branch(kEqual, kT1, kNilBits, miss_);
    a_.branch(kNotEqual, slot(s.a), kT1, miss_);
  }
  void check_key_list(const GuardStep& s) {
    const std::vector<int>& keys = p_.keys[size_t(s.index)];
    out_.keys.push_back(std::make_unique<TValue[]>(keys.size()));
    TValue* kept = out_.keys.back().get();
    for (size_t i = 0; i < keys.size(); i++) kept[i] = {bits_at(constants_, keys[i])};
    require_tag(s.a, mirror::kTab);
    object(kArg0, s.a);
    a_.set(kArg1, uint64_t(kept));
    a_.set(kArg2, keys.size());
    call(&check_keys);
    require_answer();
  }
  void check_distinct_objects(const GuardStep& s) {
    constexpr size_t kInline = 8;
    const GuardGroup& g = p_.groups[size_t(s.index)];
    if (size_t(g.writers) * g.members.size() > kInline) return check_by_helper(s);
    for (size_t w = 0; w < size_t(g.writers); w++) {
      value(kT0, g.members[w].first);
      for (size_t i = w + 1; i < g.members.size(); i++) a_.branch(kEqual, slot(g.members[i].first), kT0, miss_);
    }
  }
  void check_number(const GuardStep& s) {
    require_number(s.a);
    if (mirror::kDualNumbers) {
      a_.move(kArg0, kT0);
      call(&double_bits);
    }
    a_.load(kT1, of_run(offsetof(GuardRun, scalars)));
    a_.store({kT1, 8 * s.index}, kT0);
  }

  // Most tensors plainly match their specs. The helper decides about the others.
  void check_tensor(const GuardStep& s) {
    const TensorSpec& spec = p_.tensors[size_t(s.index)];
    require_tag(s.a, mirror::kUdata);
    if (!has_plain_check(spec)) return check_by_helper(s);
    const TensorLayout& at = *tensor_layout();
    const Doubt doubt{&s, a_.label(), a_.label(), miss_};
    const auto require = [&](Memory m, int32_t value) { a_.branch(kNotEqual, m, value, doubt.begin); };
    constexpr int32_t kPayload = sizeof(Udata);
    a_.bit_and(kT0, kPointers);
    require({kT0, offsetof(Udata, len), 4}, sizeof(TensorBox));
    a_.set(kT1, uint64_t(&kTensorMagic));
    a_.branch(kNotEqual, {kT0, kPayload + int32_t(offsetof(TensorBox, magic))}, kT1, doubt.begin);
    a_.load(kT0, {kT0, kPayload + int32_t(offsetof(TensorBox, tensor))});
    require({kT0, at.view}, 0);
    require({kT0, at.dtype, 1}, int32_t(spec.dtype));
    require({kT0, at.requires_grad, 1}, spec.requires_grad);
    require({kT0, at.sizes + 8, 4}, int32_t(spec.sizes.size()));
    require_elements(at.sizes, spec.sizes, doubt.begin);
    require_elements(at.strides, spec.strides, doubt.begin);
    a_.load(kT1, {kT0, at.storage});
    require({kT1, at.freed, 1}, 0);
    require({kT1, at.device_type, 1}, int32_t(spec.device.type));
    require({kT1, at.device_index, 1}, spec.device.index);
    const Assembler::Label leaf = a_.label();
    a_.load(kT1, {kT0, at.autograd});
    a_.branch(kEqual, kT1, 0, leaf);
    require({kT1, at.grad_fn}, 0);
    a_.load(kT2, {kT1, at.first_hook});
    a_.branch(kNotEqual, {kT1, at.last_hook}, kT2, doubt.begin);
    a_.bind(leaf);
    a_.load(kT1, of_run(offsetof(GuardRun, tensors)));
    a_.store({kT1, 8 * s.index}, kT0);
    a_.bind(doubt.end);
    doubts_.push_back(doubt);
  }
  // Checks the sizes or strides at `at` of the tensor in kT0.
  void require_elements(int32_t at, const std::vector<int64_t>& wanted, Assembler::Label otherwise) {
    const TensorLayout& layout = *tensor_layout();
    if (!wanted.empty()) a_.load(kT1, {kT0, at});
    for (size_t d = 0; d < wanted.size(); d++) {
      const int32_t place = int32_t(d) * layout.element_bytes + layout.hint;
      a_.branch(kNotEqual, {kT1, place}, int32_t(wanted[d]), otherwise);
    }
  }

  // A tensor check that calls its helper (`begin`), and where the code continues afterwards (`end`).
  struct Doubt {
    const GuardStep* step;
    Assembler::Label begin, end, miss;
  };
  const GuardProgram& p_;
  const Tab* constants_;
  EmittedGuards& out_;
  Assembler& a_;
  Assembler::Label miss_{}, unsure_, done_;
  std::vector<std::pair<size_t, Assembler::Label>> misses_;  // by step
  std::vector<Doubt> doubts_;
  bool ok_ = true;
};

}  // namespace

EmittedGuards::EmittedGuards() = default;
EmittedGuards::EmittedGuards(EmittedGuards&&) noexcept = default;
EmittedGuards& EmittedGuards::operator=(EmittedGuards&&) noexcept = default;
EmittedGuards::~EmittedGuards() = default;

EmittedGuards emit_guards(const GuardProgram& program, const Tab* constants) {
  EmittedGuards out;
  const std::unique_ptr<Assembler> assembler = make_assembler();
  if (assembler && GuardEmitter(program, constants, *assembler, out).run()) out.code = assembler->finish();
  return out;
}

}  // namespace lutra
