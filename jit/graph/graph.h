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
  int written = -1;            // functionalised: the input that the program set to it there, and had not read
  OpId origin = OpId::kCount;  // the composite op whose decomposition made it
  const char* file = nullptr;  // interned; where the user's Lua called it
  int line = 0;

  bool is_input() const { return op == OpId::input; }
  bool is_copy() const { return op == OpId::copy_; }
  // x.op_(...): what op gives was written into args[0].
  bool is_inplace_form() const { return inplace && !is_copy(); }
};

// Whether the node may raise on the elements it is given: it is run whether its results are used or not.
bool may_fail(const Node& node);

struct GraphInput {
  Tensor value;      // the FakeTensor
  std::string name;  // how the source reads: "self.fc1.weight"
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
  int rng_calls = 0;             // call indices that one run consumes, dead ones included
  std::optional<Device> device;  // of what its nodes make; unset while there is none

  // strides and sizes may hold symbols of env made by leaf(kSize/kStride, index of this input, dim).
  Tensor add_input(const std::string& name, const Sizes& sizes, const Sizes& strides, DType dtype, Device device = {});
  // A real tensor that the graph holds.
  Tensor add_constant(const std::string& name, const Tensor& real);
  Scalar add_scalar(const std::string& name, double hint);
  void renumber();
};

// Of what the graph makes.
Device device_of(const Graph& graph);

// The real tensors that the graph holds, in the order of its inputs.
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
// device: of the inputs, which the text does not say.
std::unique_ptr<Graph> parse_graph(const std::string& text, Device device = {});
// An empty string, or what is wrong.
std::string verify(const Graph& graph);
// What a pass has changed in the memory that leaves the graph: results share it with inputs and with each other as
// before
// ("" if so). Values do not show it until somebody writes to one.
std::string verify_sharing(const Graph& before, const Graph& after);

}  // namespace lutra
