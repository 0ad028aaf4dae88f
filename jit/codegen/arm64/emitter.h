// The scalar code generator for AArch64. It walks a verified kernel and emits it into an asmjit Compiler, one iteration
// at a time in loop order, as the interpreter does.
//
// Invariants:
// 1. Integers and bools are in 64-bit registers, in their type's range and with their type's sign. float64 is in a
//    double's register; other floats are in a single's, and their type can represent them. wrapped() and rounded()
//    bring results back.
// 2. No instruction writes to a value's register after its definition.
// 3. Partial results are on the stack, 8 bytes each.
// 4. A failing check records the fault and leaves the kernel.
#pragma once
#include <functional>
#include <vector>

#include "jit/codegen/arm64/scalars.h"
#include "jit/loop/cell.h"
#include "jit/loop/loop.h"

namespace lutra::arm64 {

using loop::Access;
using loop::Accumulator;
using loop::Coef;
using loop::Inst;
using loop::Kernel;
using loop::Loop;
using loop::Op;
using loop::RedOp;
using loop::Stmt;

// The format of a type in a register and in memory. kNone: not supported; kernels with this type are interpreted.
enum class Form : uint8_t { kNone, kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };
Form form_of(DType t);
inline bool is_real(Form f) { return f >= Form::kF16; }
inline bool is_half(Form f) { return f == Form::kF16 || f == Form::kBF16; }

// One of the two, depending on its form.
struct Value {
  a64::Gp whole;
  a64::Vec real;
};

class KernelEmitter {
 public:
  KernelEmitter(a64::Compiler& cc, const Kernel& k);
  void emit();

 private:
  struct AccState {
    const Accumulator* acc;
    Form form;
    a64::Gp base;  // address of the partial results; after them the positions, or the blocks' sums and what was rounded
                   // off
    a64::Gp count, left, first;
    int32_t positions() const { return 8 * acc->lanes; }
    int32_t sums() const { return 8 * acc->lanes; }
    int32_t rests() const { return 16 * acc->lanes; }
  };
  struct ColdCheck {
    asmjit::Label at;
    int32_t arg;
    a64::Gp index;
  };

  // emit_loops.cc
  void body(const std::vector<Stmt>& stmts);
  void loop(const Loop& l);
  void inst(const Inst& in);
  void check(const Inst& in);
  void cold_checks();
  a64::Mem head(size_t offset) const;
  a64::Mem int_arg(int32_t arg) const;
  a64::Gp coefficient(const Coef& c);
  a64::Gp address(const Inst& in);

  // emit_values.cc
  Value evaluate(const Inst& in);
  Value load(Form f, const a64::Gp& at, int32_t offset = 0);
  void store(Form f, const a64::Gp& at, const Value& v, int32_t offset = 0);
  Value constant(Form f, double real, int64_t whole);
  Value arithmetic(Op op, Form f, const Value& a, const Value& b);
  Value whole_op(Op op, Form f, const a64::Gp& a, const a64::Gp& b);
  Value extreme(bool max, Form f, const Value& a, const Value& b);
  a64::Gp compare(Op op, Form f, const Value& a, const Value& b);
  Value select(Form f, CondCode when, const Value& a, const Value& b);
  Value cast(Form from, Form to, const Value& a);
  a64::Gp truncated(Form from, Form to, const Value& a);
  Value random(const Inst& in, Form f, const a64::Gp& index);
  a64::Gp wrapped(Form f, const a64::Gp& r);
  a64::Vec rounded(Form f, const a64::Vec& v);
  const Value& value(int32_t id) const { return values_[size_t(id)]; }

  // emit_integers.cc
  a64::Gp divide(Op op, const a64::Gp& a, const a64::Gp& b);
  a64::Gp power(const a64::Gp& base, const a64::Gp& exponent);
  a64::Gp gcd(const a64::Gp& a, const a64::Gp& b);
  a64::Gp magnitude(const a64::Gp& a);

  // emit_reduce.cc
  void begin_accumulators(const Loop& l);
  void accumulate(const Inst& in);
  void finish_accumulators(const Loop& l);
  void combine(const AccState& s, const a64::Gp& at, const Value& x, const a64::Gp& position);
  void combine_position(const AccState& s, const a64::Gp& at, const Value& x, const a64::Gp& position);
  void end_block(const AccState& s);
  void add_blocks(const AccState& s);
  void each(const a64::Gp& base, int n, const std::function<void(const a64::Gp&)>& f);
  // Load and store a partial result on the stack: floats as singles or doubles, other types as 8 bytes.
  Value load_partial(Form f, const a64::Gp& at, int32_t offset = 0);
  void store_partial(Form f, const a64::Gp& at, const Value& v, int32_t offset = 0);
  AccState& accumulator(int32_t id);

  a64::Compiler& cc_;
  const Kernel& k_;
  a64::Gp block_;
  asmjit::Label exit_;
  std::vector<Value> values_;       // by id
  std::vector<Form> forms_;         // by id
  std::vector<a64::Gp> loop_regs_;  // by loop id
  std::vector<const Loop*> open_;   // enclosing loops, outermost first
  bool outermost_done_ = false;     // only the first loop may run a part of its range
  std::vector<AccState> accs_;
  std::vector<ColdCheck> checks_;
};

}  // namespace lutra::arm64
