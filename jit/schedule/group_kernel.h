// A set of units in; one kernel that makes those of their values that go to memory, or why it cannot be, out.
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

// Which loops the kernel of a group has. Axes are the dimensions of its widest domain that may be larger than one.
struct GroupShape {
  enum Kind : uint8_t { kFlat, kRows, kColumns } kind = kFlat;  // no reduction; over the innermost dim; over others
  struct Axis {
    SymInt size;
    bool reduced;
  };
  std::vector<Axis> axes;
};

// Writes one kernel.
// Invariants:
// 1. A unit of the group is computed again wherever its value is needed (numbered by value within a loop); nothing is
//    read from memory that the kernel writes, but an input at the very position where it is overwritten, and kept
//    elements: a heavy value that a reduction along rows computes first stays in a result of the row for the loops
//    after it, at its own position.
// 2. The kernel has loops over the axes that are kept, in them one nest for each level of reductions, then one for the
//    results over all axes. Within a nest all values are computed before the first store.
// 3. A reduction's value is used only in the row it belongs to.
class GroupKernel {
 public:
  // roots: the members whose values go to memory.
  GroupKernel(ComputeUnits& units, const std::vector<int32_t>& members, const std::vector<int32_t>& roots);
  // Empty when the group makes one good kernel.
  const std::string& build();
  // Once built: what it does.
  Work work() const;
  // And as the kernel of one unit: tells the unit what it is made of.
  void measure(ComputeUnit& unit) const;
  // Instead: a kernel that copies `from` into the memory of a source laid out as `to`.
  void build_copy(const Tensor& from, int32_t source, const Tensor& to);

  // Instead: a kernel of one of a unit's functions that write its memory; parallel: its outermost loop may be.
  void build_write(const ElementFunction& write, int32_t unit, bool parallel);

  Body body;
  std::vector<KernelFault> faults;

 private:
  struct Batch {
    std::vector<std::vector<int>> nest;  // axes, -1: a loop over one
    int32_t lanes = 1;
    std::vector<int32_t> units;
  };
  void refuse(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
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
  std::vector<int32_t> checked_;  // units whose checks cover all their elements
  std::unordered_map<int32_t, int> levels_;
  std::vector<int32_t> wanted_;                // units that full roots compute in their own loop
  std::unordered_map<int32_t, int32_t> kept_;  // unit -> root in whose memory its elements are
  std::vector<int32_t> keepers_;               // full roots that can be such a root and are not yet
  int deepest_ = 0;                            // reductions one after the other
  bool stores_all_ = false;                    // has full roots
  std::vector<int32_t> inlined_;               // values of the statements of the functions that are being inlined
  std::vector<int32_t> opened_;                // loops of the function that writes
  std::string why_;
};

}  // namespace lutra
