// Implements the portable assembler for AArch64, with its standard calling convention. x16 and x17 are scratch
// registers within an instruction.
#include "jit/codegen/arm64/assembler.h"

#include <asmjit/arm.h>
#include <asmjit/arm/a64assembler.h>

#include "jit/codegen/arm64/numbers.h"
#include "jit/codegen/machine/publish.h"

namespace lutra::arm64 {
namespace {

namespace a64 = asmjit::a64;
using a64::CondCode;

const a64::Gp kRegisters[] = {a64::x9, a64::x10, a64::x11, a64::x0,  a64::x1,
                              a64::x2, a64::x19, a64::x20, a64::x21, a64::x22};

a64::Gp gp(Reg r) { return kRegisters[size_t(r)]; }

CondCode condition(Condition c) {
  switch (c) {
    case Condition::kEqual: return CondCode::kEQ;
    case Condition::kNotEqual: return CondCode::kNE;
    case Condition::kBelow: return CondCode::kLO;
    case Condition::kBelowEqual: return CondCode::kLS;
    case Condition::kAbove: return CondCode::kHI;
    case Condition::kAboveEqual: return CondCode::kHS;
    case Condition::kLessEqual: return CondCode::kLE;
  }
  __builtin_unreachable();
}

class Arm64Assembler : public Assembler {
 public:
  Arm64Assembler() {
    holder_.init(asmjit::Environment::host());
    holder_.setErrorHandler(&errors_);
    holder_.attach(&a_);
  }

  void enter() override {
    a_.stp(a64::x29, a64::x30, a64::ptr_pre(a64::sp, -48));
    a_.stp(a64::x19, a64::x20, a64::ptr(a64::sp, 16));
    a_.stp(a64::x21, a64::x22, a64::ptr(a64::sp, 32));
    a_.mov(a64::x29, a64::sp);
  }
  void leave() override {
    a_.mov(a64::x0, gp(Reg::kT0));
    a_.ldp(a64::x21, a64::x22, a64::ptr(a64::sp, 32));
    a_.ldp(a64::x19, a64::x20, a64::ptr(a64::sp, 16));
    a_.ldp(a64::x29, a64::x30, a64::ptr_post(a64::sp, 48));
    a_.ret(a64::x30);
  }
  Label label() override { return {a_.newLabel().id()}; }
  void bind(Label at) override { a_.bind(asmjit::Label(at.id)); }

  void set(Reg to, uint64_t value) override { set(gp(to), value); }
  void move(Reg to, Reg from) override {
    if (to != from) a_.mov(gp(to), gp(from));
  }
  void load(Reg to, Memory from) override { load(gp(to), from); }
  void store(Memory to, Reg from) override {
    if (to.bytes == 8)
      a_.str(gp(from), place(to));
    else if (to.bytes == 4)
      a_.str(gp(from).w(), place(to));
    else
      a_.strb(gp(from).w(), place(to));
  }
  void bit_and(Reg to, Reg with) override { a_.and_(gp(to), gp(to), gp(with)); }
  void bit_and(Reg to, uint32_t with) override {
    set(a64::x16, with);
    a_.and_(gp(to), gp(to), a64::x16);
  }
  void bit_or(Reg to, Reg with) override { a_.orr(gp(to), gp(to), gp(with)); }
  void add(Reg to, int32_t value) override {
    set(a64::x16, uint64_t(int64_t(value)));
    a_.add(gp(to), gp(to), a64::x16);
  }
  void add_scaled(Reg to, Reg base, Reg index, int shift) override {
    a_.add(gp(to), gp(base), gp(index), a64::lsl(uint32_t(shift)));
  }
  void shift_right_signed(Reg to, Reg from, int bits) override { a_.asr(gp(to), gp(from), bits); }

  void jump(Label to) override { a_.b(asmjit::Label(to.id)); }
  void branch(Condition when, Reg a, Reg b, Label to) override { branch(when, gp(a), gp(b), to); }
  void branch(Condition when, Reg a, int32_t b, Label to) override { branch(when, gp(a), b, to); }
  void branch(Condition when, Memory a, Reg b, Label to) override {
    load(a64::x16, a);
    branch(when, a64::x16, gp(b), to);
  }
  void branch(Condition when, Memory a, int32_t b, Label to) override {
    load(a64::x16, a);
    branch(when, a64::x16, b, to);
  }
  void call(const void* function) override {
    set(a64::x16, uint64_t(function));
    a_.blr(a64::x16);
    a_.mov(gp(Reg::kT0), a64::x0);
  }

  PublishedCode finish() override {
    PublishedCode out;
    if (errors_.message.empty()) publish(holder_, &out);
    return out;
  }

 private:
  void set(const a64::Gp& to, uint64_t value) { set_number(a_, to, value); }
  // May overwrite x17.
  a64::Mem place(Memory m) {
    if (m.offset >= 0 && m.offset % m.bytes == 0 && m.offset / m.bytes < 4096) return a64::ptr(gp(m.base), m.offset);
    set(a64::x17, uint64_t(int64_t(m.offset)));
    return a64::ptr(gp(m.base), a64::x17);
  }
  void load(const a64::Gp& to, Memory from) {
    if (from.bytes == 8)
      a_.ldr(to, place(from));
    else if (from.bytes == 4)
      a_.ldr(to.w(), place(from));
    else
      a_.ldrb(to.w(), place(from));
  }
  void branch(Condition when, const a64::Gp& a, const a64::Gp& b, Label to) {
    a_.cmp(a, b);
    a_.b(condition(when), asmjit::Label(to.id));
  }
  void branch(Condition when, const a64::Gp& a, int32_t b, Label to) {
    if (b >= 0 && b < 4096) {
      a_.cmp(a, b);
    } else if (b < 0 && b > -4096) {
      a_.cmn(a, -b);
    } else {
      set(a64::x17, uint64_t(int64_t(b)));
      a_.cmp(a, a64::x17);
    }
    a_.b(condition(when), asmjit::Label(to.id));
  }

  FirstError errors_;
  asmjit::CodeHolder holder_;
  a64::Assembler a_;
};

}  // namespace

std::unique_ptr<Assembler> make_assembler() {
  if (!asmjit::Environment::host().isFamilyAArch64()) return nullptr;
  return std::make_unique<Arm64Assembler>();
}

}  // namespace lutra::arm64
