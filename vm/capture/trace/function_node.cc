// Results of lt.autograd.Function in a trace: a tape node whose gradients the interpreter computes by inlining the
// function's backward when the trace runs a backward.
#include "vm/capture/trace/function_node.h"

#include "ops/grad/node_saves.h"
#include "ops/grad/tape.h"
#include "vm/capture/trace/tensor_lists.h"

namespace lutra {
namespace {

[[noreturn]] void stop_outside(Trace& t) { t.stop(Break::function_gradient); }

std::vector<Tensor> tensors_of(Trace& t, Var* list) {
  std::vector<Tensor> out;
  if (!read_tensors(t, list, out)) stop_outside(t);
  return out;
}

// Like LuaNode of vm/bind, over trackers.
struct FunctionNode : GradNode {
  Trace& trace;
  std::string title;
  Var *function, *context;
  size_t results;
  NodeSaves saved;
  bool refuses = false;  // has been released

  FunctionNode(Trace& t, std::string title, Var* function, Var* context, size_t results)
      : trace(t), title(std::move(title)), function(function), context(context), results(results) {}
  const char* name() const override { return title.c_str(); }
  bool calls_lua() const override { return true; }

  std::vector<Tensor> apply(const std::vector<Tensor>& grads, bool create_graph) override {
    if (refuses || trace.ended) fail_second_backward();  // ended: only if a node on the way refuses
    if (tape_watch() && !saved.empty()) tape_watch()->spent(this);
    std::vector<Tensor> given(grads.begin(), grads.begin() + std::min(results, grads.size()));
    given.resize(results);
    for (Tensor& t : saved.unpack(this, title, create_graph)) given.push_back(std::move(t));
    Vars args{context};
    for (const Tensor& t : given) args.push_back(t ? trace.tensor(t) : trace.nil());
    return inlined(args);
  }

  // Inlines the function's backward. A break inside becomes a break before the call of backward, which cannot be
  // resumed in its middle.
  std::vector<Tensor> inlined(const Vars& args) {
    const size_t depth = trace.frames.size();
    try {
      const Vars out = trace.call(function, args, true);
      std::vector<Tensor> gradients(next.size());
      for (size_t i = 0; i < next.size() && i < out.size(); i++) {
        Var* v = trace.force(out[i]);
        if (v->kind == VarKind::kTensor) gradients[i] = v->tensor;
      }
      return gradients;
    } catch (const GraphBreak& b) {
      trace.frames.resize(depth);
      throw GraphBreak{b.why, true};
    } catch (const LoopStop&) {
      trace.frames.resize(depth);
      trace.stop(Break::function_gradient, {.dirty = true});
    }
  }

  bool is_released() const override { return refuses; }
  void release() override {
    if (saved.empty()) return;  // nothing to free: such a node may run again
    refuses = true;
    hooks.clear();
    saved.clear();
  }
};

}  // namespace

Vars run_make_node(Trace& t, Var*, const Vars& args) {
  if (t.decisions.functions_outside) stop_outside(t);
  const std::vector<Tensor> inputs = tensors_of(t, args.at(3)), results = tensors_of(t, args.at(4)),
                            saved = tensors_of(t, args.at(5));
  for (const Tensor& r : results) {
    if (t.input_of_fake.count(r.get())) stop_outside(t);
  }
  const std::string title = t.text(t.force(args[0]));
  for (const Tensor& r : results) check_is_new(title.c_str(), r);
  auto* node = new FunctionNode(t, title, args[1], args[2], results.size());
  const Ref<GradNode> keep(node);
  link(*node, inputs);
  if (Var* to = args.size() > 6 ? t.force(args[6]) : nullptr; to && to->kind == VarKind::kTensor) {
    auto* earlier = dynamic_cast<FunctionNode*>(gradient_edge(to->tensor).node.get());
    if (!earlier) stop_outside(t);
    for (size_t i = 0; i < results.size(); i++) {
      node->next.push_back({Ref<GradNode>(earlier), uint32_t(earlier->results++)});
    }
  }
  for (size_t i = 0; i < results.size(); i++) set_history(results[i], keep, uint32_t(i));
  for (const Tensor& s : saved) node->saved.save(node, s);
  t.effect = true;
  return {};
}

bool has_function_behind(const Tensor& t) {
  bool function = false;
  for (const GradNode* node : nodes_behind(t)) {
    if (node->is_released()) return false;
    function = function || dynamic_cast<const FunctionNode*>(node);
  }
  return function;
}

}  // namespace lutra
