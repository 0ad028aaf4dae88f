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

SizeAnswers::SizeAnswers(const Graph& graph, std::shared_ptr<SymEnv> env, size_t guarded) : env_(std::move(env)) {
  std::vector<int32_t> positions;
  int32_t next = 0;
  for (const GraphInput& in : graph.inputs) positions.push_back(in.constant ? -1 : next++);
  program_.begin(env_->exprs(), positions);
  const std::vector<SymGuard>& guards = env_->guards();
  for (size_t i = guarded; i < guards.size(); i++) program_.add_guard(guards[i]);
}

bool SizeAnswers::hold(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) const {
  std::vector<InputView> views;
  for (const Tensor& t : inputs) views.push_back({nullptr, t->sizes.begin(), t->strides.begin()});
  std::vector<HostValue> values = program_.start_values();
  program_.run(values.data(), views.data(), scalars.data());
  return program_.guards_hold(values.data());
}

EventuallyCompiled::EventuallyCompiled(std::unique_ptr<Graph> graph, const CompileOptions& options, size_t guarded)
    : guarded_(guarded) {
  views_ = plain_views(*graph);
  const bool symbolic = graph->env->size() > SymEnv().size();
  if (!options.background && !symbolic) {
    compiled_ = compile_graph(std::move(graph), options);
    return;
  }
  uncompiled_ = rebuild(*graph, [](Rebuilder&, const Node&, Args&, Results&) { return false; });
  uncompiled_->env = copy_of(*graph->env);
  interpreted_ = std::move(graph);
  if (options.background) {
    later_ = std::make_unique<CompileLater>([this, options] { compile(options); });
  } else {
    compile(options);
  }
}

void EventuallyCompiled::compile(const CompileOptions& options) {
  std::shared_ptr<SymEnv> env = uncompiled_->env;
  compiled_ = compile_graph(std::move(uncompiled_), options);
  auto answers = std::make_unique<SizeAnswers>(*interpreted_, std::move(env), guarded_);
  if (!answers->empty()) answers_ = std::move(answers);
  if (!answers_ && !options.background) interpreted_.reset();
}

std::vector<Value> EventuallyCompiled::run_compiled(const std::vector<Tensor>& inputs,
                                                    const std::vector<double>& scalars) {
  std::vector<Value> out = compiled_.run(inputs, scalars);
  link_plain_views(views_, out);
  return out;
}

std::vector<Value> EventuallyCompiled::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) {
  const bool made = !later_ || later_->done();
  if (made && later_) later_->check();
  if (made && (!answers_ || answers_->hold(inputs, scalars))) return run_compiled(inputs, scalars);
  GradModeScope no_grad(false);
  return interpret_apart(*interpreted_, inputs, scalars);
}

}  // namespace lutra
