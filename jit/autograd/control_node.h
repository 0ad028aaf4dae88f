// The common base of the tape's nodes for branches and loops, and its helpers.
#pragma once
#include <algorithm>
#include <optional>

#include "jit/autograd/control_gradient.h"
#include "ops/grad/saved_tensor.h"

namespace lutra {

template <class F>
std::vector<SavedTensor> saved(const std::vector<Tensor>& list, const F& is_read) {
  std::vector<SavedTensor> out;
  for (size_t i = 0; i < list.size(); i++) {
    out.push_back(is_read(i) ? SavedTensor::elements_of(list[i]) : SavedTensor::shape_of(list[i]));
  }
  return out;
}
inline bool always(size_t) { return true; }

// Marks values of a graph that is interpreted under the tape: they have their history in that graph.
inline void mark_differentiable(const Results& results) {
  for (const Tensor& t : results) t->requires_grad = is_float(t->dtype);
}

inline Tensor input_like(Graph& graph, const Tensor& t) {
  return graph.add_input("x", t->sizes, t->strides, t->dtype, t->device());
}

// Returns a function with the parameters and the nodes of f. make(parameters, results) returns its results.
template <class F>
FunctionRef rebuilt(const FunctionRef& f, const F& make) {
  const Graph& from = graph_of(f);
  auto graph = function_graph(from.env);
  std::vector<Tensor> parameters;
  for (const GraphInput& in : from.inputs) parameters.push_back(input_like(*graph, in.value));
  GraphRecorder recorder(*graph);
  ModeScope mode(&recorder);
  GradModeScope no_grad(false);
  for (const Tensor& t : make(*graph, parameters, replay(from, parameters, &recorder))) graph->outputs.emplace_back(t);
  graph->renumber();
  return make_function(std::move(graph));
}

// The tape's node of a branch or loop. Its results are the op's; their gradients do not depend on each other. It is
// joint because it adds to the sums that later nodes have sent.
struct ControlNode : GradNode {
  Refuse refuse;
  bool released = false;

  ControlNode() { joint = true; }
  std::vector<Tensor> apply(const std::vector<Tensor>&, bool) override { fail_internal("apply of a joint node"); }
  bool leads(uint32_t, const std::function<bool(const Edge&)>& wanted) override {
    return std::any_of(next.begin(), next.end(), wanted);
  }
  // Notes the first readers among the ops within.
  virtual void note_readers(FirstReaders& out) const = 0;
  virtual bool saves() const = 0;
  virtual void drop() = 0;
  bool is_released() const override { return released; }
  void release() override {
    if (!saves()) return;  // nothing is saved, so such a node may run again
    released = true;
    hooks.clear();
    drop();
  }

  void begin() {
    if (released) fail_second_backward();
    if (tape_watch() && saves()) tape_watch()->spent(this);
  }
  // Passes the gradient of a result through the result's hooks.
  static void visit(const JointCall& call, size_t result, Tensor& g) {
    const auto& points = call.points;
    if (g && std::count(points.begin(), points.end(), uint32_t(result))) g = call.visit(uint32_t(result), g);
  }
  // Takes the sums that later nodes have sent to the first `count` tensors that the node was called on.
  std::vector<Tensor> so_far(const JointCall& call, size_t count = SIZE_MAX) const {
    std::vector<Tensor> sums;
    for (size_t i = 0; i < std::min(count, next.size()); i++) {
      const Edge& e = next[i];
      Tensor* sum = e.node && call.wanted(e) ? call.so_far(e) : nullptr;
      sums.push_back(sum ? std::exchange(*sum, Tensor()) : Tensor());
    }
    return sums;
  }
  // Unpacks a saved tensor. A trace is refused if the tensor was written since: its value is not in the graph then, and
  // eager code may not have read it.
  // op: the op that reads the tensor; null: none in particular.
  Tensor unpack(const SavedTensor& t, const char* op, const Edge* history = nullptr) const {
    try {
      return t.unpack(op ? op : name(), history);
    } catch (const Error& e) {
      if (!tape_watch()) refuse("what it read is written before its backward");
      throw;
    }
  }
  // Like unpack. But while a branch's backward is recorded, it also returns a tensor that was written since: a run that
  // does not take the branch may read any contents.
  Tensor unpack_written(const SavedTensor& t, const char* op) const {
    try {
      return unpack(t, op);
    } catch (const ModifiedError& e) {
      if (!t.is_fake() || !read_by_branch({t.fake(), op ? op : name(), e.writes})) throw;
      return t.fake();
    }
  }
  // first: the parameter of f that list[0] corresponds to.
  std::vector<Tensor> unpack(const std::vector<SavedTensor>& list, const TracedFunction& f, size_t first) const {
    std::vector<Tensor> out;
    for (size_t i = 0; i < list.size(); i++) out.push_back(unpack(list[i], f.first_reader_of_parameter(first + i)));
    return out;
  }
  static void note(FirstReaders& out, const SavedTensor& t, const char* op) {
    if (op && t.is_fake()) out.emplace(t.fake()->storage.get(), op);
  }
  static void note(FirstReaders& out, const std::vector<SavedTensor>& list, const TracedFunction& f, size_t first) {
    for (size_t i = 0; i < list.size(); i++) note(out, list[i], f.first_reader_of_parameter(first + i));
  }
};

inline std::vector<Tensor> joined(std::vector<Tensor> a, const std::vector<Tensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace lutra
