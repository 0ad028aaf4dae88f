// Implements the portable assembler for x64, with System V's calling convention.
#include "jit/codegen/x64/assembler.h"

#include <asmjit/x86.h>

#include "jit/codegen/machine/publish.h"

namespace lutra::x64 {
namespace {

namespace x86 = asmjit::x86;

const x86::Gp kRegisters[] = {x86::rax, x86::rcx, x86::r8,  x86::rdi, x86::rsi,
                              x86::rdx, x86::rbx, x86::r12, x86::r13, x86::r14};
const x86::Gp kSaved[] = {x86::rbx, x86::r12, x86::r13, x86::r14, x86::r15};  // an odd number, so that the stack stays
                                                                              // aligned

x86::Gp gp(Reg r) { return kRegisters[size_t(r)]; }
x86::Mem mem(Memory m) { return x86::ptr(gp(m.base), m.offset, m.bytes); }

x86::CondCode condition(Condition c) {
  switch (c) {
    case Condition::kEqual: return x86::CondCode::kEqual;
    case Condition::kNotEqual: return x86::CondCode::kNotEqual;
    case Condition::kBelow: return x86::CondCode::kUnsignedLT;
    case Condition::kBelowEqual: return x86::CondCode::kUnsignedLE;
    case Condition::kAbove: return x86::CondCode::kUnsignedGT;
    case Condition::kAboveEqual: return x86::CondCode::kUnsignedGE;
    case Condition::kLessEqual: return x86::CondCode::kSignedLE;
  }
  __builtin_unreachable();
}

class X64Assembler : public Assembler {
 public:
  X64Assembler() {
    holder_.init(asmjit::Environment::host());
    holder_.setErrorHandler(&errors_);
    holder_.attach(&a_);
  }

  void enter() override {
    for (const x86::Gp& r : kSaved) a_.push(r);
  }
  void leave() override {
    for (size_t i = std::size(kSaved); i-- > 0;) a_.pop(kSaved[i]);
    a_.ret();
  }
  Label label() override { return {a_.newLabel().id()}; }
  void bind(Label at) override { a_.bind(asmjit::Label(at.id)); }

  void set(Reg to, uint64_t value) override { a_.mov(gp(to), value); }
  void move(Reg to, Reg from) override {
    if (to != from) a_.mov(gp(to), gp(from));
  }
  void load(Reg to, Memory from) override {
    if (from.bytes == 8)
      a_.mov(gp(to), mem(from));
    else if (from.bytes == 4)
      a_.mov(gp(to).r32(), mem(from));
    else
      a_.movzx(gp(to).r32(), mem(from));
  }
  void store(Memory to, Reg from) override {
    a_.mov(mem(to), to.bytes == 8 ? gp(from) : to.bytes == 4 ? x86::Gp(gp(from).r32()) : x86::Gp(gp(from).r8()));
  }
  void bit_and(Reg to, Reg with) override { a_.and_(gp(to), gp(with)); }
  void bit_and(Reg to, uint32_t with) override { a_.and_(gp(to).r32(), int32_t(with)); }
  void bit_or(Reg to, Reg with) override { a_.or_(gp(to), gp(with)); }
  void add(Reg to, int32_t value) override { a_.add(gp(to), value); }
  void add_scaled(Reg to, Reg base, Reg index, int shift) override {
    a_.lea(gp(to), x86::ptr(gp(base), gp(index), uint32_t(shift)));
  }
  void shift_right_signed(Reg to, Reg from, int bits) override {
    move(to, from);
    a_.sar(gp(to), bits);
  }

  void jump(Label to) override { a_.jmp(asmjit::Label(to.id)); }
  void branch(Condition when, Reg a, Reg b, Label to) override {
    a_.cmp(gp(a), gp(b));
    branch(when, to);
  }
  void branch(Condition when, Reg a, int32_t b, Label to) override {
    if (b == 0)
      a_.test(gp(a), gp(a));
    else
      a_.cmp(gp(a), b);
    branch(when, to);
  }
  void branch(Condition when, Memory a, Reg b, Label to) override {
    a_.cmp(mem(a), gp(b));
    branch(when, to);
  }
  void branch(Condition when, Memory a, int32_t b, Label to) override {
    a_.cmp(mem(a), b);
    branch(when, to);
  }
  void call(const void* function) override {
    a_.mov(x86::rax, uint64_t(function));
    a_.call(x86::rax);
  }

  PublishedCode finish() override {
    PublishedCode out;
    if (errors_.message.empty()) publish(holder_, &out);
    return out;
  }

 private:
  void branch(Condition when, Label to) { a_.j(condition(when), asmjit::Label(to.id)); }

  FirstError errors_;
  asmjit::CodeHolder holder_;
  x86::Assembler a_;
};

}  // namespace

std::unique_ptr<Assembler> make_assembler() {
  if (!asmjit::Environment::host().isFamilyX86()) return nullptr;
  return std::make_unique<X64Assembler>();
}

}  // namespace lutra::x64
