// Control flow, addresses, checks.
#include <cstddef>

#include "jit/codegen/arm64/emitter.h"
#include "jit/loop/abi.h"
#include "ops/core/error.h"

namespace lutra::arm64 {

KernelEmitter::KernelEmitter(a64::Compiler& cc, const Kernel& k)
    : cc_(cc), k_(k), values_(size_t(k.values)), forms_(size_t(k.values)), loop_regs_(size_t(k.loops)) {}

void KernelEmitter::emit() {
  t_compiler = &cc_;
  asmjit::FuncNode* f = cc_.addFunc(asmjit::FuncSignatureT<void, void*>());
  block_ = cc_.newUIntPtr("block");
  f->setArg(0, block_);
  exit_ = cc_.newLabel();
  body(k_.body);
  cc_.bind(exit_);
  cc_.ret();
  cold_checks();
  cc_.endFunc();
  t_compiler = nullptr;
}

a64::Mem KernelEmitter::head(size_t offset) const { return a64::ptr(block_, int32_t(offset)); }
a64::Mem KernelEmitter::int_arg(int32_t arg) const {
  return head(sizeof(BlockHead) + 8 * (k_.params.size() + size_t(arg)));
}
a64::Gp KernelEmitter::coefficient(const Coef& c) {
  if (c.arg < 0) return number(c.literal);
  a64::Gp r = cc_.newInt64();
  cc_.ldr(r, int_arg(c.arg));
  return r;
}

a64::Gp KernelEmitter::address(const Inst& in) {
  const Access& a = in.access;
  a64::Gp at = coefficient(a.offset);
  for (const Access::Term& t : a.terms) {
    const a64::Gp index = t.is_value ? value(t.id).whole : loop_regs_[size_t(t.id)], sum = cc_.newInt64();
    if (t.stride == Coef::of(0)) continue;
    if (t.stride == Coef::of(1))
      cc_.add(sum, at, index);
    else
      cc_.madd(sum, index, coefficient(t.stride), at);
    at = sum;
  }
  const a64::Gp pointer = cc_.newIntPtr(), out = cc_.newIntPtr();
  cc_.ldr(pointer, head(sizeof(BlockHead) + 8 * size_t(a.ptr)));
  cc_.add(out, pointer, at, a64::lsl(uint32_t(__builtin_ctzll(size_of(in.type)))));
  return out;
}

void KernelEmitter::body(const std::vector<Stmt>& stmts) {
  for (const Stmt& s : stmts) {
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s))
      loop(**l);
    else
      inst(std::get<Inst>(s));
  }
}

void KernelEmitter::loop(const Loop& l) {
  begin_accumulators(l);
  const bool part = l.parallel && !outermost_done_;
  outermost_done_ = true;
  const a64::Gp i = cc_.newInt64(), end = cc_.newInt64();
  if (part) {
    cc_.ldr(i, head(offsetof(BlockHead, begin)));
    cc_.ldr(end, head(offsetof(BlockHead, end)));
  } else {
    cc_.mov(i, number(0));
    cc_.mov(end, coefficient(l.size));
  }
  const asmjit::Label top = cc_.newLabel(), done = cc_.newLabel();
  loop_regs_[size_t(l.id)] = i;
  open_.push_back(&l);
  cc_.cmp(i, end);
  cc_.b(CondCode::kGE, done);
  cc_.bind(top);
  body(l.body);
  cc_.add(i, i, 1);
  cc_.cmp(i, end);
  cc_.b(CondCode::kLT, top);
  cc_.bind(done);
  open_.pop_back();
  finish_accumulators(l);
}

void KernelEmitter::inst(const Inst& in) {
  const Form f = form_of(in.type);
  switch (in.op) {
    case Op::kAccum: return accumulate(in);
    case Op::kCheck: return check(in);
    case Op::kStore: return store(f, address(in), value(in.a));
    case Op::kStoreAdd: {
      const a64::Gp at = address(in);
      return store(f, at, arithmetic(Op::kAdd, f, load(f, at), value(in.a)));
    }
    default: break;
  }
  values_[size_t(in.id)] = evaluate(in);
  forms_[size_t(in.id)] = f;
}

void KernelEmitter::check(const Inst& in) {
  checks_.push_back({cc_.newLabel(), in.arg, value(in.a).whole});
  cc_.cmp(checks_.back().index, coefficient(Coef::of_arg(in.arg)));
  cc_.b(CondCode::kHS, checks_.back().at);
}

// Out of line: records the first failing check of a launch.
void KernelEmitter::cold_checks() {
  for (const ColdCheck& c : checks_) {
    cc_.bind(c.at);
    const a64::Gp fault = cc_.newUIntPtr(), set = cc_.newUIntPtr(), one = number(1), old = cc_.newInt64();
    const a64::Gp failed = cc_.newInt64();
    const asmjit::Label again = cc_.newLabel();
    cc_.ldr(fault, head(offsetof(BlockHead, fault)));
    cc_.cbz(fault, exit_);
    cc_.add(set, fault, int(offsetof(LaunchFault, set)));
    cc_.bind(again);
    cc_.ldxr(old.w(), a64::ptr(set));
    cc_.stxr(failed.w(), one.w(), a64::ptr(set));
    cc_.cbnz(failed.w(), again);
    cc_.cbnz(old.w(), exit_);
    cc_.str(number(c.arg).w(), a64::ptr(fault, int32_t(offsetof(LaunchFault, arg))));
    cc_.str(c.index, a64::ptr(fault, int32_t(offsetof(LaunchFault, index))));
    cc_.b(exit_);
  }
}

}  // namespace lutra::arm64
