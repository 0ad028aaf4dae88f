// The units that the scheduler groups: one for each primitive node that computes, with what it reads. (Views are index
// maps, not units.)
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "jit/device/backend.h"
#include "jit/device/cost.h"
#include "jit/lower/lower.h"

namespace lutra {

// Sources are numbered: graph inputs first, then units. Kernels under construction refer to memory by source. A chain
// of views is a linked list; tensors share the ends of such lists.
struct ViewSource {
  int32_t id = -1;
  int32_t depth = 0;                 // number of views down to the source
  const Node* view = nullptr;        // the first of them; null: none
  const ViewSource* next = nullptr;  // the rest of the chain
};

// Invariants:
// 1. Units are in an order in which they can run; those that write inputs come last.
// 2. An inlined unit is never stored. It is cheap and reads at most one other value; or it feeds a split reduction and
//    is cheap, over few large values; or only one part of a join reads it; or nothing needs it.
struct ComputeUnit {
  const Node* node = nullptr;
  Tensor value;  // the FakeTensor it makes; for a copy, the input that is written
  Lowered low;
  bool needs_memory = false;  // it is an output, an operand of a library, or read through a view that is not affine
  bool inlined = false;
  std::vector<int32_t> reads;   // units whose values it reads, looking through inlined ones
  std::vector<int32_t> inputs;  // graph inputs it reads
  std::vector<int32_t> after;   // units that must run before it although it does not read them
  bool checks = false;          // it or an inlined unit that it reads may fail
  int32_t in_place = -1;        // the input whose memory its value is written into (in_place.cc)
  bool repeats = false;         // written in place, and a repeated run writes the same values
  bool stays = false;           // never inlined: it reads an input that is written in place later
  // Of a kernel of this unit alone: the number of instructions, except loads, stores and those before the loops; keys
  // of those before the loops.
  int instructions = 0;
  std::vector<uint64_t> hoisted;
  Work work;

  bool alone() const {
    return low.kind == Lowered::kExtern || low.kind == Lowered::kExternResult || low.kind == Lowered::kStrided ||
           low.kind == Lowered::kJoin;
  }
  bool is_empty() const {
    SymInt n = value->numel();
    return n.is_constant() && n.hint == 0;
  }
  bool is_copy() const { return low.kind == Lowered::kCopy; }
};

// Returns the size of t's elements in bytes, by hints.
double likely_bytes(const Tensor& t);

class ComputeUnits {
 public:
  ComputeUnits(const Graph& graph, LoweredGraph& lowered, bool fuse, const Machine* machine);

  const ViewSource& resolve(const Tensor& t) const;
  // Sets `out` to the index into the source's value. Returns false if it is not affine.
  bool map_index(const ViewSource& s, const Index& index, Index& out) const;
  bool is_input(int32_t source) const { return source < int32_t(graph.inputs.size()); }
  int32_t unit_of(int32_t source) const { return source - int32_t(graph.inputs.size()); }
  int32_t source_of(int32_t unit) const { return unit + int32_t(graph.inputs.size()); }
  // Returns the offset of t from the first element of its source.
  SymInt offset_of(const ViewSource& s, const Tensor& t) const;
  const Tensor& value_of(int32_t source) const;
  bool same_memory(int32_t input_a, int32_t input_b) const;
  ComputeUnit& operator[](int32_t u) { return units_[size_t(u)]; }
  const ComputeUnit& operator[](int32_t u) const { return units_[size_t(u)]; }
  int32_t size() const { return int32_t(units_.size()); }

  // Stores the unit's value in memory, and links the units again.
  void materialise(int32_t unit);
  // Adds a unit before the copies that stores the source of `copy`.
  void buffer_copy(int32_t copy);
  void link();

  const Graph& graph;
  SymFacts& facts;
  const Device device;  // the device of the graph's values
  const Backend& backend;
  const Machine machine;  // the machine that choices are made for

 private:
  void add_units(LoweredGraph& lowered);
  void add_unit(const Node& n, const Tensor& value, Lowered&& low);
  void find_memory();
  void mark(const Tensor& t);
  std::vector<bool> join_operands() const;
  std::vector<bool> cut_operands() const;
  bool is_cheap(const ComputeUnit& u) const;
  std::vector<int> readers() const;
  bool saves_bytes(const ComputeUnit& u, const std::vector<int32_t>& sources, int readers) const;
  std::vector<int32_t> large_sources(const ComputeUnit& u, const std::vector<std::vector<int32_t>>& of_inlined) const;
  void choose_inlined();
  void trace(const Tensor& t, ComputeUnit& into) const;
  void drop_dead();
  void order_writes();
  void order_unbacked();
  void break_swaps();
  void write_in_place();
  bool same_layout(const Tensor& a, const Tensor& b) const;
  std::vector<int32_t> chain_into(int32_t copy, int32_t input) const;
  bool repeats(const std::vector<int32_t>& chain, int32_t input) const;
  bool may_write(const std::vector<int32_t>& chain, int32_t copy, int32_t input, std::vector<int32_t>& early) const;

  bool fuse_;
  std::vector<ComputeUnit> units_;
  std::vector<std::unique_ptr<Node>> own_nodes_;
  std::unordered_map<const TensorImpl*, int32_t> sources_;
  std::unordered_map<const Node*, Lowered> views_;
  mutable std::unordered_map<const TensorImpl*, ViewSource> resolved_;
};

}  // namespace lutra
