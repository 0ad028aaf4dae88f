// Addresses, loads and stores: uniform, rows of lanes, gathers and scatters, each under the group's mask.
#include <algorithm>
#include <cstddef>

#include "jit/codegen/x64/emitter.h"
#include "jit/loop/abi.h"
#include "ops/core/error.h"
#include "ops/core/half.h"

namespace lutra::x64 {

namespace {
bool is_zero(const Coef& c) { return c == Coef::of(0); }
bool is_one(const Coef& c) { return c == Coef::of(1); }
// A loop that only writes fills whole lines of memory. They need not be read first, but a prefetch would read them.
bool only_writes(const Loop& l) {
  return std::none_of(l.body.begin(), l.body.end(), [](const Stmt& s) {
    const auto* in = std::get_if<Inst>(&s);
    return !in || in->op == Op::kLoad;
  });
}
}  // namespace

x86::Mem KernelEmitter::head(size_t offset) const { return x86::qword_ptr(block_, int32_t(offset)); }
x86::Mem KernelEmitter::pointer_arg(int32_t ptr) const { return head(sizeof(BlockHead) + 8 * size_t(ptr)); }
x86::Mem KernelEmitter::int_arg(int32_t arg) const {
  return head(sizeof(BlockHead) + 8 * (k_.params.size() + size_t(arg)));
}
x86::Mem KernelEmitter::scalar_arg(int32_t arg) const {
  return head(sizeof(BlockHead) + 8 * (k_.params.size() + size_t(k_.ints) + size_t(arg)));
}

void KernelEmitter::multiply(const x86::Gp& r, const Coef& by) {
  if (by.arg >= 0) {
    cc_.imul(r, int_arg(by.arg));
  } else if (by.literal == int32_t(by.literal)) {
    if (by.literal != 1) cc_.imul(r, r, by.literal);
  } else {
    x86::Gp t = cc_.newInt64();
    cc_.mov(t, by.literal);
    cc_.imul(r, t);
  }
}

// Returns true if the term's uniform part is known here.
bool KernelEmitter::known(const Access::Term& t) const {
  if (!t.is_value) return loop_live_[size_t(t.id)];
  return !values_[size_t(t.id)].empty() && !varying_[size_t(t.id)];
}

// Returns a uniform int64 value. The register must not be written to.
x86::Gp KernelEmitter::number_of(int32_t id) {
  for (size_t s = scopes_.size(); s-- > 0;) {
    for (const auto& n : scopes_[s].numbers) {
      if (n.first == id) return n.second;
    }
  }
  const x86::Gp r = cc_.newInt64();
  v_.lane0(r, reg(DType::kInt64, value(id, 0)), true);
  scopes_.back().numbers.emplace_back(id, r);
  return r;
}

// Returns a term's uniform part in elements. The register must not be written to.
x86::Gp KernelEmitter::element_index(const Access::Term& t) {
  x86::Gp r;
  if (t.is_value) {
    const x86::Gp number = number_of(t.id);
    if (is_one(t.stride)) return number;
    r = cc_.newInt64();
    cc_.mov(r, number);
    multiply(r, t.stride);
    return r;
  }
  if (is_one(t.stride)) return loop_regs_[size_t(t.id)];
  for (auto& i : scopes_.back().indices) {
    if (i.loop == t.id && i.stride == t.stride) return i.reg;
  }
  r = cc_.newInt64();
  cc_.mov(r, loop_regs_[size_t(t.id)]);
  multiply(r, t.stride);
  scopes_.back().indices.push_back({t.id, t.stride, r});
  return r;
}

x86::Gp KernelEmitter::first_base(const Access& a, DType type) {
  x86::Gp r = cc_.newIntPtr();
  cc_.mov(r, pointer_arg(a.ptr));
  if (a.offset.arg >= 0) {
    x86::Gp o = cc_.newInt64();
    cc_.mov(o, int_arg(a.offset.arg));
    cc_.lea(r, x86::ptr(r, o, uint32_t(shift_of(type))));
  } else if (a.offset.literal != 0) {
    x86::Gp o = cc_.newInt64();
    cc_.mov(o, a.offset.literal);
    cc_.lea(r, x86::ptr(r, o, uint32_t(shift_of(type))));
  }
  return r;
}

KernelEmitter::Base KernelEmitter::base_of(const Access& a) const {
  for (size_t i = bound_.size(); i-- > 0;) {
    if (bound_[i].first == &a) return bound_[i].second;
  }
  return {x86::Gp(), std::vector<bool>(a.terms.size(), false)};
}

// Returns a base with the same sum that was computed before, for this or another access.
std::optional<KernelEmitter::Base> KernelEmitter::find_base(const Access& a, const std::vector<bool>& bound) const {
  auto same = [](const Access::Term& x, const Access::Term& y) {
    return x.is_value == y.is_value && x.id == y.id && x.stride == y.stride;
  };
  for (size_t s = scopes_.size(); s-- > 0;) {
    for (const BaseKey& k : scopes_[s].bases) {
      if (k.ptr != a.ptr || !(k.offset == a.offset)) continue;
      size_t at = 0;
      bool equal = true;
      for (size_t t = 0; t < a.terms.size() && equal; t++) {
        if (bound[t]) equal = at < k.terms.size() && same(k.terms[at++], a.terms[t]);
      }
      if (equal && at == k.terms.size()) return Base{k.reg, bound};
    }
  }
  return std::nullopt;
}

// Returns the access with all terms that are known here in its base.
KernelEmitter::Base KernelEmitter::bind(const Access& a, DType type) {
  Base base = base_of(a);
  std::vector<bool> bound = base.bound;
  for (size_t t = 0; t < a.terms.size(); t++) bound[t] = bound[t] || known(a.terms[t]) || is_zero(a.terms[t].stride);
  if (base.reg.isValid() && bound == base.bound) return base;
  if (auto found = find_base(a, bound)) return *found;
  x86::Gp r = base.reg.isValid() ? base.reg : first_base(a, type);
  std::vector<Access::Term> terms;
  for (size_t t = 0; t < a.terms.size(); t++) {
    if (!bound[t]) continue;
    terms.push_back(a.terms[t]);
    if (base.bound[t] || is_zero(a.terms[t].stride)) continue;
    x86::Gp sum = cc_.newIntPtr();
    cc_.lea(sum, x86::ptr(r, element_index(a.terms[t]), uint32_t(shift_of(type))));
    r = sum;
  }
  scopes_.back().bases.push_back({a.ptr, a.offset, terms, r});
  return {r, bound};
}

const x86::Mem* KernelEmitter::tile_of(const Inst& in) const {
  for (const auto& t : tiles_) {
    if (t.first == &in) return &t.second;
  }
  return nullptr;
}

void KernelEmitter::bind_accesses(const Loop& l) {
  for_each_inst(l.body, [&](const Inst& in) {
    if (!has_access(in.op) || tile_of(in)) return;
    Base b = bind(in.access, in.type);
    bound_.emplace_back(&in.access, b);
  });
}

x86::Vec KernelEmitter::lane_indices(int32_t loop_id, const Coef& stride, int u) {
  for (size_t s = scopes_.size(); s-- > 0;) {
    for (const LaneKey& k : scopes_[s].lane_indices) {
      if (k.loop == loop_id && k.stride == stride && k.vector == u) return k.reg;
    }
  }
  x86::Vec r = v_.unary(Ids::kIdVmovups, true, v_.iota(int64_t(u) * v_.lanes));
  if (stride.arg >= 0) {
    r = v_.binary(Vop::kMulI, true, r, v_.repeated(int_arg(stride.arg), true));
  } else if (!is_one(stride)) {
    r = v_.binary(Vop::kMulI, true, r, v_.constant(true, uint64_t(stride.literal)));
  }
  scopes_.back().lane_indices.push_back({loop_id, stride, u, r});
  return r;
}

void KernelEmitter::hoist_lane_indices(const Loop& l, int vectors) {
  for_each_inst(l.body, [&](const Inst& in) {
    if (!has_access(in.op)) return;
    for (const Access::Term& t : in.access.terms) {
      if (t.is_value || t.id != l.id || is_zero(t.stride) || is_one(t.stride)) continue;
      for (int u = 0; u < vectors; u++) lane_indices(l.id, t.stride, u);
    }
  });
}

bool KernelEmitter::varies(const Access& a, const LaneGroup& group) const {
  if (!group.lane_loop) return false;
  for (const Access::Term& t : a.terms) {
    if (is_zero(t.stride)) continue;
    if (t.is_value ? varying_[size_t(t.id)] : t.id == group.lane_loop->id) return true;
  }
  return false;
}

// Returns the distance of each lane's element from the first one's base.
x86::Vec KernelEmitter::lane_offsets(const Access& a, const LaneGroup& group, int u) {
  x86::Vec lanes;
  auto add_lanes = [&](const x86::Vec& v) { lanes = lanes.isValid() ? v_.binary(Vop::kAddI, true, lanes, v) : v; };
  for (const Access::Term& t : a.terms) {
    if (is_zero(t.stride)) continue;
    if (t.is_value && varying_[size_t(t.id)]) {
      x86::Vec v = reg(DType::kInt64, value(t.id, u));
      if (t.stride.arg >= 0)
        v = v_.binary(Vop::kMulI, true, v, v_.repeated(int_arg(t.stride.arg), true));
      else if (!is_one(t.stride))
        v = v_.binary(Vop::kMulI, true, v, v_.constant(true, uint64_t(t.stride.literal)));
      add_lanes(v);
    } else if (!t.is_value && t.id == group.lane_loop->id) {
      add_lanes(lane_indices(t.id, t.stride, u));
    }
  }
  return lanes;
}

KernelEmitter::Place KernelEmitter::place(const Access& a, DType type, const LaneGroup& group, int u) {
  const Base base = base_of(a);
  x86::Gp at = base.reg.isValid() ? base.reg : first_base(a, type);
  x86::Gp index;
  bool row = true, owned = false;
  int lane_terms = 0;
  const Coef* step = nullptr;
  for (size_t i = 0; i < a.terms.size(); i++) {
    const Access::Term& t = a.terms[i];
    if (is_zero(t.stride)) continue;
    if (t.is_value && varying_[size_t(t.id)]) {
      row = false;
      lane_terms++;
      continue;
    }
    if (group.lane_loop && !t.is_value && t.id == group.lane_loop->id) {
      lane_terms++;
      row &= is_one(t.stride);
      step = &t.stride;
    }
    if (base.bound[i]) continue;
    x86::Gp e = element_index(t);
    if (!index.isValid()) {
      index = e;
    } else {
      x86::Gp sum = owned ? index : cc_.newInt64();
      if (!owned) cc_.mov(sum, index);
      cc_.add(sum, e);
      index = sum, owned = true;
    }
  }
  Place p;
  p.mem = index.isValid() ? x86::ptr(at, index, uint32_t(shift_of(type))) : x86::ptr(at);
  p.kind = lane_terms == 0 ? Place::kUniform : row && lane_terms == 1 ? Place::kRow : Place::kLanes;
  if (p.kind == Place::kRow) p.mem.addOffset(int64_t(u) * v_.lanes * int64_t(size_of(type)));
  if (p.kind != Place::kLanes) return p;
  if (index.isValid()) {
    x86::Gp sum = cc_.newIntPtr();
    cc_.lea(sum, p.mem);
    at = sum;
  }
  p.mem = x86::ptr(at);
  p.indices = lane_offsets(a, group, u);
  if (lane_terms == 1) p.step = step;
  return p;
}

// Prefetches what a later iteration reads or writes. A processor's own prefetches come too late where much is computed,
// and a store waits for its line. A processor without prefetchw takes it for a nop. `from`: bytes from the group's
// first element to the vector. The next iteration of a nested loop, of a tile or of an index is elsewhere.
void KernelEmitter::fetch_ahead(const Inst& in, const x86::Mem& row, const LaneGroup& group, int64_t from) {
  constexpr int64_t kLine = 64, kAhead = 16 * kLine;
  const auto& terms = in.access.terms;
  const bool indexed = std::any_of(terms.begin(), terms.end(), [](const Access::Term& t) { return t.is_value; });
  if (indexed || group.nested || !tiles_.empty() || from % kLine != 0) return;
  if (in.op != Op::kLoad && group.lane_loop && only_writes(*group.lane_loop)) return;
  x86::Mem m = row;
  m.addOffset(kAhead);
  if (in.op == Op::kLoad)
    cc_.prefetcht0(m);
  else
    cc_.prefetchw(m);
}
KernelEmitter::Place KernelEmitter::place_ahead(const Inst& in, const LaneGroup& group, int u) {
  const Place p = place(in.access, in.type, group, u);
  if (p.kind == Place::kRow) fetch_ahead(in, p.mem, group, int64_t(u) * v_.lanes * int64_t(size_of(in.type)));
  return p;
}

Value KernelEmitter::load(DType t, const Place& p, const LaneGroup& group, int u) {
  switch (p.kind) {
    case Place::kUniform: return load_uniform(t, p.mem);
    case Place::kRow: return load_row(t, p.mem, group.mask(u));
    case Place::kLanes: break;
  }
  LUTRA_CHECK(v_.lanes == v_.wide_lanes(), "a gather of narrow lanes");
  if (p.step && !group.mask(u) && !is_mask(t)) return load_steps(t, p, u);
  if (is_small(t)) return gather_small(t, p, group.mask(u));
  if (!group.mask(u)) return gather_all(t, p);
  Value v;
  v.reg = v_.gather(t, p.mem, p.indices, group.mask(u));
  return v;
}

// Loads all lanes of an access with one stride. A gather takes as long as ten rows. So for stride -1 it reverses the
// row that ends with the first lane, and for stride 2 it takes the elements from two rows.
Value KernelEmitter::load_steps(DType t, const Place& p, int u) {
  const bool wide = is_wide(t);
  const int64_t lanes = v_.lanes, size = int64_t(size_of(t));
  Value v;
  v.reg = v_.fresh(wide);
  const asmjit::Label done = cc_.newLabel();
  const auto where = [&](int64_t step, const std::function<x86::Vec()>& of) {
    if (p.step->arg < 0 && p.step->literal != step) return;
    const asmjit::Label other = cc_.newLabel();
    if (p.step->arg >= 0) {
      cc_.cmp(int_arg(p.step->arg), step);
      cc_.jne(other);
    }
    cc_.emit(Ids::kIdVmovaps, v.reg, of());
    cc_.jmp(done);
    cc_.bind(other);
  };
  const auto row = [&](int64_t first) {
    x86::Mem m = p.mem;
    m.addOffset(first * size);
    return reg(t, load_row(t, m, nullptr));
  };
  where(-1, [&] { return v_.turned(row(-(u + 1) * lanes + 1), wide); });
  // The last element of the second row is the last lane's, since the element after it need not exist.
  where(2, [&] { return v_.seconds(row(2 * u * lanes), row((2 * u + 1) * lanes - 1), wide); });
  cc_.emit(Ids::kIdVmovaps, v.reg, reg(t, is_small(t) ? gather_small(t, p, nullptr) : gather_all(t, p)));
  cc_.bind(done);
  return v;
}

Value KernelEmitter::load_uniform(DType t, const x86::Mem& m) {
  Value v;
  x86::Gp r = cc_.newInt32();
  x86::Mem sized = m;
  sized.setSize(uint32_t(size_of(t)));
  switch (t) {
    case DType::kFloat32:
    case DType::kInt32: v.reg = v_.unary(Ids::kIdVbroadcastss, false, sized); return v;
    case DType::kFloat64:
    case DType::kInt64: v.reg = v_.unary(Ids::kIdVbroadcastsd, true, sized); return v;
    case DType::kFloat16: {
      cc_.movzx(r, sized);
      x86::Xmm one = cc_.newXmm();
      cc_.vmovd(one, r);
      cc_.vcvtph2ps(one, one);
      v.reg = v_.broadcast_lane0(one, false);
      return v;
    }
    case DType::kBFloat16:
      cc_.movzx(r, sized);
      cc_.shl(r, 16);
      break;
    case DType::kUInt8: cc_.movzx(r, sized); break;
    case DType::kInt8:
    case DType::kInt16: cc_.movsx(r, sized); break;
    default:
      LUTRA_CHECK(is_bool(t));
      cc_.movzx(r, sized);
      cc_.neg(r);
      cc_.sbb(r, r);
      v.mask = v_.mask_broadcast(r);
      return v;
  }
  v.reg = v_.broadcast(r, false);
  return v;
}

Value KernelEmitter::load_row(DType t, const x86::Mem& m, const Mask* mask) {
  Value v;
  if (is_mask(t))
    v.mask = v_.load_bools(m, mask);
  else
    v.reg = v_.load_row(t, m, mask);
  return v;
}

// Calls f(lane, element) for each active lane. Extracts the indices from their register in parts: storing the register
// and loading it as eight values would take longer.
void KernelEmitter::each_lane(const Place& p, const Mask* mask, const std::function<void(int, const x86::Mem&)>& f) {
  std::vector<x86::Vec> blocks;
  for (int i = 0; 2 * i < v_.lanes; i++) blocks.push_back(v_.block(p.indices, i));
  x86::Gp bits = cc_.newInt32();
  if (mask) v_.mask_bits(bits, *mask);
  for (int lane = 0; lane < v_.lanes; lane++) {
    const asmjit::Label skip = cc_.newLabel();
    if (mask) {
      cc_.test(bits, 1 << lane);
      cc_.jz(skip);
    }
    x86::Gp index = cc_.newInt64();
    if (lane % 2 == 0)
      v_.lane0(index, blocks[size_t(lane / 2)], true);
    else
      cc_.emit(Ids::kIdVpextrq, index, blocks[size_t(lane / 2)], asmjit::Imm(1));
    x86::Mem m = p.mem;
    m.setIndex(index, p.mem.shift());
    f(lane, m);
    cc_.bind(skip);
  }
}

Value KernelEmitter::gather_small(DType t, const Place& p, const Mask* mask) {
  const uint32_t size = uint32_t(size_of(t));
  x86::Mem row = cc_.newStack(16, 16);
  cc_.emit(Ids::kIdVmovups, row, v_.zero(false).xmm());
  each_lane(p, mask, [&](int lane, const x86::Mem& element) {
    x86::Gp r = cc_.newInt32();
    x86::Mem m = element, to = row.cloneAdjusted(int64_t(lane) * size);
    m.setShift(uint32_t(shift_of(t)));
    m.setSize(size), to.setSize(size);
    cc_.movzx(r, m);
    cc_.mov(to, size == 1 ? x86::Gp(r.r8()) : x86::Gp(r.r16()));
  });
  return load_row(t, row, nullptr);
}

// Loads all lanes, of 4 or 8 bytes, one by one. The gather instruction takes two to four times as long: some processors
// implement it in microcode, others delay it as a security mitigation.
Value KernelEmitter::gather_all(DType t, const Place& p) {
  const bool wide = is_wide(t);
  const int in_xmm = wide ? 2 : 4;
  std::vector<x86::Vec> parts;
  each_lane(p, nullptr, [&](int lane, const x86::Mem& element) {
    x86::Mem m = element;
    m.setShift(uint32_t(shift_of(t)));
    m.setSize(uint32_t(size_of(t)));
    if (lane % in_xmm == 0) {
      parts.push_back(cc_.newXmm());
      cc_.emit(wide ? Ids::kIdVmovsd : Ids::kIdVmovss, parts.back(), m);
    } else if (wide) {
      cc_.emit(Ids::kIdVmovhpd, parts.back(), parts.back(), m);
    } else {
      cc_.emit(Ids::kIdVinsertps, parts.back(), parts.back(), m, asmjit::Imm(lane % in_xmm << 4));
    }
  });
  while (parts.size() > 1) {
    std::vector<x86::Vec> longer;
    for (size_t i = 0; i < parts.size(); i += 2) longer.push_back(v_.joined(parts[i], parts[i + 1]));
    parts.swap(longer);
  }
  Value v;
  v.reg = parts[0];
  return v;
}

void KernelEmitter::scatter_lanes(DType t, const Value& value, const Place& p, const Mask* mask) {
  const uint32_t size = uint32_t(size_of(t));
  x86::Mem row = cc_.newStack(64, 64);
  store_row(t, value, row, nullptr);
  each_lane(p, mask, [&](int lane, const x86::Mem& element) {
    x86::Gp r = cc_.newInt64();
    x86::Mem m = element, from = row.cloneAdjusted(int64_t(lane) * size);
    m.setShift(uint32_t(shift_of(t)));
    m.setSize(size), from.setSize(size);
    if (size < 4)
      cc_.movzx(r.r32(), from);
    else
      cc_.mov(size == 4 ? x86::Gp(r.r32()) : r, from);
    cc_.mov(m, size == 1 ? x86::Gp(r.r8()) : size == 2 ? x86::Gp(r.r16()) : size == 4 ? x86::Gp(r.r32()) : r);
  });
}

void KernelEmitter::store(DType t, const Value& v, const Place& p, const LaneGroup& group, int u) {
  switch (p.kind) {
    case Place::kUniform:
      if (group.lane_loop) fail_internal("codegen: a vector loop stores to one place");
      return store_one(t, v, p.mem);
    case Place::kRow: return store_row(t, v, p.mem, group.mask(u));
    case Place::kLanes: break;
  }
  LUTRA_CHECK(v_.lanes == v_.wide_lanes(), "a scatter of narrow lanes");
  if (is_small(t) || !v_.has_scatter())
    scatter_lanes(t, v, p, group.mask(u));
  else
    v_.scatter(t, reg(t, v), p.mem, p.indices, group.mask(u));
}

void KernelEmitter::store_one(DType t, const Value& v, const x86::Mem& m) {
  x86::Mem sized = m;
  sized.setSize(uint32_t(size_of(t)));
  if (t == DType::kFloat32 || t == DType::kInt32) {
    cc_.vmovss(sized, reg(t, v).xmm());
  } else if (is_wide(t)) {
    cc_.vmovsd(sized, reg(t, v).xmm());
  } else {
    x86::Gp r = cc_.newInt32();
    if (is_mask(t)) {
      v_.mask_bits(r, v.mask);
      cc_.and_(r, 1);
    } else {
      x86::Vec own = t == DType::kFloat16 ? v_.to_half(reg(t, v)) : reg(t, v);
      v_.lane0(r, own, false);
      if (t == DType::kBFloat16) cc_.shr(r, 16);
    }
    cc_.mov(sized, size_of(t) == 1 ? x86::Gp(r.r8()) : x86::Gp(r.r16()));
  }
}

void KernelEmitter::store_row(DType t, const Value& v, const x86::Mem& m, const Mask* mask) {
  if (is_mask(t))
    v_.store_bools(v.mask, m, mask);
  else
    v_.store_row(t, reg(t, v), m, mask);
}

}  // namespace lutra::x64
