// AVX-512 (F, DQ, BW, VL). Masks are k registers. An instruction broadcasts the constants that it reads.
// Invariant: only instructions with EVEX forms, since the register allocator uses all 32 registers.
#include "jit/codegen/x64/vectors.h"
#include "ops/core/error.h"

namespace lutra::x64 {
namespace {

struct Row {
  InstId narrow, wide;
};
const Row kBinary[] = {
    {Ids::kIdVaddps, Ids::kIdVaddpd},   {Ids::kIdVsubps, Ids::kIdVsubpd},   {Ids::kIdVmulps, Ids::kIdVmulpd},
    {Ids::kIdVdivps, Ids::kIdVdivpd},   {Ids::kIdVminps, Ids::kIdVminpd},   {Ids::kIdVmaxps, Ids::kIdVmaxpd},
    {Ids::kIdVpaddd, Ids::kIdVpaddq},   {Ids::kIdVpsubd, Ids::kIdVpsubq},   {Ids::kIdVpmulld, Ids::kIdVpmullq},
    {Ids::kIdVpminsd, Ids::kIdVpminsq}, {Ids::kIdVpmaxsd, Ids::kIdVpmaxsq}, {Ids::kIdVpandd, Ids::kIdVpandq},
    {Ids::kIdVpord, Ids::kIdVporq},     {Ids::kIdVpxord, Ids::kIdVpxorq},   {Ids::kIdVpmuludq, Ids::kIdVpmuludq},
};
InstId id_of(Vop op, bool wide) { return wide ? kBinary[int(op)].wide : kBinary[int(op)].narrow; }

const InstId kMaskOps[] = {Ids::kIdKandw, Ids::kIdKorw, Ids::kIdKxorw, Ids::kIdKxnorw, Ids::kIdKandnw};

const x86::KReg& k(const Mask& m) { return m.as<x86::KReg>(); }

class Avx512 final : public Vectors {
 public:
  Avx512(x86::Compiler& compiler, int lane_count) : Vectors(compiler, lane_count, 64) {}

  std::unique_ptr<Vectors> halved() const override { return make_avx512(cc, lanes / 2); }
  asmjit::Operand constant(bool wide, uint64_t pattern) override {
    return repeated(cc.newConst(asmjit::ConstPoolScope::kLocal, &pattern, wide ? 8 : 4), wide);
  }
  asmjit::Operand repeated(const x86::Mem& m, bool wide) override {
    return !wide && lanes == 16 ? m.cloneBroadcasted(x86::Mem::Broadcast::k1To16)
                                : m.cloneBroadcasted(x86::Mem::Broadcast::k1To8);
  }
  x86::Vec zero(bool wide) override {
    x86::Vec r = fresh(wide);
    cc.emit(Ids::kIdVpxord, r, r, r);
    return r;
  }
  x86::Vec broadcast(const x86::Gp& r, bool wide) override {
    x86::Vec v = fresh(wide);
    if (wide)
      cc.emit(Ids::kIdVpbroadcastq, v, r.r64());
    else
      cc.emit(Ids::kIdVpbroadcastd, v, r.r32());
    return v;
  }

  x86::Vec binary(Vop op, bool wide, const x86::Vec& a, const asmjit::Operand_& b) override {
    return Vectors::binary(id_of(op, wide), wide, a, b);
  }
  void binary_into(Vop op, bool wide, const x86::Vec& dst, const x86::Vec& a, const asmjit::Operand_& b,
                   const Mask* mask) override {
    if (mask) cc.k(k(*mask));
    cc.emit(id_of(op, wide), dst, a, b);
  }
  x86::Vec exclusive_or(bool wide, const x86::Vec& a, const x86::Vec& b, const x86::Vec& c) override {
    x86::Vec r = copy(a, wide);
    cc.emit(wide ? Ids::kIdVpternlogq : Ids::kIdVpternlogd, r, b, c, asmjit::Imm(0x96));
    return r;
  }
  x86::Vec with_bits(bool wide, const x86::Vec& a, const x86::Vec& b, uint64_t pattern) override {
    x86::Vec r = copy(a, wide);
    cc.emit(wide ? Ids::kIdVpternlogq : Ids::kIdVpternlogd, r, b, constant(wide, pattern), asmjit::Imm(0xf8));
    return r;
  }
  x86::Vec abs_int(bool wide, const asmjit::Operand_& a) override {
    return unary(wide ? Ids::kIdVpabsq : Ids::kIdVpabsd, wide, a);
  }
  x86::Vec round(bool wide, const asmjit::Operand_& a, Rounding how) override {
    return unary_imm(wide ? Ids::kIdVrndscalepd : Ids::kIdVrndscaleps, wide, a, how);
  }
  x86::Vec convert(Conv how, const x86::Vec& v) override {
    switch (how) {
      case Conv::kI32ToI64: return widen(Ids::kIdVpmovsxdq, v);
      case Conv::kI32ToF32: return unary(Ids::kIdVcvtdq2ps, false, v);
      case Conv::kI32ToF64: return widen(Ids::kIdVcvtdq2pd, v);
      case Conv::kI64ToI32: return narrow(Ids::kIdVpmovqd, v);
      case Conv::kI64ToF32: return narrow(Ids::kIdVcvtqq2ps, v);
      case Conv::kI64ToF64: return unary(Ids::kIdVcvtqq2pd, true, v);
      case Conv::kF32ToI32: return unary(Ids::kIdVcvttps2dq, false, v);
      case Conv::kF32ToI64: return widen(Ids::kIdVcvttps2qq, v);
      case Conv::kF32ToF64: return widen(Ids::kIdVcvtps2pd, v);
      case Conv::kF64ToI32: return narrow(Ids::kIdVcvttpd2dq, v);
      case Conv::kF64ToI64: return unary(Ids::kIdVcvttpd2qq, true, v);
      case Conv::kF64ToF32: return narrow(Ids::kIdVcvtpd2ps, v);
    }
    fail_internal("codegen: no such conversion");
  }
  x86::Vec blend(bool wide, const Mask& mask, const asmjit::Operand_& a, const x86::Vec& b) override {
    // The allocator treats a masked target as one that is read, so a fresh register would be kept alive around the
    // loop.
    x86::Vec r = copy(b, wide);
    if (a.isReg())
      move_where(wide, mask, r, a.as<x86::Vec>());
    else
      cc.k(k(mask)).emit(wide ? Ids::kIdVblendmpd : Ids::kIdVblendmps, r, r, a);
    return r;
  }
  void move_where(bool wide, const Mask& mask, const x86::Vec& dst, const x86::Vec& src) override {
    cc.k(k(mask)).emit(wide ? Ids::kIdVmovapd : Ids::kIdVmovaps, dst, src);
  }
  x86::Vec constant_where(bool wide, const Mask& mask, uint64_t pattern) override {
    x86::Mem m = cc.newConst(asmjit::ConstPoolScope::kLocal, &pattern, wide ? 8 : 4);
    x86::Vec r = fresh(wide);
    cc.k(k(mask)).z().emit(wide ? Ids::kIdVbroadcastsd : Ids::kIdVbroadcastss, r, m);
    return r;
  }
  x86::Vec rotate(const x86::Vec& v, bool wide, int by) override {
    x86::Vec r = fresh(wide);
    const int from = by * (wide ? 8 : 4);
    if (from == 32)
      cc.emit(Ids::kIdVextractf64x4, r.ymm(), v, asmjit::Imm(1));
    else if (from == 16)
      cc.emit(Ids::kIdVextractf32x4, r.xmm(), v, asmjit::Imm(1));
    else
      cc.emit(Ids::kIdVpshufd, r, v, asmjit::Imm(from == 8 ? 0x4e : 0xb1));
    return r;
  }

  x86::Vec turned(const x86::Vec& a, bool wide) override {
    static const int kLanes[] = {7, 6, 5, 4, 3, 2, 1, 0};
    x86::Vec r = fresh(wide);
    cc.emit(wide ? Ids::kIdVpermpd : Ids::kIdVpermps, r, chosen(kLanes, wide), a);
    return r;
  }
  x86::Vec seconds(const x86::Vec& a, const x86::Vec& b, bool wide) override {
    static const int kLanes[] = {0, 2, 4, 6, 9, 11, 13, 15};  // from 8 on: lanes of b
    x86::Vec r = copy(a, wide);
    cc.emit(wide ? Ids::kIdVpermt2pd : Ids::kIdVpermt2ps, r, chosen(kLanes, wide), b);
    return r;
  }

  Mask compare_floats(Cmp c, bool wide, const x86::Vec& a, const asmjit::Operand_& b, const Mask* only) override {
    static const int kPredicate[] = {0x00, 0x04, 0x11, 0x12, 0x1e, 0x1d, 0x03};
    return compare(wide ? Ids::kIdVcmppd : Ids::kIdVcmpps, kPredicate[int(c)], wide, a, b, only);
  }
  Mask compare_ints(Cmp c, bool wide, const x86::Vec& a, const asmjit::Operand_& b, const Mask* only) override {
    static const int kPredicate[] = {0, 4, 1, 2, 6, 5};
    return compare(wide ? Ids::kIdVpcmpq : Ids::kIdVpcmpd, kPredicate[int(c)], wide, a, b, only);
  }
  Mask compare_unsigned_ge(const x86::Vec& a, const asmjit::Operand_& b, const Mask* only) override {
    return compare(Ids::kIdVpcmpuq, 5, true, a, b, only);
  }
  Mask test_bits(bool wide, const x86::Vec& a, const asmjit::Operand_& b) override {
    x86::KReg r = cc.newKw();
    cc.emit(wide ? Ids::kIdVptestmq : Ids::kIdVptestmd, r, a, b);
    return widened(r, wide);
  }

  Mask fresh_mask() override { return cc.newKw(); }
  void mask_op_into(MaskOp op, const Mask& dst, const Mask& a, const Mask& b) override {
    cc.emit(kMaskOps[int(op)], dst, a, b);
  }
  Mask mask_not(const Mask& a) override {
    x86::KReg r = cc.newKw();
    cc.knotw(r, k(a));
    return r;
  }
  Mask mask_constant(bool on) override {
    x86::KReg r = cc.newKw();
    cc.emit(on ? Ids::kIdKxnorw : Ids::kIdKxorw, r, r, r);
    return r;
  }
  Mask mask_broadcast(const x86::Gp& r) override {
    x86::KReg m = cc.newKw();
    cc.kmovw(m, r.r32());
    return m;
  }
  std::vector<Mask> first_lanes(const x86::Gp& count, int most, int vectors, int per_vector) override {
    x86::Gp left = cc.newInt64(), limit = cc.newInt64(), bits = cc.newUInt64();
    cc.mov(left, count);
    cc.mov(limit, most);
    cc.cmp(left, limit);
    cc.cmovg(left, limit);
    cc.mov(bits, -1);
    cc.bzhi(bits, bits, left);
    std::vector<Mask> masks;
    for (int u = 0; u < vectors; u++) {
      if (u) cc.shr(bits, per_vector);
      x86::KReg m = cc.newKw();
      if (lanes == 16)
        cc.kmovw(m, bits.r32());
      else
        cc.kmovb(m, bits.r32());
      masks.push_back(m);
    }
    return masks;
  }
  void mask_bits(const x86::Gp& to, const Mask& m) override {
    x86::KReg own = cc.newKw();
    cc.kmovw(own, k(m));
    cc.kmovw(to.r32(), own);
  }
  void jump_if_any(const Mask& m, const asmjit::Label& to) override {
    cc.kortestw(k(m), k(m));
    cc.jnz(to);
  }

  x86::Vec joined(const x86::Vec& low, const x86::Vec& high) override {
    const bool full = low.isYmm();
    x86::Vec r = fresh_of(full ? 64 : 32);
    cc.emit(full ? Ids::kIdVinsertf64x4 : Ids::kIdVinsertf32x4, r, named(low, full ? 64 : 32), high, asmjit::Imm(1));
    return r;
  }
  x86::Vec block(const x86::Vec& v, int i) override {
    if (i == 0) return v.xmm();
    x86::Vec r = cc.newXmm();
    cc.emit(Ids::kIdVextractf64x2, r, v, asmjit::Imm(i));
    return r;
  }
  x86::Vec blocks(const x86::Vec& a, const x86::Vec& b, bool odd) override {
    const bool full = a.isZmm();
    x86::Vec r = fresh_of(full ? 64 : 32);
    cc.emit(Ids::kIdVshuff32x4, r, a, b, asmjit::Imm(full ? (odd ? 0xdd : 0x88) : odd ? 3 : 0));
    return r;
  }
  x86::Vec load_row(DType t, const x86::Mem& m, const Mask* mask) override {
    const bool wide = size_of(t) == 8;
    x86::Vec v = fresh(wide);
    if (mask) cc.k(k(*mask)).z();
    cc.emit(load_id(t), v, m);
    return t == DType::kBFloat16 ? shift_left(false, v, 16) : v;
  }
  Mask load_bools(const x86::Mem& m, const Mask* mask) override {
    x86::Xmm row = cc.newXmm();
    if (mask)
      cc.k(k(*mask)).z().vmovdqu8(row, m);
    else if (lanes == 16)
      cc.vmovdqu8(row, m);
    else
      cc.vmovq(row, m);
    x86::KReg r = cc.newKw();
    cc.vptestmb(r, row, row);
    return r;
  }
  void store_row(DType t, const x86::Vec& v, const x86::Mem& m, const Mask* mask) override {
    if (t == DType::kFloat16) {
      if (mask) cc.k(k(*mask));
      cc.emit(Ids::kIdVcvtps2ph, m, v, asmjit::Imm(0));
      return;
    }
    x86::Vec from = t == DType::kBFloat16 ? shift_right(false, v, 16) : v;
    static const InstId kStores[] = {Ids::kIdVpmovdb, Ids::kIdVpmovdw, Ids::kIdVmovups, Ids::kIdVmovupd};
    if (mask) cc.k(k(*mask));
    cc.emit(kStores[shift_of(t)], m, from);
  }
  void store_bools(const Mask& v, const x86::Mem& m, const Mask* mask) override {
    uint8_t ones[16];
    memset(ones, 1, sizeof ones);
    x86::Xmm row = cc.newXmm();
    cc.k(k(v)).z().vmovdqu8(row, cc.newConst(asmjit::ConstPoolScope::kLocal, ones, sizeof ones));
    if (mask)
      cc.k(k(*mask)).vmovdqu8(m, row);
    else if (lanes == 16)
      cc.vmovdqu8(m, row);
    else
      cc.vmovq(m, row);
  }
  x86::Vec gather(DType t, const x86::Mem& base, const x86::Vec& indices, const Mask* mask) override {
    const bool wide = size_of(t) == 8;
    x86::Vec v = zero(wide);
    x86::KReg own = own_mask(mask);
    cc.k(own).emit(wide ? Ids::kIdVgatherqpd : Ids::kIdVgatherqps, v, at(base, indices, t));
    return v;
  }
  bool has_scatter() const override { return true; }
  void scatter(DType t, const x86::Vec& v, const x86::Mem& base, const x86::Vec& indices, const Mask* mask) override {
    x86::KReg own = own_mask(mask);
    cc.k(own).emit(size_of(t) == 8 ? Ids::kIdVscatterqpd : Ids::kIdVscatterqps, at(base, indices, t), v);
  }

 private:
  // Returns the lanes that a permutation takes, as a constant.
  x86::Vec chosen(const int (&lanes)[8], bool wide) {
    int64_t wide_ones[8];
    std::copy(lanes, lanes + 8, wide_ones);
    const void* data = wide ? static_cast<const void*>(wide_ones) : lanes;
    return unary(Ids::kIdVmovups, wide, cc.newConst(asmjit::ConstPoolScope::kLocal, data, wide ? 64 : 32));
  }
  static InstId load_id(DType t) {
    switch (t) {
      case DType::kFloat64:
      case DType::kInt64: return Ids::kIdVmovupd;
      case DType::kUInt8: return Ids::kIdVpmovzxbd;
      case DType::kInt8: return Ids::kIdVpmovsxbd;
      case DType::kInt16: return Ids::kIdVpmovsxwd;
      case DType::kFloat16: return Ids::kIdVcvtph2ps;
      case DType::kBFloat16: return Ids::kIdVpmovzxwd;
      default: return Ids::kIdVmovups;
    }
  }
  x86::Mem at(x86::Mem base, const x86::Vec& indices, DType t) {
    base.setIndex(indices.zmm(), uint32_t(shift_of(t)));
    return base;
  }
  // Returns a copy of the mask: gathers and scatters clear theirs.
  x86::KReg own_mask(const Mask* mask) {
    x86::KReg own = cc.newKw();
    if (mask)
      cc.kmovw(own, k(*mask));
    else
      cc.kxnorw(own, own, own);
    return own;
  }
  x86::Vec narrow(InstId id, const x86::Vec& v) {
    x86::Vec half = cc.newYmm();
    cc.emit(id, half, v.zmm());
    return lanes == 16 ? broadcast_lane0(half, false) : half;
  }
  x86::Vec widen(InstId id, const x86::Vec& v) { return unary(id, true, v.ymm()); }
  Mask compare(InstId id, int predicate, bool wide, const x86::Vec& a, const asmjit::Operand_& b, const Mask* only) {
    x86::KReg r = cc.newKw();
    if (only) cc.k(k(*only));
    cc.emit(id, r, a, b, asmjit::Imm(predicate));
    return widened(r, wide);
  }
  x86::KReg widened(const x86::KReg& m, bool wide) {
    if (!wide || lanes == 8) return m;
    x86::KReg r = cc.newKw();
    cc.kunpckbw(r, m, m);
    return r;
  }
};

}  // namespace

std::unique_ptr<Vectors> make_avx512(x86::Compiler& cc, int lanes) { return std::make_unique<Avx512>(cc, lanes); }

}  // namespace lutra::x64
