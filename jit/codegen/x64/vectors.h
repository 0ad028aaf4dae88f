// The vector operations of an instruction set, as functions that emit into an asmjit Compiler. The emitter is written
// in terms of them. AVX-512 (F, DQ, BW, VL) and AVX2 (with FMA and F16C) implement them.
//
// Invariants:
// 1. A kernel has one vector length, `lanes`: as many 32-bit lanes as a register has, or half of them if 64-bit lanes
//    are combined with 32-bit ones. 64-bit ("wide") lanes always fill a register, which has wide_lanes() of them.
// 2. Outside vector loops all lanes of a value are equal. A 32-bit value made from 64-bit lanes fills only half of a
//    register; there its lanes are repeated, so the invariant holds for it, too.
// 3. A mask has `lanes` lanes: a k register with AVX-512, 32-bit lanes of all ones or zero with AVX2.
// 4. Results have the same bits with every instruction set.
#pragma once
#include <asmjit/x86.h>

#include <cstring>
#include <memory>
#include <vector>

#include "ops/core/dtype.h"

namespace lutra::x64 {

namespace x86 = asmjit::x86;
using InstId = uint32_t;
namespace Ids = x86::Inst;
using Mask = x86::Reg;

enum class Cmp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kUnordered };
enum class MaskOp : uint8_t { kAnd, kOr, kXor, kXnor, kAndNot /* ~a & b */ };
// F: on floats, I: on integers. kMinF and kMaxF return their second operand if one is NaN or both are zeros. kMul32:
// the product of the low halves of 64-bit lanes.
enum class Vop : uint8_t {
  kAddF,
  kSubF,
  kMulF,
  kDivF,
  kMinF,
  kMaxF,
  kAddI,
  kSubI,
  kMulI,
  kMinI,
  kMaxI,
  kAnd,
  kOr,
  kXor,
  kMul32
};
// Conversions of floats to integers truncate; a value that does not fit gives the smallest integer.
enum class Conv : uint8_t {
  kI32ToI64,
  kI32ToF32,
  kI32ToF64,
  kI64ToI32,
  kI64ToF32,
  kI64ToF64,
  kF32ToI32,
  kF32ToI64,
  kF32ToF64,
  kF64ToI32,
  kF64ToI64,
  kF64ToF32
};
// Immediates of rounding instructions.
enum Rounding : int { kToNearest = 8, kDown = 9, kUp = 10, kToZero = 11 };

class Vectors {
 public:
  Vectors(x86::Compiler& compiler, int lane_count, int register_bytes)
      : cc(compiler), lanes(lane_count), bytes(register_bytes) {}
  virtual ~Vectors() = default;
  x86::Compiler& cc;
  const int lanes, bytes;

  // Returns the same set with half as many lanes.
  virtual std::unique_ptr<Vectors> halved() const = 0;
  int wide_lanes() const { return bytes / 8; }
  int size(bool wide) const { return wide ? bytes : 4 * lanes; }
  x86::Vec fresh(bool wide) { return fresh_of(size(wide)); }
  x86::Vec fresh_of(int register_bytes) {
    if (register_bytes == 64) return cc.newZmm();
    if (register_bytes == 32) return cc.newYmm();
    return cc.newXmm();
  }
  // Returns v as a register of that many bytes.
  static x86::Vec named(const x86::Vec& v, int register_bytes) {
    if (register_bytes == 64) return v.zmm();
    if (register_bytes == 32) return v.ymm();
    return v.xmm();
  }

  x86::Vec materialise(bool wide, uint64_t pattern) {
    if (pattern == 0) return zero(wide);
    return broadcast_memory(cc.newConst(asmjit::ConstPoolScope::kLocal, &pattern, wide ? 8 : 4), wide);
  }
  x86::Vec broadcast_memory(const x86::Mem& m, bool wide) {
    return unary(wide ? Ids::kIdVbroadcastsd : Ids::kIdVbroadcastss, wide, m);
  }
  // Returns a constant in memory: first, first + 1, ... in 64-bit lanes.
  x86::Mem iota(int64_t first) {
    int64_t v[8];
    for (int i = 0; i < 8; i++) v[i] = first + i;
    return cc.newConst(asmjit::ConstPoolScope::kLocal, v, size_t(bytes));
  }
  // Returns the same in 32-bit lanes of a register.
  x86::Vec places(int32_t first) {
    int32_t v[16];
    for (int i = 0; i < 16; i++) v[i] = first + i;
    return unary(Ids::kIdVmovups, false, cc.newConst(asmjit::ConstPoolScope::kLocal, v, size_t(size(false))));
  }
  x86::Vec copy(const x86::Vec& v, bool wide) { return unary(Ids::kIdVmovaps, wide, v); }
  x86::Vec binary(InstId id, bool wide, const x86::Vec& a, const asmjit::Operand_& b) {
    x86::Vec r = fresh(wide);
    cc.emit(id, r, a, b);
    return r;
  }
  x86::Vec unary(InstId id, bool wide, const asmjit::Operand_& a) {
    x86::Vec r = fresh(wide);
    cc.emit(id, r, a);
    return r;
  }
  x86::Vec unary_imm(InstId id, bool wide, const asmjit::Operand_& a, int imm) {
    x86::Vec r = fresh(wide);
    cc.emit(id, r, a, asmjit::Imm(imm));
    return r;
  }
  x86::Vec root(bool wide, const asmjit::Operand_& a) {
    return unary(wide ? Ids::kIdVsqrtpd : Ids::kIdVsqrtps, wide, a);
  }
  x86::Vec shift_left(bool wide, const x86::Vec& v, int n) {
    return unary_imm(wide ? Ids::kIdVpsllq : Ids::kIdVpslld, wide, v, n);
  }
  x86::Vec shift_right(bool wide, const x86::Vec& v, int n) {
    return unary_imm(wide ? Ids::kIdVpsrlq : Ids::kIdVpsrld, wide, v, n);
  }
  x86::Vec shift_right_signed(const x86::Vec& v, int n) { return unary_imm(Ids::kIdVpsrad, false, v, n); }
  // multiply_add: dst = dst * b + c. add_product: dst = a * b + dst. Both round once.
  void multiply_add(bool wide, const x86::Vec& dst, const x86::Vec& b, const asmjit::Operand_& c) {
    cc.emit(wide ? Ids::kIdVfmadd213pd : Ids::kIdVfmadd213ps, dst, b, c);
  }
  void add_product(bool wide, const x86::Vec& dst, const x86::Vec& a, const asmjit::Operand_& b) {
    cc.emit(wide ? Ids::kIdVfmadd231pd : Ids::kIdVfmadd231ps, dst, a, b);
  }
  x86::Vec broadcast_lane0(const x86::Vec& v, bool wide) {
    return unary(wide ? Ids::kIdVbroadcastsd : Ids::kIdVbroadcastss, wide, v.xmm());
  }
  // Converts floats to the bits of float16, in a register half as wide (at least an xmm), and back.
  x86::Vec to_half(const x86::Vec& v) {
    x86::Vec r = fresh_of(size(false) / 2);
    cc.emit(Ids::kIdVcvtps2ph, r, v, asmjit::Imm(0));
    return r;
  }
  x86::Vec from_half(const asmjit::Operand_& v) { return unary(Ids::kIdVcvtph2ps, false, v); }
  // Copies lane 0 to a general register, through a copy of v. asmjit's allocator would replace a spilled source by its
  // memory, but moves to general registers have no such form.
  void lane0(const x86::Gp& to, const x86::Vec& v, bool wide) {
    x86::Xmm own = cc.newXmm();
    cc.vmovaps(own, v.xmm());
    if (wide)
      cc.vmovq(to.r64(), own);
    else
      cc.vmovd(to.r32(), own);
  }

  // Return a repeated constant, or a repeated scalar in memory, as an operand.
  virtual asmjit::Operand constant(bool wide, uint64_t pattern) = 0;
  virtual asmjit::Operand repeated(const x86::Mem& m, bool wide) = 0;
  virtual x86::Vec zero(bool wide) = 0;
  virtual x86::Vec broadcast(const x86::Gp& r, bool wide) = 0;

  virtual x86::Vec binary(Vop op, bool wide, const x86::Vec& a, const asmjit::Operand_& b) = 0;
  // dst = a op b in the lanes of the mask, or in all lanes without one; other lanes keep dst.
  virtual void binary_into(Vop op, bool wide, const x86::Vec& dst, const x86::Vec& a, const asmjit::Operand_& b,
                           const Mask* mask) = 0;
  virtual x86::Vec exclusive_or(bool wide, const x86::Vec& a, const x86::Vec& b, const x86::Vec& c) = 0;
  // a, and those bits of b that are set in the pattern
  virtual x86::Vec with_bits(bool wide, const x86::Vec& a, const x86::Vec& b, uint64_t pattern) = 0;
  virtual x86::Vec abs_int(bool wide, const asmjit::Operand_& a) = 0;
  virtual x86::Vec round(bool wide, const asmjit::Operand_& a, Rounding how) = 0;
  virtual x86::Vec convert(Conv how, const x86::Vec& v) = 0;
  // mask ? a : b
  virtual x86::Vec blend(bool wide, const Mask& mask, const asmjit::Operand_& a, const x86::Vec& b) = 0;
  virtual void move_where(bool wide, const Mask& mask, const x86::Vec& dst, const x86::Vec& src) = 0;
  virtual x86::Vec constant_where(bool wide, const Mask& mask, uint64_t pattern) = 0;  // else 0
  // Lane 0 of the result is lane `by` of v. Only lanes below `by` of the result are defined.
  virtual x86::Vec rotate(const x86::Vec& v, bool wide, int by) = 0;

  // Return the lanes in which the comparison holds and `only`, if given, is set.
  virtual Mask compare_floats(Cmp c, bool wide, const x86::Vec& a, const asmjit::Operand_& b,
                              const Mask* only = nullptr) = 0;
  virtual Mask compare_ints(Cmp c, bool wide, const x86::Vec& a, const asmjit::Operand_& b,
                            const Mask* only = nullptr) = 0;
  virtual Mask compare_unsigned_ge(const x86::Vec& a, const asmjit::Operand_& b, const Mask* only) = 0;  // wide
  // Returns the lanes in which a and b have a common set bit.
  virtual Mask test_bits(bool wide, const x86::Vec& a, const asmjit::Operand_& b) = 0;

  virtual Mask fresh_mask() = 0;
  virtual void mask_op_into(MaskOp op, const Mask& dst, const Mask& a, const Mask& b) = 0;
  Mask mask_op(MaskOp op, const Mask& a, const Mask& b) {
    Mask r = fresh_mask();
    mask_op_into(op, r, a, b);
    return r;
  }
  virtual Mask mask_not(const Mask& a) = 0;
  virtual Mask mask_constant(bool on) = 0;
  virtual Mask mask_broadcast(const x86::Gp& r) = 0;  // r: 0 or -1
  // Returns `vectors` masks of per_vector lanes each. Together their first min(count, most) lanes are set.
  virtual std::vector<Mask> first_lanes(const x86::Gp& count, int most, int vectors, int per_vector) = 0;
  virtual void mask_bits(const x86::Gp& to, const Mask& m) = 0;
  virtual void jump_if_any(const Mask& m, const asmjit::Label& to) = 0;

  // joined returns a register twice as wide: low, then high. block returns block i of 16 bytes of v.
  virtual x86::Vec joined(const x86::Vec& low, const x86::Vec& high) = 0;
  virtual x86::Vec block(const x86::Vec& v, int i) = 0;
  // Returns the even (or odd) blocks of 16 bytes of a, then those of b. Both have the same size, at least 32 bytes.
  virtual x86::Vec blocks(const x86::Vec& a, const x86::Vec& b, bool odd) = 0;

  // For registers with wide_lanes() lanes. turned returns the lanes in reverse order. seconds returns the lanes with
  // even numbers of a and of what follows it in memory; b begins with the last lane of a.
  virtual x86::Vec turned(const x86::Vec& a, bool wide) = 0;
  virtual x86::Vec seconds(const x86::Vec& a, const x86::Vec& b, bool wide) = 0;

  // Rows of lanes in memory: of any type but bool, and of bools. Masked-off lanes are not accessed; loads return 0 for
  // them.
  virtual x86::Vec load_row(DType t, const x86::Mem& m, const Mask* mask) = 0;
  virtual Mask load_bools(const x86::Mem& m, const Mask* mask) = 0;
  virtual void store_row(DType t, const x86::Vec& v, const x86::Mem& m, const Mask* mask) = 0;
  virtual void store_bools(const Mask& v, const x86::Mem& m, const Mask* mask) = 0;
  // Elements of 4 or 8 bytes at base + 64-bit indices. Some sets have no scatter.
  virtual x86::Vec gather(DType t, const x86::Mem& base, const x86::Vec& indices, const Mask* mask) = 0;
  virtual bool has_scatter() const = 0;
  virtual void scatter(DType t, const x86::Vec& v, const x86::Mem& base, const x86::Vec& indices, const Mask* mask) = 0;
};

std::unique_ptr<Vectors> make_avx512(x86::Compiler& cc, int lanes);
std::unique_ptr<Vectors> make_avx2(x86::Compiler& cc, int lanes);

inline int shift_of(DType t) { return size_of(t) == 1 ? 0 : size_of(t) == 2 ? 1 : size_of(t) == 4 ? 2 : 3; }

}  // namespace lutra::x64
