// A call of an op in; the key that its code is kept under, and the graph of that one op, out.
#pragma once
#include "jit/eager/collapse.h"
#include "jit/eager/table.h"
#include "jit/graph/graph.h"

namespace lutra {

// What a call brings, apart from its tensors' layouts: tensors in order, numbers that are passed when running (scalars,
// and integers that do not specialise), and the words of the key for all that is neither.
struct OneOpCall {
  SmallVec<const TensorImpl*, 8> tensors;
  SmallVec<double, 8> scalars;
  SmallVec<SymInt, 8> ints;
  EagerKey key;
  Device device;
};
// Arguments are read in order: their kinds, specialising values and the tensors' dtypes go into the key.
void read_call(const OpInfo& op, const Args& args, OneOpCall& call);

// A graph input for each tensor, then one whose sizes are call.ints, if there are any.
struct OneOpGraph {
  std::unique_ptr<Graph> graph;
  bool all_guards = true;  // else only equalities: the trace was generic
};

// Whether rows are too short for a block of a GPU each, which has code of its own.
bool has_short_rows(const Collapsed& c);
// For pointwise ops on collapsed operands (operand 0 the result): the graph writes input 0. The trace is generic: its
// hints are no call's, so the code serves every call with the same key. `generic` off takes the call's own numbers.
OneOpGraph pointwise_graph(const OpInfo& op, const Args& args, const OneOpCall& call, const Collapsed& c, DType dtype,
                           bool generic);
// For any other op: sizes and strides are symbols with the call's hints; outputs are the op's results.
OneOpGraph general_graph(const OpInfo& op, const Args& args, const OneOpCall& call);

// Graph to entry: decomposed where needed, scheduled, compiled.
std::unique_ptr<EagerEntry> build_entry(OneOpGraph g, const EagerKey& key);

}  // namespace lutra
