// Builds one kernel for a set of units, which stores the values that are needed in memory. If it cannot, it says why.
#pragma once
#include <string>
#include <vector>

#include "jit/lower/body.h"
#include "jit/schedule/compute_units.h"

namespace lutra {

struct KernelFault {
  int32_t dim;
  const Node* node;
};

// The loops of a group's kernel. Axes are the dimensions of its widest domain that may be larger than one.
struct GroupShape {
  enum Kind : uint8_t { kFlat, kRows, kColumns } kind = kFlat;  // reduces nothing; the innermost dim; other dims
  struct Axis {
    SymInt size;
    bool reduced;
  };
  std::vector<Axis> axes;
};

// Builds one kernel.
// Invariants:
// 1. The values of a group's units are computed again wherever they are needed (numbered by value within a loop). The
//    kernel does not read memory that it writes, with two exceptions. It may read an input at the very position that it
//    then overwrites. And it may keep elements: a heavy value that a reduction along rows computes first is stored in a
//    result of that row, at its own position, for the loops after it.
// 2. The outer loops are over the kept axes. Within them there is one nest for each level of reductions, then one over
//    all axes for the results. Within a nest all values are computed before the first store.
// 3. A reduction's value is used only in its own row.
class GroupKernel {
 public:
  // roots: the members whose values are stored.
  GroupKernel(ComputeUnits& units, const std::vector<int32_t>& members, const std::vector<int32_t>& roots);
  // Builds the kernel. Returns "" if the group makes one good kernel, otherwise why not.
  const std::string& build();
  // Returns the work of the built kernel.
  Work work() const;
  // Writes the work and size of the kernel, which has one unit, into that unit.
  void measure(ComputeUnit& unit) const;
  // Builds another kernel instead: it copies `from` into the memory of a source with the layout of `to`.
  void build_copy(const Tensor& from, int32_t source, const Tensor& to);

  // Builds another kernel instead: one of a unit's functions that write its memory. parallel: its outermost loop may be
  // parallel.
  void build_write(const ElementFunction& write, int32_t unit, bool parallel);

  Body body;
  std::vector<KernelFault> faults;

 private:
  struct Batch {
    std::vector<std::vector<int>> nest;  // axes; -1: a loop of one iteration
    int32_t lanes = 1;
    std::vector<int32_t> units;
  };
  void refuse(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
  void build_body();
  bool find_shape();
  const Sizes& flat_strides(int32_t lead) const;
  bool place_roots();
  const Sizes& domain_of(int32_t unit) const;
  bool matches(const Sizes& sizes, bool full) const;
  Index canonical(const Sizes& sizes, bool full) const;
  Index result_index(int32_t unit) const;
  std::vector<int> axis_order(const Sizes& sizes, const Sizes& strides, bool full) const;
  int level_of(int32_t unit);
  int level_of_operands(const ComputeUnit& u);
  std::vector<Batch> batches(int level);
  void emit_batch(const Batch& batch);
  void find_wanted(const Tensor& t);
  void keep_elements();
  int32_t keeper(int32_t unit) const;
  bool walks_as_one(int32_t root) const;
  void emit_roots(const std::vector<int32_t>& roots, bool full, std::vector<int32_t>& values);
  void store_roots(const std::vector<int32_t>& roots, bool full, const std::vector<int32_t>& values);
  void open_rows();
  void emit_full();
  int32_t value(int32_t unit, const Index& index);
  int32_t operand(const Tensor& t, const Index& index);
  void check(int32_t value, SymInt bound, int32_t dim, const Node& node);
  int32_t inlined(const ElementFunction& f, int32_t unit, const Index& index);
  int32_t inline_stmt(const FunctionStmt& s, const ElementFunction& f, int32_t unit, const Index& index, size_t base);
  Affine inline_place(const Affine& at, const ElementFunction& f, const Index& index, size_t base) const;
  void note_check(int32_t unit, const Index& index);
  void make_parallel();
  void judge();
  void judge_hazards();

  ComputeUnits& units_;
  SymFacts& facts_;
  const std::vector<int32_t>& members_;
  const std::vector<int32_t>& roots_;
  std::vector<int32_t> row_roots_, full_roots_;
  GroupShape shape_;
  std::vector<int32_t> axis_loops_;
  std::vector<int> row_order_;    // kept axes, outermost first
  std::vector<int32_t> checked_;  // units that may fail and whose elements are all computed
  std::unordered_map<int32_t, int> levels_;
  std::vector<int32_t> wanted_;                // units that the full roots compute in their own loop
  std::unordered_map<int32_t, int32_t> kept_;  // unit -> the root in whose memory its elements are kept
  std::vector<int32_t> keepers_;               // full roots whose memory can still keep elements
  int deepest_ = 0;                            // length of the longest chain of reductions
  bool stores_all_ = false;                    // has full roots
  size_t inlined_stmts_ = 0;                   // statements of functions that have been inlined
  std::vector<int32_t> inlined_;               // values of the statements of the functions that are being inlined
  std::vector<int32_t> opened_;                // open loops of the function that writes
  std::string why_;
};

}  // namespace lutra
