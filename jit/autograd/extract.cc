// Copies nodes of a traced graph into a graph of their own.
#include "jit/autograd/extract.h"

#include <optional>

#include "jit/compile.h"
#include "jit/graph/unbacked.h"

namespace lutra {

Rollback::~Rollback() {
  graph.nodes.resize(nodes);
  graph.inputs.resize(inputs);
  graph.input_nodes.resize(inputs);
}

Tensor Extractor::input(const std::string& name, const Tensor& like) {
  Tensor t = out.add_input(name, like->sizes, like->strides, like->dtype, like->device());
  t->offset = like->offset;
  map[like.get()] = t;
  return t;
}

void Extractor::inputs_of(const Graph& traced, size_t count) {
  out.env = traced.env;
  out.scalars = traced.scalars;
  for (size_t i = 0; i < count; i++) {
    Tensor t = input(traced.inputs[i].name, traced.inputs[i].value);
    for (size_t k = 0; k < i; k++) {
      if (traced.inputs[k].value->storage == traced.inputs[i].value->storage) t->storage = out.inputs[k].value->storage;
    }
    out.inputs.back().constant = traced.inputs[i].constant;
  }
}

Tensor Extractor::value(const Tensor& t) {
  auto it = map.find(t.get());
  if (it != map.end()) return it->second;
  if (auto primitive = again.find(t.get()); primitive != again.end()) return map[t.get()] = repeated(primitive->second);
  LUTRA_CHECK(is_view(t), "a value of the forward that was not saved");
  Args args = values(t->node->args);
  Tensor made = recorder.call(t->node->op, args)[size_t(t->result)];
  if (keep_grad) made->requires_grad = t->requires_grad;
  return map[t.get()] = made;
}

Args Extractor::values(Args args) {
  for (Value& v : args) {
    if (v.is<Tensor>() && v.tensor()) v = value(v.tensor());
    if (!v.is<std::vector<Tensor>>()) continue;
    for (Tensor& t : v.as<std::vector<Tensor>>()) t = value(t);
  }
  return args;
}

Tensor Extractor::repeated(const Tensor& t) {
  if (auto it = map.find(t.get()); it != map.end()) return it->second;
  const Node& n = *t->node;
  LUTRA_CHECK(!n.is_input() && !n.inplace, "a value of the forward that cannot be computed again");
  Args args = n.args;
  for (Value& v : args) {
    if (v.is<Tensor>() && v.tensor()) v = repeated(v.tensor());
    if (!v.is<std::vector<Tensor>>()) continue;
    for (Tensor& each : v.as<std::vector<Tensor>>()) each = repeated(each);
  }
  recorder.set_location(n.file, n.line, n.origin);
  const Results results = recorder.call(n.op, args);
  if (n.rng >= 0) out.nodes.back()->rng = n.rng, draws = true;
  for (size_t i = 0; i < results.size(); i++) map[n.results[i].get()] = results[i];
  return map.at(t.get());
}

void Extractor::node(const Node& n) {
  Args args = values(n.args);
  recorder.set_location(n.file, n.line, n.origin);
  if (n.is_inplace_form()) {
    recorder.call_inplace(n.op, args);
    return;
  }
  std::optional<SameUnbackedSize> size;
  if (info(n.op).dynamic) size.emplace(n);
  Results results = recorder.call(n.op, args);
  if (n.rng >= 0) out.nodes.back()->rng = n.rng;
  for (size_t i = 0; i < results.size(); i++) {
    if (keep_grad) results[i]->requires_grad = n.results[i]->requires_grad;
    if (!n.inplace) map[n.results[i].get()] = results[i];
  }
}

Tensor sized_by_run(const Graph& traced, const Tensor& t, const std::vector<Tensor>& inputs,
                    const std::vector<double>& scalars) {
  Graph sizes_of;
  Extractor{sizes_of}.inputs_of(traced, traced.inputs.size());
  for (const SymInt& size : t->sizes) sizes_of.outputs.emplace_back(Scalar::of_sym(size));
  Sizes sizes;
  for (const Value& size : interpret(sizes_of, inputs, scalars)) sizes.push_back(size.as<Scalar>().to_int());
  return alias(t, sizes, contiguous_strides(sizes), 0);
}

}  // namespace lutra
