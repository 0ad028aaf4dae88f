// Vector operations of AVX-512 (F, DQ, BW, VL) as calls on an asmjit Compiler. Another instruction set is another class
// with these methods; everything above speaks in lanes, values and masks.
//
// Invariants:
// 1. A kernel has one vector length, `lanes`: 16, or 8 where 64-bit lanes meet 32-bit ones. 32-bit lanes fill a zmm
//    (16) or a ymm (8); 64-bit lanes a zmm, of which there are 8.
// 2. Outside vector loops values are uniform: all their lanes are equal - with 16 lanes also where 64-bit lanes are
//    narrowed or compared, which is why narrow() and widened masks repeat themselves.
// 3. Only instructions with EVEX forms: the register allocator uses all 32 registers.
#pragma once
#include <asmjit/x86.h>

#include <cstring>

namespace lutra::x64 {

namespace x86 = asmjit::x86;
using InstId = uint32_t;
namespace Ids = x86::Inst;

// How vcmp and vpcmp name comparisons.
enum class Cmp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kUnordered };

class Avx512 {
 public:
  Avx512(x86::Compiler& compiler, int lane_count) : cc(compiler), lanes(lane_count) {}
  x86::Compiler& cc;
  const int lanes;

  x86::Vec fresh(bool wide) {
    if (wide || lanes == 16) return cc.newZmm();
    return cc.newYmm();
  }
  x86::KReg fresh_mask() { return cc.newKw(); }

  // A scalar in memory as an operand that is repeated over the lanes.
  x86::Mem repeated(const x86::Mem& m, bool wide) const {
    return !wide && lanes == 16 ? m.cloneBroadcasted(x86::Mem::Broadcast::k1To16)
                                : m.cloneBroadcasted(x86::Mem::Broadcast::k1To8);
  }
  x86::Mem constant(bool wide, uint64_t pattern) {
    x86::Mem m = cc.newConst(asmjit::ConstPoolScope::kLocal, &pattern, wide ? 8 : 4);
    return repeated(m, wide);
  }
  x86::Vec materialise(bool wide, uint64_t pattern) {
    x86::Vec r = fresh(wide);
    if (pattern == 0) {
      cc.emit(Ids::kIdVpxord, r, r, r);
    } else {
      x86::Mem m = cc.newConst(asmjit::ConstPoolScope::kLocal, &pattern, wide ? 8 : 4);
      cc.emit(wide ? Ids::kIdVbroadcastsd : Ids::kIdVbroadcastss, r, m);
    }
    return r;
  }
  // 0, 1, ... 7 plus first, as 64-bit lanes in memory.
  x86::Mem iota(int64_t first) {
    int64_t v[8];
    for (int i = 0; i < 8; i++) v[i] = first + i;
    return cc.newConst(asmjit::ConstPoolScope::kLocal, v, sizeof v);
  }

  x86::Vec copy(const x86::Vec& v, bool wide) {
    x86::Vec r = fresh(wide);
    cc.emit(Ids::kIdVmovaps, r, v);
    return r;
  }
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
  // mask ? a : b
  x86::Vec blend(bool wide, const x86::KReg& mask, const asmjit::Operand_& a, const x86::Vec& b) {
    x86::Vec r = fresh(wide);
    cc.k(mask).emit(wide ? Ids::kIdVblendmpd : Ids::kIdVblendmps, r, b, a);
    return r;
  }

  // Lanes where `only` (if any) is set and the comparison holds.
  x86::KReg compare_floats(Cmp c, bool wide, const x86::Vec& a, const asmjit::Operand_& b,
                           const x86::KReg* only = nullptr) {
    static const int kPredicate[] = {0x00, 0x04, 0x11, 0x12, 0x1e, 0x1d, 0x03};
    return compare(wide ? Ids::kIdVcmppd : Ids::kIdVcmpps, kPredicate[int(c)], wide, a, b, only);
  }
  x86::KReg compare_ints(Cmp c, bool wide, const x86::Vec& a, const asmjit::Operand_& b,
                         const x86::KReg* only = nullptr) {
    static const int kPredicate[] = {0, 4, 1, 2, 6, 5};
    return compare(wide ? Ids::kIdVpcmpq : Ids::kIdVpcmpd, kPredicate[int(c)], wide, a, b, only);
  }
  x86::KReg compare_unsigned_ge(const x86::Vec& a, const asmjit::Operand_& b, const x86::KReg* only) {
    return compare(Ids::kIdVpcmpuq, 5, true, a, b, only);
  }
  // Lanes with a common set bit in a and b.
  x86::KReg test_bits(bool wide, const x86::Vec& a, const asmjit::Operand_& b) {
    x86::KReg k = fresh_mask();
    cc.emit(wide ? Ids::kIdVptestmq : Ids::kIdVptestmd, k, a, b);
    return widened(k, wide);
  }
  x86::KReg mask_op(InstId id, const x86::KReg& a, const x86::KReg& b) {
    x86::KReg k = fresh_mask();
    cc.emit(id, k, a, b);
    return k;
  }
  x86::KReg mask_not(const x86::KReg& a) {
    x86::KReg k = fresh_mask();
    cc.knotw(k, a);
    return k;
  }
  x86::KReg mask_constant(bool on) {
    x86::KReg k = fresh_mask();
    if (on)
      cc.kxnorw(k, k, k);
    else
      cc.kxorw(k, k, k);
    return k;
  }
  x86::KReg mask_from(const x86::Gp& bits) {
    x86::KReg k = fresh_mask();
    if (lanes == 16)
      cc.kmovw(k, bits.r32());
    else
      cc.kmovb(k, bits.r32());
    return k;
  }

  // These two go through a copy: asmjit's allocator would replace a spilled source by its memory, a form that moves to
  // general registers do not have.
  void lane0(const x86::Gp& to, const x86::Vec& v, bool wide) {
    x86::Xmm own = cc.newXmm();
    cc.vmovaps(own, v.xmm());
    if (wide)
      cc.vmovq(to.r64(), own);
    else
      cc.vmovd(to.r32(), own);
  }
  void mask_bits(const x86::Gp& to, const x86::KReg& k) {
    x86::KReg own = fresh_mask();
    cc.kmovw(own, k);
    cc.kmovw(to.r32(), own);
  }

  // 64-bit lanes to 32-bit ones by a conversion that halves, and back.
  x86::Vec narrow(InstId id, const x86::Vec& v) {
    x86::Vec half = cc.newYmm();
    cc.emit(id, half, v.zmm());
    return lanes == 16 ? broadcast_lane0(half, false) : half;
  }
  x86::Vec widen(InstId id, const x86::Vec& v) { return unary(id, true, v.ymm()); }

  // Floats to the bits of float16 (half as wide a register) and back.
  x86::Vec to_half(const x86::Vec& v) {
    x86::Vec r = half_of(lanes);
    cc.emit(Ids::kIdVcvtps2ph, r, v, asmjit::Imm(0));
    return r;
  }
  x86::Vec from_half(const asmjit::Operand_& v) { return unary(Ids::kIdVcvtph2ps, false, v); }

  x86::Vec broadcast_lane0(const x86::Vec& v, bool wide) {
    return unary(wide ? Ids::kIdVbroadcastsd : Ids::kIdVbroadcastss, wide, v.xmm());
  }
  x86::Vec broadcast(const x86::Gp& r, bool wide) {
    x86::Vec v = fresh(wide);
    if (wide)
      cc.emit(Ids::kIdVpbroadcastq, v, r.r64());
    else
      cc.emit(Ids::kIdVpbroadcastd, v, r.r32());
    return v;
  }
  // Lane j becomes lane j + by.
  x86::Vec rotate(const x86::Vec& v, bool wide, int by) {
    x86::Vec r = fresh(wide);
    cc.emit(wide ? Ids::kIdValignq : Ids::kIdValignd, r, v, v, asmjit::Imm(by));
    return r;
  }

 private:
  x86::Vec half_of(int lane_count) {
    if (lane_count == 16) return cc.newYmm();
    return cc.newXmm();
  }
  x86::KReg compare(InstId id, int predicate, bool wide, const x86::Vec& a, const asmjit::Operand_& b,
                    const x86::KReg* only) {
    x86::KReg k = fresh_mask();
    if (only) cc.k(*only);
    cc.emit(id, k, a, b, asmjit::Imm(predicate));
    return widened(k, wide);
  }
  x86::KReg widened(const x86::KReg& k, bool wide) {
    if (!wide || lanes == 8) return k;
    x86::KReg r = fresh_mask();
    cc.kunpckbw(r, k, k);
    return r;
  }
};

}  // namespace lutra::x64
