// The history of a segment's inputs: tape nodes that stand for the history before the segment.
#include "vm/capture/trace/border.h"

#include <utility>

#include "ops/core/overlap.h"
#include "ops/grad/saved_tensor.h"
#include "ops/grad/tape.h"

namespace lutra {
namespace {

thread_local BorderScope* scope = nullptr;  // scope of the traced call of backward or grad

// A node for the history of an input from before the segment.
struct BorderNode : GradNode {
  BorderNode() { link(*this, {}); }
  const char* name() const override { return "history"; }
  void release() override {}

  [[noreturn]] static void go_beyond() {
    scope->goes_beyond = true;
    fail("the gradient goes on to what was computed before the segment");
  }
  std::vector<Tensor> apply(const std::vector<Tensor>&, bool) override { go_beyond(); }

  // That history may lead to any other input that lt.grad asks for.
  void met(const std::vector<const GradNode*>& targets) override {
    for (const GradNode* target : targets) {
      if (!scope || target == this) continue;
      const Tensor leaf = leaf_of(target);
      if (leaf ? scope->trace.input_of_fake.count(leaf.get()) > 0
               : dynamic_cast<const BorderNode*>(target) != nullptr) {
        go_beyond();
      }
    }
  }
};

}  // namespace

BorderScope::BorderScope(Trace& t) : trace(t), outer_(std::exchange(scope, this)) {}
BorderScope::~BorderScope() { scope = outer_; }

Edge border(const Tensor& fake, const Tensor& real) {
  fake->requires_grad = real->requires_grad;
  if (!real->requires_grad) return {};
  if (!is_leaf(real)) set_history(fake, Ref<GradNode>(new BorderNode), 0);
  return gradient_edge(fake);
}

bool has_new_history(const Trace::TensorInput& in) {
  return in.source && !is_leaf(in.fake) && !(in.fake->autograd->grad_fn == in.edge.node);
}

namespace {

// Returns whether the tensor, or a tensor that it is a view of, reaches an element by two indices. Then the result
// depends on the order of writes.
bool is_written_twice(const Tensor& written) {
  for (Tensor t = written;;) {
    if (!reaches_each_once(t)) return true;
    const Node* made = t->node;
    if (!made || made->inplace || made->args.empty() || !made->args[0].is<Tensor>()) return false;
    const Tensor from = made->args[0].tensor();
    if (!(from->storage == t->storage)) return false;
    t = from;
  }
}

}  // namespace

void see_writes(Trace& t, size_t first) {
  for (size_t n = first; n < t.graph->nodes.size(); n++) {
    const Node& node = *t.graph->nodes[n];
    if (node.inplace && is_written_twice(node.args[0].tensor())) {
      t.stop(Break::shared_memory, {"", "what is written overlaps itself: write to a clone", true});
    }
    const auto written =
        node.inplace ? t.input_of_storage.find(node.args[0].tensor()->storage.get()) : t.input_of_storage.end();
    if (written == t.input_of_storage.end()) continue;
    const auto i = size_t(written->second);
    const auto& in = t.inputs[i];
    if (in.memory && node.args[0].tensor()->requires_grad) t.stop(Break::shared_memory, {.dirty = true});
    if (!in.fake->requires_grad) continue;
    t.program.tensors[i].written = true;
    if (in.real->base && has_hooks(in.real)) t.stop(Break::hooked_view, {.dirty = true});
    if (in.real->base && grad_enabled()) t.stop(Break::view_history, {.dirty = true});
  }
}

}  // namespace lutra
