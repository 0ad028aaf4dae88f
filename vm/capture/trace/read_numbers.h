// Numbers that item() reads of a graph's tensors: values of the graph, tensors without dims, until Lua has to know one.
#pragma once
#include <string_view>

#include "vm/bytecode/dump.h"
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

// Whether what the graph cannot hold costs nothing here: before the first op, and in a loop.
bool ends_graph(const Trace& t);
Vars run_item(Trace& t, Var* self, const Vars& args);
Vars run_tolist(Trace& t, Var* self, const Vars& args);
Vars run_totable(Trace& t, Var* self, const Vars& args);
// Booleans that equal, allclose and item() tell are tensors of the graph, too.
Vars run_equal(Trace& t, Var* self, const Vars& args);
Vars run_allclose(Trace& t, Var* self, const Vars& args);
Var* read_not(Trace& t, Var* v);
// a op b of numbers, of which one at least was read.
Var* read_arithmetic(Trace& t, bc::Op op, Var* a, Var* b);
// math.sqrt, math.floor, math.ceil, math.abs of a number that was read, by the function's name. For other functions the
// number itself, as one of the graph.
Var* read_rounded(Trace& t, std::string_view name, Var* v);
// math.max or math.min of two numbers, of which one at least was read.
Var* read_extreme(Trace& t, bool most, Var* a, Var* b, Device device);
// A number that was read as a number of the graph, which a run knows when the element is there: for sizes, indices and
// all that Lua has to compute.
Scalar told_number(Trace& t, Var* v);
// The arguments of a call of an op: a number that was read as a tensor of the dtype of the other operand, where that
// makes no difference.
void pass_read_numbers(Trace& t, const Binding& b, Vars& args);

}  // namespace lutra
