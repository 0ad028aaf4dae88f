// Two graphs of one text: what is interpreted here shares nothing with what is compiled elsewhere.
#include "jit/autograd/eventual.h"

#include "jit/graph/env_copy.h"
#include "jit/passes/passes.h"

namespace lutra {

bool is_plain_view(const Tensor& t) { return t->base && !t->view; }

void make_plain_view(const Tensor& t) {
  if (!t->base) t->base = alias(t, t->sizes, t->strides, t->offset);
}

std::vector<size_t> plain_views(const Graph& graph) {
  std::vector<size_t> views;
  for (size_t i = 0; i < graph.outputs.size(); i++) {
    const Value& v = graph.outputs[i];
    if (v.is<Tensor>() && v.tensor() && is_plain_view(v.tensor())) views.push_back(i);
  }
  return views;
}

void link_plain_views(const std::vector<size_t>& views, const std::vector<Value>& results) {
  for (size_t i : views) make_plain_view(results[i].tensor());
}

EventuallyCompiled::EventuallyCompiled(std::unique_ptr<Graph> graph, const CompileOptions& options) {
  views_ = plain_views(*graph);
  if (!options.background) {
    compiled_ = compile_graph(std::move(graph), options);
    return;
  }
  uncompiled_ = rebuild(*graph, [](Rebuilder&, const Node&, Args&, Results&) { return false; });
  uncompiled_->env = copy_of(*graph->env);
  interpreted_ = std::move(graph);
  later_ =
      std::make_unique<CompileLater>([this, options] { compiled_ = compile_graph(std::move(uncompiled_), options); });
}

std::vector<Value> EventuallyCompiled::run_compiled(const std::vector<Tensor>& inputs,
                                                    const std::vector<double>& scalars) {
  std::vector<Value> out = compiled_.run(inputs, scalars);
  link_plain_views(views_, out);
  return out;
}

std::vector<Value> EventuallyCompiled::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) {
  if (!later_) return run_compiled(inputs, scalars);
  if (later_->done()) {
    later_->check();
    return run_compiled(inputs, scalars);
  }
  GradModeScope no_grad(false);
  return interpret_apart(*interpreted_, inputs, scalars);
}

}  // namespace lutra
