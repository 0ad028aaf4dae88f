// If a body is arithmetic on elements, several steps become one kernel, whose values stay in registers from step to
// step. It must be known that these steps are made: a test of counters decides this some steps ahead.
#include "jit/schedule/several_steps.h"

#include <algorithm>

#include "jit/graph/function.h"
#include "jit/graph/replay.h"
#include "jit/passes/passes.h"
#include "jit/schedule/plan.h"
#include "ops/decompose/emit.h"
#include "ops/defs/control.h"
#include "ops/defs/cost.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;

constexpr int kMaxWork = 64;              // of the steps together; more takes long to compile, and is not limited by
                                          // memory
constexpr int64_t kMaxTestElements = 16;  // in each value that the test computes

bool is_plain(const Node& n) {
  const OpInfo& row = info(n.op);
  const bool loop = row.has(kPointwise) || row.has(kView) || row.has(kCreation);
  return loop && !row.has(kRandom) && !row.has(kMutates) && !may_fail(n) && !n.inplace;
}

// Returns true if the steps may become one kernel.
bool joins(const Graph& step) {
  int work = 0;
  for (const auto& n : step.nodes) {
    if (!is_plain(*n)) return false;
    if (!info(n->op).has(kView)) work += element_work(n->op);
  }
  return work * kStepsAtOnce <= kMaxWork;
}

bool is_small(const Graph& g) {
  return std::all_of(g.nodes.begin(), g.nodes.end(),
                     [](const auto& n) { return is_plain(*n) && n->results[0]->numel().hint <= kMaxTestElements; });
}

void append(Tensors& to, const Tensors& from) { to.insert(to.end(), from.begin(), from.end()); }

// A graph under construction, from calls of other graphs.
class Steps {
 public:
  explicit Steps(const Graph& f) : graph_(function_graph(f.env)), symbols_(f.env.get()), no_grad_(false) {}

  // Adds inputs like the parameters [from, to) of f.
  Tensors parameters(const Graph& f, size_t from, size_t to) {
    Tensors out;
    for (size_t i = from; i < to; i++) {
      const Tensor& t = f.inputs[i].value;
      out.push_back(graph_->add_input("x", t->sizes, t->strides, t->dtype, t->device()));
    }
    return out;
  }

  Tensors call(const Graph& f, const Tensors& arguments) {
    GraphValues now(f, arguments);
    for (const auto& n : f.nodes) {
      recorder_.set_location(n->file, n->line, n->origin);
      Args args = now.arguments_of(*n);
      now.add(*n, recorder_.call(n->op, args));
    }
    return now.outputs();
  }

  Tensor both(const Tensor& before, const Tensor& t) {
    const ModeScope mode(&recorder_);
    const Tensor flag = to_dtype(reshape(t, {}), DType::kBool);
    return before ? where(before, flag, before) : flag;
  }

  GraphPtr finish(const Tensors& results) {
    for (const Tensor& t : results) graph_->outputs.emplace_back(t);
    graph_->renumber();
    return dce(*decompose(*graph_));
  }

 private:
  GraphPtr graph_;
  GraphRecorder recorder_{*graph_};
  SymScope symbols_;
  GradModeScope no_grad_;
};

const Graph& function(const Node& loop, size_t i) { return graph_of(loop.args[i].as<FunctionRef>()); }
size_t count(const Node& loop, size_t i) { return loop.args[i].as<Tensors>().size(); }

GraphPtr tests_of(const Graph& test, const Graph& body, size_t carried) {
  Steps steps(body);
  Tensors now = steps.parameters(body, 0, carried);
  const Tensors tests = steps.parameters(test, carried, test.inputs.size());
  const Tensors reads = steps.parameters(body, carried, body.inputs.size());
  Tensor all;
  for (int step = 0; step < kStepsAtOnce; step++) {
    Tensors arguments = now;
    append(arguments, tests);
    all = steps.both(all, steps.call(test, arguments)[0]);
    append(now, reads);
    now = steps.call(body, now);
    now.resize(carried);
  }
  return steps.finish({all});
}

GraphPtr bodies_of(const Graph& body, size_t carried) {
  Steps steps(body);
  Tensors now = steps.parameters(body, 0, carried), beside;
  const Tensors reads = steps.parameters(body, carried, body.inputs.size());
  for (int step = 0; step < kStepsAtOnce; step++) {
    append(now, reads);
    now = steps.call(body, now);
    beside.insert(beside.end(), now.begin() + ptrdiff_t(carried), now.end());
    now.resize(carried);
  }
  append(now, beside);
  return steps.finish(now);
}

GraphPtr backs_of(const Graph& back, size_t sums, size_t saved) {
  Steps steps(back);
  Tensors now = steps.parameters(back, 0, sums);
  std::vector<Tensors> of_step;
  for (int step = 0; step < kStepsAtOnce; step++) of_step.push_back(steps.parameters(back, sums, sums + saved));
  const Tensors reads = steps.parameters(back, sums + saved, back.inputs.size());
  for (const Tensors& values : of_step) {
    append(now, values), append(now, reads);
    now = steps.call(back, now);
  }
  return steps.finish(now);
}

}  // namespace

std::vector<GraphPtr> several_steps(const Node& loop) {
  std::vector<GraphPtr> out;
  if (control_of(loop.op) == Control::kWhileLoop) {
    const Graph &test = function(loop, 0), &body = function(loop, 1);
    const size_t carried = count(loop, 2);
    if (!joins(body) || !std::all_of(test.nodes.begin(), test.nodes.end(), [](const auto& n) { return is_plain(*n); }))
      return out;
    GraphPtr tests = tests_of(test, body, carried);
    if (!is_small(*tests)) return out;
    out.push_back(std::move(tests)), out.push_back(bodies_of(body, carried));
  } else if (control_of(loop.op) == Control::kWhileLoopBack) {
    const size_t saved = function(loop, 0).outputs.size() - count(loop, 3);
    if (!joins(function(loop, 1))) return out;
    out.push_back(backs_of(function(loop, 1), count(loop, 5), saved));
    if (joins(function(loop, 0))) out.push_back(bodies_of(function(loop, 0), count(loop, 3)));
  }
  return out;
}

}  // namespace lutra
