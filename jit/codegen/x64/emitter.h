// The x64 code generator: walks a verified kernel and emits it into an asmjit Compiler.
//
// Invariants:
// 1. Outside vector and lanes loops every value is uniform: a register with equal lanes. Within them, a value has one
//    register for each vector of the unrolled group, or a single one if it is uniform.
// 2. A group may be partial. Then each of its vectors has a mask, and loads, stores, gathers, checks and accumulators
//    obey it. Memory outside a tensor is never accessed.
// 3. Addresses are built from the outside in: before a loop begins, every access within it has a base register with all
//    terms that are known by then.
// 4. Small integers and half floats are in 32-bit lanes: int32s in their type's range, floats that their type can
//    represent. Loads and casts widen; wrapped() and rounded() bring results of arithmetic back. So fusion does not
//    change results. A value that is only stored leaves part of its rounding to the store.
// 5. A failing check records the fault and leaves the kernel.
// 6. Code that looks subtracts the work of each iteration from a register. When it falls below zero, the code looks,
//    and leaves the kernel if told to. The call to look keeps all registers, so the rest of the code is unaffected.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "jit/codegen/x64/analysis.h"
#include "jit/codegen/x64/code.h"
#include "jit/codegen/x64/vector_math.h"
#include "jit/codegen/x64/vectors.h"

namespace lutra::x64 {

using loop::Access;
using loop::Accumulator;
using loop::Coef;
using loop::Inst;
using loop::Kernel;
using loop::Loop;
using loop::LoopMode;
using loop::Op;
using loop::RedOp;
using loop::Stmt;

inline bool is_wide(DType t) { return size_of(t) == 8; }
inline bool is_mask(DType t) { return is_bool(t); }

// One vector of a value: lanes (or a constant), or a mask (bools).
struct Value : Piece {
  Mask mask;
};

class KernelEmitter {
 public:
  KernelEmitter(x86::Compiler& cc, const Kernel& k, Isa isa, int look_after);
  void emit();

 private:
  // The vectors that a body is emitted for.
  struct LaneGroup {
    const Loop* lane_loop = nullptr;  // its variable differs from lane to lane; null: uniform code
    int vectors = 1;
    std::vector<Mask> masks;  // one for each vector; empty: all lanes are active
    int per_vector = 0;       // lanes of a vector
    bool nested = false;      // the body of a loop within lane_loop
    const Mask* mask(int u) const { return masks.empty() ? nullptr : &masks[size_t(u)]; }
  };

  // The address of an access as far as it is known: a base register, and which terms are in it.
  struct Base {
    x86::Gp reg;
    std::vector<bool> bound;
  };
  struct BaseKey {
    int32_t ptr;
    Coef offset;
    std::vector<Access::Term> terms;
    x86::Gp reg;
  };
  struct IndexKey {
    int32_t loop;
    Coef stride;
    x86::Gp reg;
  };
  struct LaneKey {
    int32_t loop;
    Coef stride;
    int vector;
    x86::Vec reg;
  };
  // The values that a body has computed so far, for reuse until its end.
  struct Scope {
    std::vector<BaseKey> bases;
    std::vector<IndexKey> indices;
    std::vector<LaneKey> lane_indices;
    std::vector<std::pair<int32_t, x86::Gp>> numbers;  // uniform int64 values in general registers
    std::vector<int32_t> defined;                      // values
  };

  // The location of an access of one vector.
  struct Place {
    enum Kind { kUniform, kRow, kLanes } kind;
    x86::Mem mem;                // kLanes: without index
    x86::Vec indices;            // kLanes: 64-bit, in elements
    const Coef* step = nullptr;  // kLanes: the distance between the elements of adjacent lanes, if it is constant
  };

  struct AccState {
    const Accumulator* acc;
    std::vector<Value> partial;
    std::vector<x86::Vec> position;
    x86::Gp count;
    // For a sum in blocks. left: remaining feeds of this block, minus one. complete: whether a block is complete.
    // blocks: the sums of the complete blocks, one for each partial; then what was rounded off each.
    x86::Gp left, complete;
    x86::Mem blocks;
    size_t end = 0;    // in block_ends_
    bool fed = false;  // the body has ended a full block at its top
    x86::Mem sum(size_t at, int size) const { return blocks.cloneAdjusted(int64_t(at) * size); }
    x86::Mem rest(size_t at, int size) const { return sum(partial.size() + at, size); }
  };

  // A load along columns, and its tile.
  struct TileColumn {
    const Inst* load;
    x86::Mem stack;
  };
  struct TileNest {
    const std::vector<const Loop*>* nest;  // from the loop in tiles to the vector loop
    std::vector<TileColumn> columns;
    x86::Gp block, rows;  // first row of the tile, and number of rows
  };

  // The end of an accumulator's blocks. Its code is out of line, emitted once. from[i] identifies the call site, to
  // return to it.
  struct BlockEnd {
    struct Site {
      asmjit::Label at, back;
    };
    AccState state;
    std::vector<Site> from{};
  };

  // The code that looks whether the kernel shall stop, after an iteration. It is out of line.
  struct Look {
    asmjit::Label at, back;
  };

  struct ColdCheck {
    asmjit::Label at;
    const Inst* inst;
    Mask failing;
    x86::Vec index;
    x86::Gp number;  // the index, if it is uniform
  };

  // emit_loops.cc
  void open_scope() { scopes_.emplace_back(); }
  void close_scope();
  void set_values(int32_t id, bool varying, std::vector<Value> values);
  void body(const std::vector<Stmt>& stmts, LaneGroup& group);
  void loop(const Loop& l, LaneGroup& group);
  void serial_loop(const Loop& l, LaneGroup& group);
  void vector_loop(const Loop& l);
  int interleaved(const Loop& l, int cost) const;
  void lanes_loop(const Loop& l);
  void strip(const Loop& l, const x86::Gp& i, const x86::Gp& end, int group, int vectors, bool masked, bool repeat);
  x86::Gp loop_begin(const Loop& l);
  x86::Gp loop_end(const Loop& l);
  void cold_checks(const asmjit::Label& exit);
  void spend(const Loop& l, int vectors);
  void look_if_spent();
  void cold_looks(const asmjit::Label& exit);
  void parameters();
  int lanes_of(const Loop& l) const;

  // emit_packed.cc
  bool packs(const Loop& l) const;
  x86::Vec packed_uniform(DType t, const Value& v);
  x86::Vec packed(const Inst& in, const x86::Vec& a, const x86::Vec& b);
  void packed_body(const Loop& l, const LaneGroup& group);
  void packed_strip(const Loop& l, const x86::Gp& i, const x86::Gp& end, int vectors);

  // emit_tile.cc
  std::vector<const Loop*> tiled_nest(const Loop& l) const;
  void tile_loop(const std::vector<const Loop*>& nest);
  void tile_level(TileNest& t, size_t depth);
  void tile_strip(TileNest& t, const x86::Gp* left);
  void fill_tile(const TileNest& t, const TileColumn& c, const x86::Gp* left);
  std::pair<x86::Gp, x86::Gp> tile_corner(const TileNest& t, const Inst& in, int32_t along);
  void copy_element(DType t, const x86::Gp& source, const x86::Gp& target);
  Value load_tile(DType t, const x86::Mem& m);
  void copy_tile(const TileNest& t, const asmjit::Label& done);
  void transpose_block(DType t, const x86::Gp& from, const x86::Gp& stride, const x86::Gp& to, const x86::Gp* apart);

  // emit_memory.cc
  const x86::Mem* tile_of(const Inst& in) const;
  x86::Mem int_arg(int32_t arg) const;
  x86::Mem pointer_arg(int32_t ptr) const;
  x86::Mem scalar_arg(int32_t arg) const;
  x86::Mem head(size_t offset) const;
  void bind_accesses(const Loop& l);
  Base base_of(const Access& a) const;
  Base bind(const Access& a, DType type);
  x86::Gp first_base(const Access& a, DType type);
  bool known(const Access::Term& t) const;
  x86::Gp number_of(int32_t id);
  x86::Gp element_index(const Access::Term& t);
  void hoist_lane_indices(const Loop& l, int vectors);
  x86::Vec lane_indices(int32_t loop_id, const Coef& stride, int u);
  void multiply(const x86::Gp& r, const Coef& by);
  bool varies(const Access& a, const LaneGroup& group) const;
  std::optional<Base> find_base(const Access& a, const std::vector<bool>& bound) const;
  x86::Vec lane_offsets(const Access& a, const LaneGroup& group, int u);
  Place place(const Access& a, DType type, const LaneGroup& group, int u);
  void fetch_ahead(const Inst& in, const x86::Mem& row, const LaneGroup& group, int64_t from);
  Place place_ahead(const Inst& in, const LaneGroup& group, int u);
  Value load(DType t, const Place& p, const LaneGroup& group, int u);
  Value load_uniform(DType t, const x86::Mem& m);
  Value load_row(DType t, const x86::Mem& m, const Mask* mask);
  Value load_steps(DType t, const Place& p, int u);
  Value gather_all(DType t, const Place& p);
  Value gather_small(DType t, const Place& p, const Mask* mask);
  void store(DType t, const Value& v, const Place& p, const LaneGroup& group, int u);
  void store_row(DType t, const Value& v, const x86::Mem& m, const Mask* mask);
  void scatter_lanes(DType t, const Value& v, const Place& p, const Mask* mask);
  void store_one(DType t, const Value& v, const x86::Mem& m);
  void each_lane(const Place& p, const Mask* mask, const std::function<void(int, const x86::Mem&)>& f);

  // emit_values.cc
  void inst(const Inst& in, LaneGroup& group);
  bool is_free(const asmjit::BaseNode* node) const;
  void interleave(const std::vector<asmjit::BaseNode*>& ends);
  bool uniform(const Inst& in, const LaneGroup& group) const;
  Value evaluate(const Inst& in, const LaneGroup& group, int u);
  x86::Vec slow_op_once(const Inst& in, const Value& a, const Value& b);
  Value float_op(const Inst& in, const Value& a, const Value& b, bool once = false);
  Value int_op(const Inst& in, const Value& a, const Value& b, const LaneGroup& group);
  Value mask_op(const Inst& in, const Value& a, const Value& b);
  Value comparison(const Inst& in, const Value& a, const Value& b);
  std::vector<Value> lane_comparison(const Inst& in, const LaneGroup& group);
  Value selection(const Inst& in, const Value& a, const Value& b, const Value& c);
  Value cast(DType from, DType to, const Value& a, bool stored = false);
  Value random(const Inst& in, const Value& index);
  Value index_of(const Inst& in, const LaneGroup& group, int u);
  void check(const Inst& in, const LaneGroup& group);
  Value wrapped(DType t, const x86::Vec& v);
  x86::Vec rounded(DType t, const x86::Vec& v, bool stored = false);
  const Value& value(int32_t id, int u) const;
  x86::Vec reg(DType t, const Value& v);
  asmjit::Operand operand(DType t, const Value& v);
  x86::Vec maximum(DType t, bool max, const Value& a, const Value& b);

  // emit_lanewise.cc
  x86::Vec divide(Op op, DType t, const x86::Vec& a, const x86::Vec& b, int lanes);
  x86::Vec gcd(DType t, const x86::Vec& a, const x86::Vec& b, int lanes);
  x86::Vec int_power(DType t, const x86::Vec& base, const x86::Vec& exponent);

  // emit_reduce.cc
  void begin_accumulators(const Loop& l, const LaneGroup& group);
  void accumulate(const Inst& in, const LaneGroup& group);
  void finish_accumulators(const Loop& l, const LaneGroup& group);
  void take(AccState& s, size_t at, const Value& x, const Mask* mask);
  void take_position(AccState& s, size_t at, const x86::Vec& x, const x86::Vec& position, const Mask* mask);
  void begin_blocks(AccState& s);
  BlockEnd::Site block_end(const AccState& s);
  void feed_block(AccState& s);
  void feed_first(const Loop& l, bool begin);
  void end_block(AccState& s);
  void add_blocks(AccState& s);
  void emit_block_ends();
  Value halving_tree(AccState& s);
  Value finish_masks(AccState& s);
  AccState& accumulator(int32_t id);
  int64_t identity_bits(const Accumulator& a) const;

  x86::Compiler& cc_;
  const Kernel& k_;
  Analysis info_;
  std::unique_ptr<Vectors> vectors_;
  Vectors& v_;
  x86::Gp block_;
  std::vector<std::vector<Value>> values_;  // by id; empty: not in scope
  std::vector<bool> varying_;               // by id: differs from lane to lane
  std::vector<x86::Gp> loop_regs_;          // by loop id
  std::vector<bool> loop_live_;
  std::vector<Scope> scopes_;
  std::vector<std::pair<const Access*, Base>> bound_;
  std::vector<std::pair<const Inst*, x86::Mem>> tiles_;  // loads that read from a tile now
  std::vector<AccState> accs_;
  std::vector<ColdCheck> checks_;
  const int look_after_;  // 0: the code does not look
  x86::Gp left_;          // work until the next look
  std::vector<Look> look_sites_;
  std::vector<BlockEnd> block_ends_;
  std::vector<std::pair<const Inst*, Value>> parameters_;
};

}  // namespace lutra::x64
