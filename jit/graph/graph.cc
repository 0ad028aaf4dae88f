// Building graphs: inputs, and the recorder that turns call_op into nodes.
#include "jit/graph/graph.h"

#include "jit/graph/unbacked.h"
#include "ops/core/interrupt.h"

namespace lutra {

bool may_fail(const Node& node) {
  if (node.is_input()) return false;
  const OpInfo& op = info(node.op);
  return op.dynamic || op.has(kFails) || (op.has(kFailsOnIntegers) && !is_float(node.results[0]->dtype));
}

Tensor Graph::add_input(const std::string& name, const Sizes& sizes, const Sizes& strides, DType dtype, Device device) {
  auto node = std::make_unique<Node>();
  node->op = OpId::input;
  Tensor t = make_fake(sizes, strides, dtype, device);
  t->node = node.get();
  node->results = {t};
  inputs.push_back({t, name, Tensor()});
  input_nodes.push_back(std::move(node));
  return t;
}

Tensor Graph::add_constant(const std::string& name, const Tensor& real) {
  for (const GraphInput& in : inputs) {
    if (in.constant.same(real)) return in.value;
  }
  Tensor t = add_input(name, real->sizes, real->strides, real->dtype, real->device());
  inputs.back().constant = real;
  return t;
}

Device device_of(const Graph& graph) {
  for (const auto& n : graph.nodes) {
    for (const Tensor& t : n->results) return t->device();
  }
  return graph.inputs.empty() ? Device() : graph.inputs[0].value->device();
}

std::vector<Tensor> constants_of(const Graph& graph) {
  std::vector<Tensor> constants;
  for (const GraphInput& in : graph.inputs) {
    if (in.constant) constants.push_back(in.constant);
  }
  return constants;
}

Scalar Graph::add_scalar(const std::string& name, double hint) {
  Scalar s(hint);
  s.expr = env->leaf(SymOp::kScalarInput, int32_t(scalars.size()), 0, 0, hint);
  scalars.push_back({name, hint});
  return s;
}

void Graph::renumber() {
  int next = 0;
  auto number = [&](Node& n) {
    n.id = next;
    next += std::max<int>(1, n.inplace ? 1 : int(n.results.size()));
  };
  for (auto& n : input_nodes) number(*n);
  for (auto& n : nodes) number(*n);
}

Node* GraphRecorder::append(OpId op, Args& args) {
  check_stop();  // capture, derivatives and passes all come here for each node
  auto lift = [&](Tensor& t) {
    if (t && !t->is_fake()) t = graph_.add_constant("constant", t);
  };
  for (Value& v : args) {
    if (v.is<Tensor>()) lift(v.as<Tensor>());
    if (v.is<std::vector<Tensor>>()) {
      for (Tensor& t : v.as<std::vector<Tensor>>()) lift(t);
    }
  }
  auto node = std::make_unique<Node>();
  node->op = op;
  node->args = args;
  node->file = file_;
  node->line = line_;
  node->origin = origin_ != OpId::kCount ? origin_ : current_origin();
  if (info(op).has(kRandom)) node->rng = graph_.rng_calls++;
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().get();
}

void GraphRecorder::settle_device(OpId op, Device device) {
  if (!graph_.device) graph_.device = device;
  if (*graph_.device == device) return;
  throw NeedsData(str(name(op), " is on ", to_string(device), ", what comes before it on ", to_string(*graph_.device)));
}

Results GraphRecorder::call(OpId op, Args& args) {
  ResultSpecs specs = info(op).meta(op, args);
  if (info(op).has(kByParts) && (specs.empty() || specs[0].parts)) {
    ModeScope again(this);
    return call_parts(info(op), args);
  }
  if (info(op).dynamic) specs = unbacked_specs(op, args);
  if (!info(op).has(kView)) settle_device(op, result_device(info(op), args));
  Node* node = append(op, args);
  for (const ResultSpec& spec : specs) {
    Tensor t;
    if (node->is_copy()) {
      t = node->args[0].tensor();
      node->results.push_back(t);
      node->inplace = true;
      continue;
    }
    if (spec.view) {
      const Tensor& base = node->args[0].as<Tensor>();
      t = alias(op, base, spec);
    } else {
      t = make_fake(spec.sizes, spec.strides, spec.dtype, result_device(info(op), node->args));
    }
    t->node = node;
    t->result = int32_t(node->results.size());
    node->results.push_back(t);
  }
  return node->results;
}

Tensor GraphRecorder::call_inplace(OpId op, Args& args) {
  info(op).meta(op, args);  // raises on bad arguments
  settle_device(op, args[0].as<Tensor>()->device());
  Node* node = append(op, args);
  node->inplace = true;
  node->results = {node->args[0].as<Tensor>()};
  return node->results[0];
}

}  // namespace lutra
