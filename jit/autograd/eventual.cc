// Two graphs of one text: what is interpreted here shares nothing with what is compiled elsewhere.
#include "jit/autograd/eventual.h"

#include "jit/graph/env_copy.h"
#include "jit/passes/passes.h"

namespace lutra {

EventuallyCompiled::EventuallyCompiled(std::unique_ptr<Graph> graph, const CompileOptions& options) {
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

std::vector<Value> EventuallyCompiled::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) {
  if (!later_) return compiled_.run(inputs, scalars);
  if (later_->done()) {
    later_->check();
    return compiled_.run(inputs, scalars);
  }
  GradModeScope no_grad(false);
  return interpret_apart(*interpreted_, inputs, scalars);
}

}  // namespace lutra
