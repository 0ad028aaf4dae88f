// Rebuilder, the base of every pass: it walks a graph in order and records each node into a new graph.
#include <optional>

#include "jit/graph/unbacked.h"
#include "jit/passes/passes.h"

namespace lutra {

Tensor Rebuilder::map(const Tensor& t) const {
  if (!t) return t;
  auto it = values_.find(t.get());
  LUTRA_CHECK(it != values_.end(), "a value without its node");
  return it->second;
}

Tensor Rebuilder::map_input(const Tensor& t) const {
  for (size_t i = 0; i < from.inputs.size(); i++) {
    if (from.inputs[i].value.same(t)) return graph->inputs[i].value;
  }
  fail_internal("not an input");
}

Value Rebuilder::map(const Value& v) const {
  if (v.is<Tensor>()) return map(v.tensor());
  if (!v.is<std::vector<Tensor>>()) return v;
  std::vector<Tensor> list;
  for (const Tensor& t : v.as<std::vector<Tensor>>()) list.push_back(map(t));
  return list;
}

Args Rebuilder::map(const Args& args) const {
  Args out;
  for (const Value& v : args) out.push_back(map(v));
  return out;
}

Rebuilder::Rebuilder(const Graph& g)
    : from(g), graph(std::make_unique<Graph>()), recorder(*graph), symbols_(g.env.get()), no_grad_(false) {
  graph->env = g.env;
  graph->scalars = g.scalars;
  graph->rng_calls = g.rng_calls;
  std::unordered_map<const Storage*, Ref<Storage>> storages;
  for (const GraphInput& in : g.inputs) {
    Tensor t = graph->add_input(in.name, in.value->sizes, in.value->strides, in.value->dtype, in.value->device());
    t->requires_grad = in.value->requires_grad;
    t->offset = in.value->offset;
    graph->inputs.back().constant = in.constant;
    auto [it, fresh] = storages.emplace(in.value->storage.get(), t->storage);
    if (!fresh) t->storage = it->second;
    set(in.value, t);
  }
}

void Rebuilder::at(const Node& n) { recorder.set_location(n.file, n.line, n.origin); }

Results Rebuilder::copy(const Node& n, Args args) {
  at(n);
  std::optional<SameUnbackedSize> size;
  if (info(n.op).dynamic) size.emplace(n);
  if (n.is_inplace_form()) return {recorder.call_inplace(n.op, args)};
  Results results = recorder.call(n.op, args);
  if (n.rng >= 0) graph->nodes.back()->rng = n.rng;
  if (n.written >= 0) graph->nodes.back()->written = n.written;
  graph->rng_calls = from.rng_calls;
  return results;
}

void Rebuilder::set(const Node& n, const Results& results) {
  if (n.inplace) return;
  for (size_t i = 0; i < n.results.size(); i++) set(n.results[i], results[i]);
}

GraphPtr Rebuilder::finish() {
  for (const Value& v : from.outputs) graph->outputs.push_back(map(v));
  graph->renumber();
  return std::move(graph);
}

GraphPtr rebuild(const Graph& g, const Rewrite& rewrite) {
  Rebuilder b(g);
  for (const auto& n : g.nodes) {
    Args args = b.map(n->args);
    b.at(*n);
    Results results;
    if (!rewrite(b, *n, args, results)) results = b.copy(*n, args);
    b.set(*n, results);
  }
  return b.finish();
}

GraphPtr copy_of(const Graph& g) {
  return rebuild(g, [](Rebuilder&, const Node&, Args&, Results&) { return false; });
}

}  // namespace lutra
