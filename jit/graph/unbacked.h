// Unbacked sizes: the sizes of results like nonzero's, which are known once the op has run. A graph represents such a
// size as an integer made from a scalar of the graph that the caller does not pass. The number that tell_number reads
// from a tensor is such a scalar itself.
#pragma once
#include <span>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// Makes unbacked sizes for the graph that this thread records, while the object lives. Without one (current() is null),
// no graph can hold such ops.
class UnbackedSizes {
 public:
  UnbackedSizes();
  virtual ~UnbackedSizes();
  UnbackedSizes(const UnbackedSizes&) = delete;
  static UnbackedSizes* current();
  // Returns false if it makes no size now, as if it were absent. `first`: a size may begin the graph.
  virtual bool takes(bool first = true) = 0;
  // Returns the size of op's result. `most` is an upper bound.
  virtual SymInt size(OpId op, SymInt most) = 0;

 private:
  UnbackedSizes* outer_;
};

// Gives the copy of a node the same size as the node.
struct SameUnbackedSize : UnbackedSizes {
  explicit SameUnbackedSize(const Node& node) : node_(node) {}
  bool takes(bool) override { return true; }
  SymInt size(OpId, SymInt) override { return node_.results[0]->sizes[0]; }

 private:
  const Node& node_;
};

// Returns the result types of an op whose shape depends on elements. Throws NeedsData if no graph can hold the op.
ResultSpecs unbacked_specs(OpId op, const Args& args);
// Returns the expression that such a node determines: the size of its result, or a number.
int32_t unbacked_expr(const Node& node);
// Returns the graph's scalars that its nodes determine, in the order of the nodes.
std::vector<int32_t> unbacked_numbers(const Graph& graph);
// Returns the scalar of the graph that such an expression is made from.
int32_t unbacked_number(std::span<const SymExpr> exprs, int32_t expr);
// Returns a level for each expression: the position in `numbers` of the last one that it depends on, counted from 1; 0
// if none.
std::vector<int32_t> unbacked_levels(std::span<const SymExpr> exprs, std::span<const int32_t> numbers);

// Reads the number that a real result of such an op determines. For an element, it waits for the device.
double determined_value(OpId op, const Tensor& result);

// Thrown if a size is outside the guards that the graph was compiled under. The run stops before it has changed
// anything.
struct UnbackedMiss : Error {
  OpId op;
  int32_t number;  // index of the graph's scalar
  double value;
  UnbackedMiss(OpId op, int32_t number, double value)
      : Error(ErrorKind::kData, "a size that elements decide is none that the graph was made for"),
        op(op),
        number(number),
        value(value) {}
};

}  // namespace lutra
