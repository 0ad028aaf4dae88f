// The vector operations of an instruction set as calls on an asmjit Compiler: what the emitter is written in. AVX-512
// (F, DQ, BW, VL) and AVX2 (with FMA and F16C) implement them.
//
// Invariants:
// 1. A kernel has one vector length, `lanes`: as many 32-bit lanes as a register of the set holds, or half of that
// where
//    64-bit lanes meet 32-bit ones. 64-bit ("wide") lanes always fill a register, which has wide_lanes() of them.
// 2. Outside vector loops all lanes of a value are equal. A 32-bit value that comes from 64-bit lanes fills only half
// of
//    a register; there its lanes are repeated, so that this holds for it too.
// 3. A mask has `lanes` lanes: a k register under AVX-512, 32-bit lanes of all ones or zero under AVX2.
// 4. Results are the same bits on every set.
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
// F of floats, I of integers. kMinF and kMaxF give their second operand where one is NaN or both are zeros. kMul32:
// product of the low halves of 64-bit lanes.
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
// Floats to integers truncate; what does not fit gives the smallest integer.
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

  // The same set with half as many lanes.
  virtual std::unique_ptr<Vectors> halved() const = 0;
  int wide_lanes() const { return bytes / 8; }
  int size(bool wide) const { return wide ? bytes : 4 * lanes; }
  x86::Vec fresh(bool wide) { return fresh_of(size(wide)); }
  x86::Vec fresh_of(int register_bytes) {
    if (register_bytes == 64) return cc.newZmm();
    if (register_bytes == 32) return cc.newYmm();
    return cc.newXmm();
  }
  // v by the register's name for that many bytes.
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
  // first, first + 1, ... as 64-bit lanes in memory.
  x86::Mem iota(int64_t first) {
    int64_t v[8];
    for (int i = 0; i < 8; i++) v[i] = first + i;
    return cc.newConst(asmjit::ConstPoolScope::kLocal, v, size_t(bytes));
  }
  // As 32-bit lanes in a register.
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
  // dst = dst * b + c, and dst = a * b + dst, rounded once.
  void multiply_add(bool wide, const x86::Vec& dst, const x86::Vec& b, const asmjit::Operand_& c) {
    cc.emit(wide ? Ids::kIdVfmadd213pd : Ids::kIdVfmadd213ps, dst, b, c);
  }
  void add_product(bool wide, const x86::Vec& dst, const x86::Vec& a, const asmjit::Operand_& b) {
    cc.emit(wide ? Ids::kIdVfmadd231pd : Ids::kIdVfmadd231ps, dst, a, b);
  }
  x86::Vec broadcast_lane0(const x86::Vec& v, bool wide) {
    return unary(wide ? Ids::kIdVbroadcastsd : Ids::kIdVbroadcastss, wide, v.xmm());
  }
  // Floats to the bits of float16 (half as wide a register, at least an xmm) and back.
  x86::Vec to_half(const x86::Vec& v) {
    x86::Vec r = fresh_of(size(false) / 2);
    cc.emit(Ids::kIdVcvtps2ph, r, v, asmjit::Imm(0));
    return r;
  }
  x86::Vec from_half(const asmjit::Operand_& v) { return unary(Ids::kIdVcvtph2ps, false, v); }
  // Goes through a copy: asmjit's allocator would replace a spilled source by its memory, a form that moves to general
  // registers do not have.
  void lane0(const x86::Gp& to, const x86::Vec& v, bool wide) {
    x86::Xmm own = cc.newXmm();
    cc.vmovaps(own, v.xmm());
    if (wide)
      cc.vmovq(to.r64(), own);
    else
      cc.vmovd(to.r32(), own);
  }

  // A repeated constant or scalar in memory, as an operand.
  virtual asmjit::Operand constant(bool wide, uint64_t pattern) = 0;
  virtual asmjit::Operand repeated(const x86::Mem& m, bool wide) = 0;
  virtual x86::Vec zero(bool wide) = 0;
  virtual x86::Vec broadcast(const x86::Gp& r, bool wide) = 0;

  virtual x86::Vec binary(Vop op, bool wide, const x86::Vec& a, const asmjit::Operand_& b) = 0;
  // dst = a op b where the mask (if any) is set; else dst stays.
  virtual void binary_into(Vop op, bool wide, const x86::Vec& dst, const x86::Vec& a, const asmjit::Operand_& b,
                           const Mask* mask) = 0;
  virtual x86::Vec exclusive_or(bool wide, const x86::Vec& a, const x86::Vec& b, const x86::Vec& c) = 0;
  virtual x86::Vec abs_int(bool wide, const asmjit::Operand_& a) = 0;
  virtual x86::Vec round(bool wide, const asmjit::Operand_& a, Rounding how) = 0;
  virtual x86::Vec convert(Conv how, const x86::Vec& v) = 0;
  // mask ? a : b
  virtual x86::Vec blend(bool wide, const Mask& mask, const asmjit::Operand_& a, const x86::Vec& b) = 0;
  virtual void move_where(bool wide, const Mask& mask, const x86::Vec& dst, const x86::Vec& src) = 0;
  virtual x86::Vec constant_where(bool wide, const Mask& mask, uint64_t pattern) = 0;  // else 0
  // Lane 0 gets lane `by`; only lanes below `by` of the result count.
  virtual x86::Vec rotate(const x86::Vec& v, bool wide, int by) = 0;

  // Lanes where `only` (if any) is set and the comparison holds.
  virtual Mask compare_floats(Cmp c, bool wide, const x86::Vec& a, const asmjit::Operand_& b,
                              const Mask* only = nullptr) = 0;
  virtual Mask compare_ints(Cmp c, bool wide, const x86::Vec& a, const asmjit::Operand_& b,
                            const Mask* only = nullptr) = 0;
  virtual Mask compare_unsigned_ge(const x86::Vec& a, const asmjit::Operand_& b, const Mask* only) = 0;  // wide
  // Lanes with a common set bit in a and b.
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
  // vectors masks that together have the first min(count, most) lanes set, per_vector in each.
  virtual std::vector<Mask> first_lanes(const x86::Gp& count, int most, int vectors, int per_vector) = 0;
  virtual void mask_bits(const x86::Gp& to, const Mask& m) = 0;
  virtual void jump_if_any(const Mask& m, const asmjit::Label& to) = 0;

  // A register twice as wide: low, then high. Block i of 16 bytes of a register.
  virtual x86::Vec joined(const x86::Vec& low, const x86::Vec& high) = 0;
  virtual x86::Vec block(const x86::Vec& v, int i) = 0;
  // The even (odd) blocks of 16 bytes of a, then those of b; both of the same size, which is 32 bytes or more.
  virtual x86::Vec blocks(const x86::Vec& a, const x86::Vec& b, bool odd) = 0;

  // Of registers with wide_lanes() lanes: the lanes from the last to the first; and those with even numbers, of a and
  // of what follows it: b begins with the last lane of a.
  virtual x86::Vec turned(const x86::Vec& a, bool wide) = 0;
  virtual x86::Vec seconds(const x86::Vec& a, const x86::Vec& b, bool wide) = 0;

  // Rows of lanes in memory, of any type but bool, and of bools. Lanes that a mask leaves out are not touched; loads
  // give 0 there.
  virtual x86::Vec load_row(DType t, const x86::Mem& m, const Mask* mask) = 0;
  virtual Mask load_bools(const x86::Mem& m, const Mask* mask) = 0;
  virtual void store_row(DType t, const x86::Vec& v, const x86::Mem& m, const Mask* mask) = 0;
  virtual void store_bools(const Mask& v, const x86::Mem& m, const Mask* mask) = 0;
  // Elements of 4 or 8 bytes at base + 64-bit indices. Not every set has scatters.
  virtual x86::Vec gather(DType t, const x86::Mem& base, const x86::Vec& indices, const Mask* mask) = 0;
  virtual bool has_scatter() const = 0;
  virtual void scatter(DType t, const x86::Vec& v, const x86::Mem& base, const x86::Vec& indices, const Mask* mask) = 0;
};

std::unique_ptr<Vectors> make_avx512(x86::Compiler& cc, int lanes);
std::unique_ptr<Vectors> make_avx2(x86::Compiler& cc, int lanes);

inline int shift_of(DType t) { return size_of(t) == 1 ? 0 : size_of(t) == 2 ? 1 : size_of(t) == 4 ? 2 : 3; }

}  // namespace lutra::x64
