// Keeps two graphs of the same text. So the interpreter shares nothing with a compilation on another thread.
#include "jit/autograd/eventual.h"

#include "jit/autograd/resized.h"
#include "jit/graph/env_copy.h"
#include "jit/graph/replay.h"
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

namespace {

void move_to_copy_of_env(Graph& graph) {
  graph.env = copy_of(*graph.env);
  translate_functions(graph, graph.env, SameIds());
}

}  // namespace

EventuallyCompiled::EventuallyCompiled(std::unique_ptr<Graph> graph, const CompileOptions& options, size_t guarded)
    : guarded_(guarded), options_(options) {
  views_ = plain_views(*graph);
  const bool symbolic = graph->env->size() > SymEnv().size();
  if (!options.background && !symbolic) {
    auto version = std::make_unique<Version>(nullptr);
    version->compiled = compile_graph(std::move(graph), options);
    add(std::move(version));
    return;
  }
  auto version = std::make_unique<Version>(copy_of(*graph));
  move_to_copy_of_env(*version->graph);
  if (symbolic) pattern_ = copy_of(*graph);
  interpreted_ = std::move(graph);
  move_to_copy_of_env(*interpreted_);  // other backwards extend the trace's env
  add(std::move(version));
  if (!options.background && !versions_[0]->answers) interpreted_.reset(), pattern_.reset();
}

// Adds a version and compiles it, or starts to in the background.
void EventuallyCompiled::add(std::unique_ptr<Version> version) {
  Version& v = *version;
  if (v.graph && options_.background) {
    v.later = std::make_unique<CompileLater>([this, &v] {
      const LateTime time(options_);
      compile(v);
    });
  } else if (v.graph) {
    compile(v);
  }
  versions_[made_] = std::move(version);
  made_++;
}

void EventuallyCompiled::compile(Version& version) {
  std::shared_ptr<SymEnv> env = version.graph->env;
  version.compiled = compile_graph(std::move(version.graph), options_);
  auto answers = std::make_unique<SizeAnswers>(*interpreted_, std::move(env), guarded_);
  if (!answers->empty()) version.answers = std::move(answers);
}

void EventuallyCompiled::compile_for(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!pattern_) return;
  for (size_t i = 0; i < made_; i++) {
    if (versions_[i]->later && !versions_[i]->later->done()) return;  // it may serve these sizes
    if (serves(*versions_[i], inputs, scalars)) return;
  }
  if (misses_++ < kMissesBefore) return;
  std::unique_ptr<Graph> graph = resized(*pattern_, *interpreted_->env, inputs, scalars);
  if (graph) add(std::make_unique<Version>(std::move(graph)));
  if (made_ == kMaxVersions) pattern_.reset();
}

bool EventuallyCompiled::wait(std::chrono::milliseconds most) {
  for (size_t i = 0; i < made_; i++) {
    if (versions_[i]->later && !versions_[i]->later->wait(most)) return false;
  }
  return true;
}

bool EventuallyCompiled::serves(Version& version, const std::vector<Tensor>& inputs,
                                const std::vector<double>& scalars) {
  if (version.later && !version.later->done()) return false;
  if (version.later) version.later->check();
  return !version.answers || version.answers->hold(inputs, scalars);
}

std::vector<Value> EventuallyCompiled::run_version(const Version& version, const std::vector<Tensor>& inputs,
                                                   const std::vector<double>& scalars) {
  std::vector<Value> out = version.compiled.run(inputs, scalars);
  link_plain_views(views_, out);
  return out;
}

std::vector<Value> EventuallyCompiled::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) {
  for (const bool again : {false, true}) {
    for (size_t i = 0; i < made_; i++) {
      if (serves(*versions_[i], inputs, scalars)) return run_version(*versions_[i], inputs, scalars);
    }
    if (!again) compile_for(inputs, scalars);
  }
  GradModeScope no_grad(false);
  return interpret_apart(*interpreted_, inputs, scalars);
}

}  // namespace lutra
