// Makes the key of an op's call, and the graph of that one op.
#pragma once
#include "jit/eager/collapse.h"
#include "jit/eager/table.h"
#include "jit/graph/graph.h"

namespace lutra {

// A call without its tensors' layouts: the tensors in order, the numbers that are passed at run time (scalars, and
// integers that do not specialise), and the key for everything else.
struct OneOpCall {
  SmallVec<const TensorImpl*, 8> tensors;
  SmallVec<double, 8> scalars;
  SmallVec<SymInt, 8> ints;
  EagerKey key;
  Device device;
};
// Reads the arguments in order. Their kinds, specialising values and the tensors' dtypes go into the key.
void read_call(const OpInfo& op, const Args& args, OneOpCall& call);

// The graph of a call. It has an input for each tensor, then one whose strides are call.ints, if there are any.
struct OneOpGraph {
  std::unique_ptr<Graph> graph;
  bool all_guards = true;  // false: only equalities, since the trace was generic
};

// Returns true if rows are too short for a block of a GPU each. Such rows have code of their own.
bool has_short_rows(const Collapsed& c);
// Makes the graph of a pointwise op on collapsed operands (operand 0 is the result): it writes input 0. generic: the
// hints do not come from the call, so the code serves every call with the same key. Otherwise the hints are the call's
// own sizes.
OneOpGraph pointwise_graph(const OpInfo& op, const Args& args, const OneOpCall& call, const Collapsed& c, DType dtype,
                           bool generic);
// Makes the graph of any other op: sizes and strides are symbols with the call's hints; outputs are the op's results.
OneOpGraph general_graph(const OpInfo& op, const Args& args, const OneOpCall& call);

// Compiles the graph and makes its entry.
std::unique_ptr<EagerEntry> build_entry(OneOpGraph g, const EagerKey& key);

}  // namespace lutra
