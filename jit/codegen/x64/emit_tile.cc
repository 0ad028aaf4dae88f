// Tiles for loads along columns: unit stride in an outer loop, another stride in the vector loop. The nest must have no
// effects outside its vector loop. The outer loop runs in tiles of rows. A tile of each column is transposed in
// registers into the stack, and the nest's body reads rows of it.
//
//   for i0 in n0 {                               for b in n0 by kTileRows {
//     for i1 in n1 vector {                        for i1 in n1 by lanes {
//       %0 = load.f32 p0[i0 + i1*s2]       =>        t = transpose of p0[b.. + (i1..)*s2]
//       store.f32 p1[i0*n1 + i1], %0                 for i0 in b .. b + kTileRows { store p1[i0*n1 + i1..], t[i0 - b] }
//     }                                            }
//   }                                            }
//
// A nest that only copies a column to a row stores full tiles from the registers.
//
// Invariants: nothing is read that the nest does not read; each element is computed as it would be without tiles.
#include <algorithm>

#include "jit/codegen/x64/emitter.h"

namespace lutra::x64 {

namespace {
constexpr int kTileRows = 16;  // measured: a cache line along each column; with more rows they conflict in the caches

// Small types have the same width in a tile as in a register.
int lane_bytes(DType t) { return std::max(4, int(size_of(t))); }
}  // namespace

// Returns the nest from l down to its vector loop if the analysis has chosen l for tiling; otherwise nothing.
std::vector<const Loop*> KernelEmitter::tiled_nest(const Loop& l) const {
  std::vector<const Loop*> nest{&l};
  while (nest.back()->mode == LoopMode::kSerial) {
    const auto* next =
        nest.back()->body.empty() ? nullptr : std::get_if<std::unique_ptr<Loop>>(&nest.back()->body.back());
    if (!next) return {};
    nest.push_back(next->get());
  }
  if (info_.tile_loop(*nest.back()) != &l) return {};
  return nest;
}

void KernelEmitter::tile_loop(const std::vector<const Loop*>& nest) {
  const Loop &outer = *nest.front(), &inner = *nest.back();
  TileNest t;
  t.nest = &nest;
  for (const Stmt& s : inner.body) {
    const Inst& in = std::get<Inst>(s);
    if (!info_.is_column(in)) continue;
    t.columns.push_back({&in, cc_.newStack(uint32_t(kTileRows * v_.lanes * lane_bytes(in.type)), 64)});
  }
  t.block = loop_begin(outer);
  const x86::Gp end = loop_end(outer);
  const asmjit::Label top = cc_.newLabel(), done = cc_.newLabel();
  cc_.cmp(t.block, end);
  cc_.jge(done);
  cc_.bind(top);
  t.rows = cc_.newInt64();
  x86::Gp most = cc_.newInt64();
  cc_.mov(t.rows, end);
  cc_.sub(t.rows, t.block);
  cc_.mov(most, kTileRows);
  cc_.cmp(t.rows, most);
  cc_.cmovg(t.rows, most);
  loop_regs_[size_t(outer.id)] = t.block;
  open_scope();
  tile_level(t, 1);
  close_scope();
  look_if_spent();
  cc_.add(t.block, kTileRows);
  cc_.cmp(t.block, end);
  cc_.jl(top);
  cc_.bind(done);
}

// Emits the loops in between, then the strips of the vector loop.
void KernelEmitter::tile_level(TileNest& t, size_t depth) {
  const Loop& l = *(*t.nest)[depth];
  x86::Gp i = loop_begin(l), n = loop_end(l);
  loop_regs_[size_t(l.id)] = i;
  const asmjit::Label top = cc_.newLabel(), done = cc_.newLabel();
  if (l.mode == LoopMode::kVector) {
    x86::Gp limit = cc_.newInt64();
    cc_.lea(limit, x86::ptr(n, -(v_.lanes - 1)));
    const asmjit::Label tail = cc_.newLabel();
    cc_.cmp(i, limit);
    cc_.jge(tail);
    cc_.bind(top);
    tile_strip(t, nullptr);
    look_if_spent();
    cc_.add(i, v_.lanes);
    cc_.cmp(i, limit);
    cc_.jl(top);
    cc_.bind(tail);
    cc_.cmp(i, n);
    cc_.jge(done);
    x86::Gp left = cc_.newInt64();
    cc_.mov(left, n);
    cc_.sub(left, i);
    tile_strip(t, &left);
  } else {
    cc_.cmp(i, n);
    cc_.jge(done);
    cc_.bind(top);
    loop_live_[size_t(l.id)] = true;
    open_scope();
    tile_level(t, depth + 1);
    close_scope();
    loop_live_[size_t(l.id)] = false;
    look_if_spent();
    cc_.inc(i);
    cc_.cmp(i, n);
    cc_.jl(top);
  }
  cc_.bind(done);
}

// Emits one strip of the vector loop (all lanes, or the first `left`) for the rows of the tile.
void KernelEmitter::tile_strip(TileNest& t, const x86::Gp* left) {
  const Loop &outer = *t.nest->front(), &inner = *t.nest->back();
  const asmjit::Label done = cc_.newLabel();
  if (!left) copy_tile(t, done);
  const size_t tiles_before = tiles_.size();
  for (const TileColumn& c : t.columns) fill_tile(t, c, left);
  LaneGroup s;
  s.lane_loop = &inner;
  s.per_vector = v_.lanes;
  if (left) s.masks = v_.first_lanes(*left, v_.lanes, 1, v_.lanes);
  x86::Gp row = cc_.newInt64(), end = cc_.newInt64(), at = cc_.newInt64();
  cc_.mov(row, t.block);
  cc_.lea(end, x86::ptr(t.block, t.rows));
  cc_.xor_(at.r32(), at.r32());
  loop_regs_[size_t(outer.id)] = row;
  for (const TileColumn& c : t.columns) {
    x86::Mem m = c.stack;
    m.setIndex(at, lane_bytes(c.load->type) == 8 ? 3 : 2);
    tiles_.emplace_back(c.load, m);
  }
  const asmjit::Label top = cc_.newLabel();
  cc_.bind(top);
  loop_live_[size_t(outer.id)] = true;
  open_scope();
  LaneGroup uniform;
  uniform.per_vector = v_.lanes;
  for (size_t d = 0; d + 1 < t.nest->size(); d++) {
    for (const Stmt& stmt : (*t.nest)[d]->body) {
      if (const Inst* in = std::get_if<Inst>(&stmt)) inst(*in, uniform);
    }
  }
  const size_t bound_before = bound_.size();
  bind_accesses(inner);
  loop_live_[size_t(inner.id)] = true;
  body(inner.body, s);
  loop_live_[size_t(inner.id)] = false;
  bound_.resize(bound_before);
  close_scope();
  loop_live_[size_t(outer.id)] = false;
  cc_.add(at, v_.lanes);
  cc_.inc(row);
  cc_.cmp(row, end);
  cc_.jl(top);
  loop_regs_[size_t(outer.id)] = t.block;
  tiles_.resize(tiles_before);
  cc_.bind(done);
  spend(inner, 2 * kTileRows);
}

Value KernelEmitter::load_tile(DType t, const x86::Mem& m) {
  Value v;
  v.reg = v_.load_row(is_wide(t) ? DType::kInt64 : DType::kInt32, m, nullptr);
  if (is_mask(t)) v.mask = v_.compare_ints(Cmp::kNe, false, v.reg, v_.constant(false, 0));
  return v;
}

// Returns the address of the access at the tile's first row and the strip's first lane, and the bytes between steps of
// `along`.
std::pair<x86::Gp, x86::Gp> KernelEmitter::tile_corner(const TileNest& t, const Inst& in, int32_t along) {
  const Loop &outer = *t.nest->front(), &inner = *t.nest->back();
  loop_live_[size_t(outer.id)] = loop_live_[size_t(inner.id)] = true;
  open_scope();
  x86::Gp at = cc_.newIntPtr(), stride = cc_.newInt64();
  cc_.mov(at, bind(in.access, in.type).reg);
  cc_.mov(stride, int64_t(size_of(in.type)));
  for (const Access::Term& term : in.access.terms) {
    if (!term.is_value && term.id == along) multiply(stride, term.stride);
  }
  close_scope();
  loop_live_[size_t(outer.id)] = loop_live_[size_t(inner.id)] = false;
  return {at, stride};
}

// Emits a strip of a nest that only copies a column to a row, if the tile has all its rows. Then jumps to `done`.
void KernelEmitter::copy_tile(const TileNest& t, const asmjit::Label& done) {
  const Loop &outer = *t.nest->front(), &inner = *t.nest->back();
  for (size_t d = 0; d + 1 < t.nest->size(); d++) {
    if ((*t.nest)[d]->body.size() != 1) return;
  }
  if (inner.body.size() != 2 || t.columns.size() != 1) return;
  const Inst &load = *t.columns[0].load, &store = std::get<Inst>(inner.body[1]);
  if (store.op != Op::kStore || store.a != load.id || is_small(load.type)) return;
  int walks = 0;
  for (const Access::Term& term : store.access.terms) walks += !term.is_value && term.id == outer.id;
  if (walks != 1) return;
  const asmjit::Label partial = cc_.newLabel();
  const int size = int(size_of(load.type));
  cc_.cmp(t.rows, kTileRows);
  cc_.jne(partial);
  auto [from, stride] = tile_corner(t, load, inner.id);
  auto [to, row_bytes] = tile_corner(t, store, outer.id);
  for (int row = 0; row < kTileRows; row += v_.lanes) {
    transpose_block(load.type, from, stride, to, &row_bytes);
    if (row + v_.lanes < kTileRows) cc_.add(from, v_.lanes * size);
  }
  cc_.jmp(done);
  cc_.bind(partial);
}

// Writes the column's elements of the strip to the stack as rows: blocks of lanes x lanes by shuffles, partial blocks
// element by element.
void KernelEmitter::fill_tile(const TileNest& t, const TileColumn& c, const x86::Gp* left) {
  const int size = int(size_of(c.load->type)), lane = lane_bytes(c.load->type);
  auto [from, stride] = tile_corner(t, *c.load, t.nest->back()->id);
  x86::Gp to = cc_.newIntPtr(), row = cc_.newInt64();
  cc_.lea(to, c.stack);
  cc_.mov(row, t.rows);
  const asmjit::Label ragged = cc_.newLabel(), done = cc_.newLabel();
  if (!left) {
    const asmjit::Label top = cc_.newLabel();
    cc_.cmp(row, v_.lanes);
    cc_.jl(ragged);
    cc_.bind(top);
    transpose_block(c.load->type, from, stride, to, nullptr);
    cc_.add(from, v_.lanes * size);
    cc_.add(to, v_.lanes * v_.lanes * lane);
    cc_.sub(row, v_.lanes);
    cc_.cmp(row, v_.lanes);
    cc_.jge(top);
    cc_.bind(ragged);
    cc_.test(row, row);
    cc_.jz(done);
  }
  // The inner loop is over rows, since these are adjacent in memory.
  x86::Gp columns = cc_.newInt64(), source = cc_.newIntPtr(), k = cc_.newInt64(), target = cc_.newIntPtr();
  if (left)
    cc_.mov(columns, *left);
  else
    cc_.mov(columns, v_.lanes);
  const asmjit::Label next_column = cc_.newLabel(), next_row = cc_.newLabel();
  cc_.bind(next_column);
  cc_.mov(source, from);
  cc_.mov(target, to);
  cc_.mov(k, row);
  cc_.bind(next_row);
  copy_element(c.load->type, source, target);
  cc_.add(source, size);
  cc_.add(target, v_.lanes * lane);
  cc_.dec(k);
  cc_.jnz(next_row);
  cc_.add(from, stride);
  cc_.add(to, lane);
  cc_.dec(columns);
  cc_.jnz(next_column);
  cc_.bind(done);
}

// Copies one element in the format of a lane.
void KernelEmitter::copy_element(DType t, const x86::Gp& source, const x86::Gp& target) {
  x86::Gp value = cc_.newInt64();
  x86::Mem from = x86::ptr(source), to = x86::ptr(target);
  from.setSize(uint32_t(size_of(t))), to.setSize(uint32_t(lane_bytes(t)));
  if (t == DType::kFloat16) {
    x86::Xmm half = cc_.newXmm();
    cc_.movzx(value.r32(), from);
    cc_.vmovd(half, value.r32());
    cc_.vcvtph2ps(half, half);
    cc_.vmovss(to, half);
    return;
  }
  const x86::Gp v = size_of(t) == 8 ? value : x86::Gp(value.r32());
  if (t == DType::kInt8 || t == DType::kInt16)
    cc_.movsx(v, from);
  else if (is_small(t))
    cc_.movzx(v, from);
  else
    cc_.mov(v, from);
  if (t == DType::kBFloat16) cc_.shl(v, 16);
  cc_.mov(to, v);
}

// Transposes lanes x lanes elements. Reads rows `stride` bytes apart, each once. Writes the transpose, as lanes, at
// `to`: its rows are dense, or `apart` bytes apart (then `to` is advanced past them). First transposes within blocks of
// 16 bytes, then the blocks among each other.
void KernelEmitter::transpose_block(DType t, const x86::Gp& from, const x86::Gp& stride, const x86::Gp& to,
                                    const x86::Gp* apart) {
  const int per_block = 16 / lane_bytes(t), bytes = v_.lanes * lane_bytes(t), blocks = bytes / 16;
  const auto unpack = [&](InstId id, const x86::Vec& x, const x86::Vec& y) {
    x86::Vec r = v_.fresh_of(bytes);
    cc_.emit(id, r, x, y);
    return r;
  };
  std::vector<std::vector<x86::Vec>> groups{size_t(blocks)};  // block q of groups[g][c]: column q * per_block + c
  x86::Gp at = cc_.newIntPtr();
  cc_.mov(at, from);
  for (int g = 0; g < blocks; g++) {
    std::vector<x86::Vec> v;
    for (int i = 0; i < per_block; i++) {
      v.push_back(v_.load_row(is_mask(t) ? DType::kUInt8 : t, x86::ptr(at), nullptr));
      if (g * per_block + i + 1 < v_.lanes) cc_.add(at, stride);
    }
    if (per_block == 2) {
      groups[size_t(g)] = {unpack(Ids::kIdVunpcklpd, v[0], v[1]), unpack(Ids::kIdVunpckhpd, v[0], v[1])};
      continue;
    }
    x86::Vec a = unpack(Ids::kIdVunpcklps, v[0], v[1]), b = unpack(Ids::kIdVunpckhps, v[0], v[1]);
    x86::Vec c = unpack(Ids::kIdVunpcklps, v[2], v[3]), d = unpack(Ids::kIdVunpckhps, v[2], v[3]);
    groups[size_t(g)] = {unpack(Ids::kIdVunpcklpd, a, c), unpack(Ids::kIdVunpckhpd, a, c),
                         unpack(Ids::kIdVunpcklpd, b, d), unpack(Ids::kIdVunpckhpd, b, d)};
  }
  std::vector<x86::Vec> out(size_t(v_.lanes));
  for (int c = 0; c < per_block; c++) {
    std::vector<x86::Vec> column;  // by q
    for (const auto& g : groups) column.push_back(g[size_t(c)]);
    if (blocks == 2) {
      column = {v_.blocks(column[0], column[1], false), v_.blocks(column[0], column[1], true)};
    } else if (blocks == 4) {
      x86::Vec even = v_.blocks(column[0], column[1], false), odd = v_.blocks(column[0], column[1], true);
      x86::Vec even2 = v_.blocks(column[2], column[3], false), odd2 = v_.blocks(column[2], column[3], true);
      column = {v_.blocks(even, even2, false), v_.blocks(odd, odd2, false), v_.blocks(even, even2, true),
                v_.blocks(odd, odd2, true)};
    }
    for (int q = 0; q < blocks; q++) out[size_t(q * per_block + c)] = column[size_t(q)];
  }
  for (int row = 0; row < v_.lanes; row++) {
    cc_.emit(Ids::kIdVmovups, x86::ptr(to, apart ? 0 : row * bytes), out[size_t(row)]);
    if (apart) cc_.add(to, *apart);
  }
}

}  // namespace lutra::x64
