// Numbers that item() reads from a graph's tensors. They are values of the graph, 0-dim tensors, until Lua needs their
// value.
#pragma once
#include <string_view>

#include "vm/bytecode/dump.h"
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

// Returns whether a read may end the graph without cost: before the first op, and in a loop.
bool ends_graph(const Trace& t);
// Returns whether a frame of the trace is in a loop.
bool is_in_loop(const Trace& t);
Vars run_item(Trace& t, Var* self, const Vars& args);
Vars run_tolist(Trace& t, Var* self, const Vars& args);
Vars run_totable(Trace& t, Var* self, const Vars& args);
// Booleans from equal, allclose and item() are tensors of the graph, too.
Vars run_equal(Trace& t, Var* self, const Vars& args);
Vars run_allclose(Trace& t, Var* self, const Vars& args);
Var* read_not(Trace& t, Var* v);
// Computes a op b of numbers, at least one of which was read.
Var* read_arithmetic(Trace& t, bc::Op op, Var* a, Var* b);
// Computes math.sqrt, math.floor, math.ceil or math.abs of a number that was read, by the function's name. For other
// functions returns the number itself, as a number of the graph.
Var* read_rounded(Trace& t, std::string_view name, Var* v);
// Computes math.max or math.min of two numbers, at least one of which was read.
Var* read_extreme(Trace& t, bool most, Var* a, Var* b, Device device);
// Turns a number that was read into a number of the graph, whose value the run knows once the element is computed. For
// sizes, indices and everything that Lua has to compute.
Scalar graph_number(Trace& t, Var* v);
// Replaces numbers that were read among the arguments of an op by tensors of the other operand's dtype, if that does
// not change the result.
void pass_read_numbers(Trace& t, const Binding& b, Vars& args);

}  // namespace lutra
