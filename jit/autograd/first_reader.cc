// Finds the op whose backward is the first to read a value of a function. In: the function with its tape. So the error
// of a branch or a loop names the same op as eager's.
#include "jit/autograd/control_node.h"

namespace lutra {
namespace {

// Notes the tensors that nodes of the tape saved.
struct Saved final : NodeVisitor {
  FirstReaders& out;
  explicit Saved(FirstReaders& out) : out(out) {}
  void fact(uint64_t) override {}
  void size(SymInt&) override {}
  void number(Scalar&) override {}
  void fixed(Tensor&) override {}
  void object(const std::shared_ptr<const void>&) override {}
  void saved(SavedTensor& s, const char* op) override {
    if (s.is_fake()) out.emplace(s.fake()->storage.get(), op);
  }
};

}  // namespace

// Goes through the nodes from the last one, where a backward begins.
const char* TracedFunction::first_reader(const Tensor& value) const {
  const auto& nodes = forward_.graph->nodes;
  const bool known = readers_.has_value();
  if (!known) readers_.emplace();
  for (size_t i = known ? 0 : nodes.size(); i-- > 0;) {
    for (const Tensor& t : nodes[i]->results) {
      GradNode* const node = t->requires_grad ? gradient_edge(t).node.get() : nullptr;
      if (!node) continue;
      Saved saved(*readers_);
      if (const auto* control = dynamic_cast<const ControlNode*>(node)) {
        control->note_readers(*readers_);
      } else {
        node->visit(saved);
      }
    }
  }
  const auto it = readers_->find(value->storage.get());
  return it == readers_->end() ? nullptr : it->second;
}
const char* TracedFunction::first_reader_of_parameter(size_t parameter) const {
  return first_reader(forward_.graph->inputs[parameter].value);
}
const char* TracedFunction::first_reader_of_result(size_t result) const {
  return first_reader(forward_.graph->outputs[result].tensor()->node->args[0].tensor());
}

}  // namespace lutra
