// Unbacked sizes: those of results like nonzero's, which a run knows when the op has run. In a graph they are integers
// made of numbers of the graph that no caller brings. An element that is told is such a number itself.
#pragma once
#include <span>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// Who names such sizes for what this thread records, while it lives. Where there is nobody, no graph holds the ops.
class UnbackedSizes {
 public:
  UnbackedSizes();
  virtual ~UnbackedSizes();
  UnbackedSizes(const UnbackedSizes&) = delete;
  static UnbackedSizes* current();
  virtual bool takes() = 0;  // false: there is nobody, after all
  // Of the result of op; it is `most` at most.
  virtual SymInt size(OpId op, SymInt most) = 0;

 private:
  UnbackedSizes* outer_;
};

// The size that a node has already, for its copy.
struct SameUnbackedSize : UnbackedSizes {
  explicit SameUnbackedSize(const Node& node) : node_(node) {}
  bool takes() override { return true; }
  SymInt size(OpId, SymInt) override { return node_.results[0]->sizes[0]; }

 private:
  const Node& node_;
};

// The result of an op whose shape depends on elements. Throws NeedsData where no graph holds it.
ResultSpecs unbacked_specs(OpId op, const Args& args);
// What such a node tells: the size of its result, or a number.
int32_t unbacked_expr(const Node& node);
// The numbers of the graph that its nodes tell, in their order.
std::vector<int32_t> unbacked_numbers(const Graph& graph);
// The number of the graph that it is made of.
int32_t unbacked_number(std::span<const SymExpr> exprs, int32_t told);
// By expression: 0, or the last of the numbers it is made of, counted from 1 in the order of `numbers`.
std::vector<int32_t> unbacked_levels(std::span<const SymExpr> exprs, std::span<const int32_t> numbers);

// What a real result of such an op tells. Of an element, the device is waited for.
double told_value(OpId op, const Tensor& result);

// A size that came is none that the graph was made for: the run is given up before it has changed anything.
struct UnbackedMiss : Error {
  OpId op;
  int32_t number;  // of the graph
  double value;
  UnbackedMiss(OpId op, int32_t number, double value)
      : Error(ErrorKind::kData, "a size that elements decide is none that the graph was made for"),
        op(op),
        number(number),
        value(value) {}
};

}  // namespace lutra
