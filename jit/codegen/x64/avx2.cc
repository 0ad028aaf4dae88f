// AVX2 with FMA and F16C. Masks are 32-bit lanes of all ones or zero. 64-bit multiplications, comparisons and
// conversions that the set lacks are composed of other instructions. Small masked rows, and conversions of floats to
// int64, go lane by lane.
// Invariant: no instruction needs AVX-512 (code.cc checks this when it makes a listing).
#include "jit/codegen/x64/vectors.h"
#include "ops/core/error.h"

namespace lutra::x64 {
namespace {

using asmjit::Operand_;

// 0: composed of other instructions.
struct Row {
  InstId narrow, wide;
};
const Row kBinary[] = {
    {Ids::kIdVaddps, Ids::kIdVaddpd},
    {Ids::kIdVsubps, Ids::kIdVsubpd},
    {Ids::kIdVmulps, Ids::kIdVmulpd},
    {Ids::kIdVdivps, Ids::kIdVdivpd},
    {Ids::kIdVminps, Ids::kIdVminpd},
    {Ids::kIdVmaxps, Ids::kIdVmaxpd},
    {Ids::kIdVpaddd, Ids::kIdVpaddq},
    {Ids::kIdVpsubd, Ids::kIdVpsubq},
    {Ids::kIdVpmulld, 0},
    {Ids::kIdVpminsd, 0},
    {Ids::kIdVpmaxsd, 0},
    {Ids::kIdVpand, Ids::kIdVpand},
    {Ids::kIdVpor, Ids::kIdVpor},
    {Ids::kIdVpxor, Ids::kIdVpxor},
    {Ids::kIdVpmuludq, Ids::kIdVpmuludq},
};
InstId id_of(Vop op, bool wide) { return wide ? kBinary[int(op)].wide : kBinary[int(op)].narrow; }

const x86::Vec& vec(const Mask& m) { return m.as<x86::Vec>(); }

class Avx2 final : public Vectors {
 public:
  Avx2(x86::Compiler& compiler, int lane_count) : Vectors(compiler, lane_count, 32) {}

  std::unique_ptr<Vectors> halved() const override { return make_avx2(cc, lanes / 2); }
  asmjit::Operand constant(bool wide, uint64_t pattern) override {
    uint64_t row[4];
    for (uint64_t& r : row) r = wide ? pattern : pattern << 32 | uint32_t(pattern);
    return cc.newConst(asmjit::ConstPoolScope::kLocal, row, size_t(size(wide)));
  }
  asmjit::Operand repeated(const x86::Mem& m, bool wide) override { return broadcast_memory(m, wide); }
  x86::Vec zero(bool wide) override {
    x86::Vec r = fresh(wide);
    cc.emit(Ids::kIdVpxor, r, r, r);
    return r;
  }
  x86::Vec broadcast(const x86::Gp& r, bool wide) override {
    x86::Xmm one = cc.newXmm();
    if (wide)
      cc.vmovq(one, r.r64());
    else
      cc.vmovd(one, r.r32());
    return broadcast_lane0(one, wide);
  }

  x86::Vec binary(Vop op, bool wide, const x86::Vec& a, const Operand_& b) override {
    if (InstId id = id_of(op, wide)) return Vectors::binary(id, wide, a, b);
    if (op == Vop::kMulI) return multiply(a, in_register(b, true));
    LUTRA_CHECK(op == Vop::kMinI || op == Vop::kMaxI);
    x86::Vec other = in_register(b, true);
    x86::Vec greater = Vectors::binary(Ids::kIdVpcmpgtq, true, a, other);
    return op == Vop::kMaxI ? pick(true, greater, a, other) : pick(true, greater, other, a);
  }
  void binary_into(Vop op, bool wide, const x86::Vec& dst, const x86::Vec& a, const Operand_& b,
                   const Mask* mask) override {
    const InstId id = id_of(op, wide);
    if (id && !mask) {
      cc.emit(id, dst, a, b);
      return;
    }
    x86::Vec r = binary(op, wide, a, b);
    if (mask)
      move_where(wide, *mask, dst, r);
    else
      cc.emit(Ids::kIdVmovaps, dst, r);
  }
  x86::Vec exclusive_or(bool wide, const x86::Vec& a, const x86::Vec& b, const x86::Vec& c) override {
    return binary(Vop::kXor, wide, binary(Vop::kXor, wide, a, b), c);
  }
  x86::Vec with_bits(bool wide, const x86::Vec& a, const x86::Vec& b, uint64_t pattern) override {
    return binary(Vop::kOr, wide, a, binary(Vop::kAnd, wide, b, constant(wide, pattern)));
  }
  x86::Vec abs_int(bool wide, const Operand_& a) override {
    if (!wide) return unary(Ids::kIdVpabsd, false, a);
    x86::Vec v = in_register(a, true), sign = Vectors::binary(Ids::kIdVpcmpgtq, true, zero(true), v);
    return Vectors::binary(Ids::kIdVpsubq, true, Vectors::binary(Ids::kIdVpxor, true, v, sign), sign);
  }
  x86::Vec round(bool wide, const Operand_& a, Rounding how) override {
    return unary_imm(wide ? Ids::kIdVroundpd : Ids::kIdVroundps, wide, a, how);
  }
  x86::Vec convert(Conv how, const x86::Vec& v) override {
    switch (how) {
      case Conv::kI32ToI64: return unary(Ids::kIdVpmovsxdq, true, v.xmm());
      case Conv::kI32ToF32: return unary(Ids::kIdVcvtdq2ps, false, v);
      case Conv::kI32ToF64: return unary(Ids::kIdVcvtdq2pd, true, v.xmm());
      case Conv::kI64ToI32: return low_halves(v);
      case Conv::kI64ToF32: return int64_to_single(v);
      case Conv::kI64ToF64: return int64_to_double(v);
      case Conv::kF32ToI32: return unary(Ids::kIdVcvttps2dq, false, v);
      case Conv::kF32ToI64: return to_int64(v, false);
      case Conv::kF32ToF64: return unary(Ids::kIdVcvtps2pd, true, v.xmm());
      case Conv::kF64ToI32: return narrow(Ids::kIdVcvttpd2dq, v);
      case Conv::kF64ToI64: return to_int64(v, true);
      case Conv::kF64ToF32: return narrow(Ids::kIdVcvtpd2ps, v);
    }
    fail_internal("codegen: no such conversion");
  }
  x86::Vec blend(bool wide, const Mask& mask, const Operand_& a, const x86::Vec& b) override {
    return pick(wide, in_lanes(mask, wide), a, b);
  }
  void move_where(bool wide, const Mask& mask, const x86::Vec& dst, const x86::Vec& src) override {
    cc.emit(wide ? Ids::kIdVblendvpd : Ids::kIdVblendvps, dst, dst, src, in_lanes(mask, wide));
  }
  x86::Vec constant_where(bool wide, const Mask& mask, uint64_t pattern) override {
    return Vectors::binary(Ids::kIdVpand, wide, in_lanes(mask, wide), constant(wide, pattern));
  }
  x86::Vec rotate(const x86::Vec& v, bool wide, int by) override {
    x86::Vec r = fresh(wide);
    if (by * (wide ? 8 : 4) == 16)
      cc.emit(Ids::kIdVextracti128, r.xmm(), v.ymm(), asmjit::Imm(1));
    else
      cc.emit(Ids::kIdVpshufd, r, v, asmjit::Imm(wide || by == 2 ? 0x4e : 0xb1));
    return r;
  }

  x86::Vec turned(const x86::Vec& a, bool wide) override {
    return unary_imm(wide ? Ids::kIdVpermpd : Ids::kIdVpermilps, wide, a, 0x1b);
  }
  x86::Vec seconds(const x86::Vec& a, const x86::Vec& b, bool wide) override {
    x86::Vec r = fresh(wide);
    cc.emit(wide ? Ids::kIdVshufpd : Ids::kIdVshufps, r, a, b, asmjit::Imm(wide ? 0xa : 0xd8));
    return wide ? unary_imm(Ids::kIdVpermpd, wide, r, 0xd8) : r;
  }

  Mask compare_floats(Cmp c, bool wide, const x86::Vec& a, const Operand_& b, const Mask* only) override {
    static const int kPredicate[] = {0x00, 0x04, 0x11, 0x12, 0x1e, 0x1d, 0x03};
    x86::Vec r = fresh(wide);
    cc.emit(wide ? Ids::kIdVcmppd : Ids::kIdVcmpps, r, a, b, asmjit::Imm(kPredicate[int(c)]));
    return among(as_mask(r, wide), only);
  }
  Mask compare_ints(Cmp c, bool wide, const x86::Vec& a, const Operand_& b, const Mask* only) override {
    const InstId equal = wide ? Ids::kIdVpcmpeqq : Ids::kIdVpcmpeqd,
                 greater = wide ? Ids::kIdVpcmpgtq : Ids::kIdVpcmpgtd;
    x86::Vec r;
    switch (c) {
      case Cmp::kEq:
      case Cmp::kNe: r = Vectors::binary(equal, wide, a, b); break;
      case Cmp::kGt:
      case Cmp::kLe: r = Vectors::binary(greater, wide, a, b); break;
      default: r = Vectors::binary(greater, wide, in_register(b, wide), a);
    }
    const bool inverse = c == Cmp::kNe || c == Cmp::kLe || c == Cmp::kGe;
    Mask m = as_mask(r, wide);
    return among(inverse ? mask_not(m) : m, only);
  }
  Mask compare_unsigned_ge(const x86::Vec& a, const Operand_& b, const Mask* only) override {
    const asmjit::Operand sign = constant(true, 1ull << 63);
    x86::Vec x = Vectors::binary(Ids::kIdVpxor, true, a, sign);
    return compare_ints(Cmp::kGe, true, x, Vectors::binary(Ids::kIdVpxor, true, in_register(b, true), sign), only);
  }
  Mask test_bits(bool wide, const x86::Vec& a, const Operand_& b) override {
    x86::Vec common = Vectors::binary(Ids::kIdVpand, wide, a, b);
    return compare_ints(Cmp::kNe, wide, common, zero(wide), nullptr);
  }

  Mask fresh_mask() override { return fresh(false); }
  void mask_op_into(MaskOp op, const Mask& dst, const Mask& a, const Mask& b) override {
    static const InstId kOps[] = {Ids::kIdVpand, Ids::kIdVpor, Ids::kIdVpxor, Ids::kIdVpcmpeqd, Ids::kIdVpandn};
    cc.emit(kOps[int(op)], dst, a, b);
  }
  Mask mask_not(const Mask& a) override { return Vectors::binary(Ids::kIdVpxor, false, vec(a), constant(false, ~0u)); }
  Mask mask_constant(bool on) override {
    x86::Vec r = fresh(false);
    cc.emit(on ? Ids::kIdVpcmpeqd : Ids::kIdVpxor, r, r, r);
    return r;
  }
  Mask mask_broadcast(const x86::Gp& r) override { return broadcast(r, false); }
  std::vector<Mask> first_lanes(const x86::Gp& count, int most, int vectors, int per_vector) override {
    x86::Gp left = cc.newInt64(), limit = cc.newInt64();
    cc.mov(left, count);
    cc.mov(limit, most);
    cc.cmp(left, limit);
    cc.cmovg(left, limit);
    x86::Vec n = broadcast(left, false);
    std::vector<Mask> masks;
    for (int u = 0; u < vectors; u++) {
      int32_t row[8];
      for (int i = 0; i < 8; i++) row[i] = u * per_vector + i;
      const asmjit::Operand first = cc.newConst(asmjit::ConstPoolScope::kLocal, row, size_t(size(false)));
      masks.push_back(Vectors::binary(Ids::kIdVpcmpgtd, false, n, first));
    }
    return masks;
  }
  void mask_bits(const x86::Gp& to, const Mask& m) override {
    x86::Vec own = copy(vec(m), false);
    cc.emit(Ids::kIdVmovmskps, to.r32(), own);
  }
  void jump_if_any(const Mask& m, const asmjit::Label& to) override {
    cc.emit(Ids::kIdVptest, m, m);
    cc.jnz(to);
  }

  x86::Vec joined(const x86::Vec& low, const x86::Vec& high) override {
    x86::Vec r = fresh_of(32);
    cc.emit(Ids::kIdVinsertf128, r, low.ymm(), high, asmjit::Imm(1));
    return r;
  }
  x86::Vec block(const x86::Vec& v, int i) override {
    if (i == 0) return v.xmm();
    x86::Vec r = cc.newXmm();
    cc.emit(Ids::kIdVextractf128, r, v, asmjit::Imm(i));
    return r;
  }
  x86::Vec blocks(const x86::Vec& a, const x86::Vec& b, bool odd) override {
    x86::Vec r = fresh_of(32);
    cc.emit(Ids::kIdVperm2f128, r, a, b, asmjit::Imm(odd ? 0x31 : 0x20));
    return r;
  }
  x86::Vec load_row(DType t, const x86::Mem& m, const Mask* mask) override {
    const bool wide = size_of(t) == 8;
    x86::Vec v = fresh(wide);
    if (mask && size_of(t) >= 4) {
      cc.emit(wide ? Ids::kIdVmaskmovpd : Ids::kIdVmaskmovps, v, in_lanes(*mask, wide), m);
      return v;
    }
    cc.emit(load_id(t), v, mask ? row_under_mask(t, m, *mask) : m);
    return t == DType::kBFloat16 ? shift_left(false, v, 16) : v;
  }
  Mask load_bools(const x86::Mem& m, const Mask* mask) override {
    x86::Vec v = load_row(DType::kUInt8, m, mask);
    return Vectors::binary(Ids::kIdVpcmpgtd, false, v, zero(false));
  }
  void store_row(DType t, const x86::Vec& v, const x86::Mem& m, const Mask* mask) override {
    const bool wide = size_of(t) == 8;
    if (size_of(t) >= 4) {
      if (mask)
        cc.emit(wide ? Ids::kIdVmaskmovpd : Ids::kIdVmaskmovps, m, in_lanes(*mask, wide), v);
      else
        cc.emit(Ids::kIdVmovups, m, v);
      return;
    }
    x86::Vec row = packed(t, v);
    const int n = lanes * int(size_of(t));
    if (mask) {
      x86::Mem stack = cc.newStack(16, 16);
      cc.emit(Ids::kIdVmovups, stack, row);
      return copy_lanes(t, stack, m, *mask);
    }
    cc.emit(n == 16 ? Ids::kIdVmovups : n == 8 ? Ids::kIdVmovq : Ids::kIdVmovd, m, row);
  }
  void store_bools(const Mask& v, const x86::Mem& m, const Mask* mask) override {
    store_row(DType::kUInt8, constant_where(false, v, 1), m, mask);
  }
  x86::Vec gather(DType t, const x86::Mem& base, const x86::Vec& indices, const Mask* mask) override {
    const bool wide = size_of(t) == 8;
    x86::Vec v = zero(wide);
    x86::Vec own = mask ? copy(in_lanes(*mask, wide), wide) : fresh(wide);
    if (!mask) cc.emit(Ids::kIdVpcmpeqd, own, own, own);
    x86::Mem at = base;
    at.setIndex(indices.ymm(), uint32_t(shift_of(t)));
    cc.emit(wide ? Ids::kIdVgatherqpd : Ids::kIdVgatherqps, v, at, own);
    return v;
  }
  bool has_scatter() const override { return false; }
  void scatter(DType, const x86::Vec&, const x86::Mem&, const x86::Vec&, const Mask*) override {
    fail_internal("codegen: AVX2 has no scatter");
  }

 private:
  static InstId load_id(DType t) {
    switch (t) {
      case DType::kUInt8: return Ids::kIdVpmovzxbd;
      case DType::kInt8: return Ids::kIdVpmovsxbd;
      case DType::kInt16: return Ids::kIdVpmovsxwd;
      case DType::kFloat16: return Ids::kIdVcvtph2ps;
      case DType::kBFloat16: return Ids::kIdVpmovzxwd;
      default: return Ids::kIdVmovups;
    }
  }
  x86::Vec in_register(const Operand_& o, bool wide) {
    return o.isMem() ? unary(Ids::kIdVmovups, wide, o) : o.as<x86::Vec>();
  }
  // lanes ? a : b
  x86::Vec pick(bool wide, const x86::Vec& where, const Operand_& a, const x86::Vec& b) {
    x86::Vec r = fresh(wide);
    cc.emit(wide ? Ids::kIdVblendvpd : Ids::kIdVblendvps, r, b, a, where);
    return r;
  }
  // in_lanes returns a mask as lanes of 32 or 64 bits; as_mask converts such lanes back.
  x86::Vec in_lanes(const Mask& m, bool wide) { return wide ? unary(Ids::kIdVpmovsxdq, true, vec(m).xmm()) : vec(m); }
  Mask as_mask(const x86::Vec& v, bool wide) { return wide ? low_halves(v) : v; }
  Mask among(const Mask& m, const Mask* only) { return only ? mask_op(MaskOp::kAnd, m, *only) : m; }

  // Returns the low 32 bits of 64-bit lanes.
  x86::Vec low_halves(const x86::Vec& v) {
    if (lanes == 8) return broadcast_lane0(v, false);
    x86::Vec high = cc.newXmm(), r = cc.newXmm();
    cc.emit(Ids::kIdVextracti128, high, v.ymm(), asmjit::Imm(1));
    cc.emit(Ids::kIdVshufps, r, v.xmm(), high, asmjit::Imm(0x88));
    return r;
  }
  x86::Vec narrow(InstId id, const x86::Vec& v) {
    x86::Vec half = cc.newXmm();
    cc.emit(id, half, v.ymm());
    return lanes == 8 ? broadcast_lane0(half, false) : half;
  }

  // a * b = (low * low) + ((low * high + high * low) << 32)
  x86::Vec multiply(const x86::Vec& a, const x86::Vec& b) {
    x86::Vec cross = Vectors::binary(Ids::kIdVpmulld, true, a, unary_imm(Ids::kIdVpshufd, true, b, 0xb1));
    cross = Vectors::binary(Ids::kIdVpaddd, true, cross, shift_left(true, cross, 32));
    cross = Vectors::binary(Ids::kIdVpand, true, cross, constant(true, 0xffffffff00000000ull));
    return Vectors::binary(Ids::kIdVpaddq, true, Vectors::binary(Ids::kIdVpmuludq, true, a, b), cross);
  }

  // Puts the upper 16 and the lower 48 bits into mantissas of doubles (with 3*2^67 and 2^52 added). Their sum rounds
  // once.
  x86::Vec int64_to_double(const x86::Vec& v) {
    x86::Vec high = unary_imm(Ids::kIdVpsrad, true, v, 16);
    high = Vectors::binary(Ids::kIdVpand, true, high, constant(true, 0xffffffff00000000ull));
    high = Vectors::binary(Ids::kIdVpaddq, true, high, constant(true, bits_of(442721857769029238784.0)));
    x86::Vec low = fresh(true);
    cc.emit(Ids::kIdVpblendw, low, v, constant(true, bits_of(4503599627370496.0)), asmjit::Imm(0x88));
    high = Vectors::binary(Ids::kIdVsubpd, true, high, constant(true, bits_of(442726361368656609280.0)));
    return Vectors::binary(Ids::kIdVaddpd, true, low, high);
  }
  // A value that a double cannot represent is first rounded to odd at bit 11. So the second rounding is exact.
  x86::Vec int64_to_single(const x86::Vec& v) {
    const asmjit::Operand low_bits = constant(true, 0x7ff);
    x86::Vec sticky = Vectors::binary(Ids::kIdVpand, true, v, low_bits);
    sticky = Vectors::binary(Ids::kIdVpaddq, true, sticky, low_bits);
    sticky = Vectors::binary(Ids::kIdVpor, true, sticky, v);
    sticky = Vectors::binary(Ids::kIdVpand, true, sticky, constant(true, ~0x7ffull));
    x86::Vec high = Vectors::binary(Ids::kIdVpcmpgtq, true, v, constant(true, (1ull << 53) - 1));
    x86::Vec low = Vectors::binary(Ids::kIdVpcmpgtq, true, materialise(true, uint64_t(-(1ll << 53))), v);
    x86::Vec large = Vectors::binary(Ids::kIdVpor, true, high, low);
    return narrow(Ids::kIdVcvtpd2ps, int64_to_double(pick(true, large, sticky, v)));
  }
  x86::Vec to_int64(const x86::Vec& v, bool from_wide) {
    x86::Mem from = cc.newStack(32, 32), to = cc.newStack(32, 32);
    cc.emit(Ids::kIdVmovups, from, v);
    for (int i = 0; i < 4; i++) {
      x86::Gp r = cc.newInt64();
      x86::Mem a = from.cloneAdjusted(i * (from_wide ? 8 : 4)), b = to.cloneAdjusted(i * 8);
      a.setSize(from_wide ? 8 : 4), b.setSize(8);
      cc.emit(from_wide ? Ids::kIdVcvttsd2si : Ids::kIdVcvttss2si, r, a);
      cc.mov(b, r);
    }
    return unary(Ids::kIdVmovups, true, to);
  }
  static uint64_t bits_of(double d) {
    uint64_t u;
    memcpy(&u, &d, 8);
    return u;
  }

  // Converts lanes to elements of t, in the low bytes of an xmm.
  x86::Vec packed(DType t, const x86::Vec& v) {
    if (t == DType::kFloat16) return to_half(v);
    x86::Vec from = t == DType::kBFloat16 ? shift_right(false, v, 16) : v;
    const bool byte = size_of(t) == 1;
    int8_t order[32];
    for (int i = 0; i < 32; i++) {
      const int at = i % 16, element = byte ? at : at / 2;
      order[i] = element < 4 ? int8_t(4 * element + (byte ? 0 : at % 2)) : int8_t(-1);
    }
    from = Vectors::binary(Ids::kIdVpshufb, false, from,
                           cc.newConst(asmjit::ConstPoolScope::kLocal, order, size_t(size(false))));
    if (lanes == 4) return from;
    x86::Vec high = cc.newXmm(), r = cc.newXmm();
    cc.emit(Ids::kIdVextracti128, high, from.ymm(), asmjit::Imm(1));
    cc.emit(byte ? Ids::kIdVpunpckldq : Ids::kIdVpunpcklqdq, r, from.xmm(), high);
    return r;
  }
  x86::Mem row_under_mask(DType t, const x86::Mem& m, const Mask& mask) {
    x86::Mem row = cc.newStack(16, 16);
    x86::Xmm none = cc.newXmm();
    cc.vpxor(none, none, none);
    cc.vmovups(row, none);
    copy_lanes(t, m, row, mask);
    return row;
  }
  void copy_lanes(DType t, const x86::Mem& from, const x86::Mem& to, const Mask& mask) {
    const int n = int(size_of(t));
    x86::Gp bits = cc.newInt32();
    mask_bits(bits, mask);
    for (int lane = 0; lane < lanes; lane++) {
      const asmjit::Label skip = cc.newLabel();
      x86::Gp r = cc.newInt32();
      x86::Mem a = from.cloneAdjusted(lane * n), b = to.cloneAdjusted(lane * n);
      a.setSize(uint32_t(n)), b.setSize(uint32_t(n));
      cc.test(bits, 1 << lane);
      cc.jz(skip);
      cc.movzx(r, a);
      cc.mov(b, n == 1 ? x86::Gp(r.r8()) : x86::Gp(r.r16()));
      cc.bind(skip);
    }
  }
};

}  // namespace

std::unique_ptr<Vectors> make_avx2(x86::Compiler& cc, int lanes) { return std::make_unique<Avx2>(cc, lanes); }

}  // namespace lutra::x64
