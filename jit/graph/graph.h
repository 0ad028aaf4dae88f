// The graph: SSA over tensors in program order. Its values are FakeTensors (Tensor with node set), so meta rules, vjp
// rules and decompositions build graphs through the same call_op that runs eager code.
// Invariants:
// 1. Each FakeTensor among a node's args is the result of an earlier node of the graph (op input for graph inputs).
// 2. Sizes and strides refer to the graph's SymEnv.
// 3. Until functionalise has run, nodes with inplace or op copy_ write their first argument and everything that aliases
//    it (same fake storage); afterwards the only writes are copy_ nodes into inputs, at the end.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/defs/call.h"

namespace lutra {

struct Node {
  OpId op;
  bool inplace = false;  // result was written into args[0]; results[0] is args[0]
  int id = 0;            // %id in text; dense after Graph::renumber
  int rng = -1;          // kRandom: ordinal of the call index within the graph
  Args args;
  Results results;
  int written = -1;            // set by functionalise: the input that the program overwrote with this value, before any
                               // node read it; -1: none
  OpId origin = OpId::kCount;  // the composite op whose decomposition made it
  const char* file = nullptr;  // interned; where the user's Lua called it
  int line = 0;

  bool is_input() const { return op == OpId::input; }
  bool is_copy() const { return op == OpId::copy_; }
  // x.op_(...): the op's result is written into args[0].
  bool is_inplace_form() const { return inplace && !is_copy(); }
};

// Returns true if the node may raise an error that depends on its elements. Such a node runs even if its results are
// unused.
bool may_fail(const Node& node);

struct GraphInput {
  Tensor value;      // the FakeTensor
  std::string name;  // as the source writes it: "self.fc1.weight"
  Tensor constant;   // not null: a real tensor captured by value, held strongly
};

struct ScalarInput {
  std::string name;
  double hint;
};

struct Graph {
  std::shared_ptr<SymEnv> env = std::make_shared<SymEnv>();
  std::vector<GraphInput> inputs;
  std::vector<ScalarInput> scalars;
  std::vector<std::unique_ptr<Node>> nodes;  // without the inputs' pseudo nodes
  std::vector<Value> outputs;                // Tensor, Scalar (symbolic or constant) or None
  std::vector<std::unique_ptr<Node>> input_nodes;
  int rng_calls = 0;             // call indices that one run consumes, those of dropped nodes included
  std::optional<Device> device;  // the device of the nodes' results; unset until there is a node

  // strides and sizes may hold symbols of env made by leaf(kSize/kStride, index of this input, dim).
  Tensor add_input(const std::string& name, const Sizes& sizes, const Sizes& strides, DType dtype, Device device = {});
  // Adds a real tensor that the graph holds.
  Tensor add_constant(const std::string& name, const Tensor& real);
  Scalar add_scalar(const std::string& name, double hint);
  void renumber();
};

// Returns the device of the nodes' results.
Device device_of(const Graph& graph);

// Returns the real tensors that the graph holds, in the order of its inputs.
std::vector<Tensor> constants_of(const Graph& graph);

// Records call_op on FakeTensors into a graph; real tensors among the arguments become constants.
class GraphRecorder : public Mode {
 public:
  explicit GraphRecorder(Graph& graph) : graph_(graph) {}
  Results call(OpId op, Args& args) override;
  Tensor call_inplace(OpId op, Args& args) override;
  void set_location(const char* file, int line, OpId origin = OpId::kCount) {
    file_ = file, line_ = line, origin_ = origin;
  }

 private:
  Node* append(OpId op, Args& args);
  void settle_device(OpId op, Device device);
  Graph& graph_;
  const char* file_ = nullptr;
  int line_ = 0;
  OpId origin_ = OpId::kCount;
};

// Text form. print, parse, print is the identity.
std::string print(const Graph& graph);
// device: for inputs whose device the text does not give.
std::unique_ptr<Graph> parse_graph(const std::string& text, Device device = {});
// Returns "" for a valid graph, otherwise the first violation.
std::string verify(const Graph& graph);
// Compares the memory that leaves the graph before and after a pass: results must share memory with the same inputs and
// the same other results. Returns "" if they do. Other checks miss a change here: values show it only after somebody
// has written to one of the tensors.
std::string verify_sharing(const Graph& before, const Graph& after);

}  // namespace lutra
