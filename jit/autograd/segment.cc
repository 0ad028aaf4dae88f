// Chooses the kind of a segment, and implements the one without a backward of its own.
#include "jit/autograd/segment.h"

#include "jit/autograd/compiled_autograd.h"
#include "jit/autograd/write_counts.h"
#include "jit/runtime/lines.h"
#include "ops/core/dense.h"

namespace lutra {
namespace {

// Drops the history of traced values, since it leads to the program's tensors and their nodes.
void drop_history(Graph& graph) {
  const auto drop = [](const Tensor& t) { t->autograd = nullptr, t->view = nullptr; };
  for (const auto& in : graph.inputs) drop(in.value);
  for (const auto& n : graph.nodes) {
    for (const Tensor& t : n->results) drop(t);
  }
}

class WholeSegment final : public Segment {
 public:
  WholeSegment(std::unique_ptr<Graph> graph, const CompileOptions& options)
      : writes_(WriteCounts::of(*graph)), uncompiled_(std::move(graph)), options_(options) {
    drop_history(*uncompiled_);
  }

  void ready() override {
    text_ = print(*uncompiled_);
    options_.text = &text_;
    compiled_ = compile_graph(std::move(uncompiled_), options_);
  }
  const std::string& text() const override { return text_; }
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors, std::vector<InputView>* views) override {
    note_lines(this, kRead);
    GradModeScope no_grad(false);
    std::vector<uint32_t> before;
    if (!writes_.empty()) before = writes_.before(inputs);
    std::vector<Value> outputs = compiled_.run(inputs, scalars, donors, views);
    if (!writes_.empty()) writes_.after(before, inputs, outputs);
    return outputs;
  }
  const Compiled& forward() const override { return compiled_; }
  const PlainRun* plain() const override {
    const bool more = !writes_.empty() || compiled_.watch || !compiled_.executable;
    return more ? nullptr : compiled_.executable->runner().plain();
  }

 private:
  // The members that runs read come first.
  WriteCounts writes_;
  Compiled compiled_;
  std::unique_ptr<Graph> uncompiled_;
  std::string text_;
  CompileOptions options_;
  static constexpr size_t kRead = sizeof(Segment) + sizeof(WriteCounts) + sizeof(Compiled);
};

}  // namespace

std::shared_ptr<Segment> make_segment(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                      bool differentiable, const CompileOptions& options) {
  if (differentiable) return CompiledAutograd::build(std::move(traced), sources, options);
  return std::allocate_shared<WholeSegment>(DenseAllocator<WholeSegment>(), std::move(traced), options);
}

std::shared_ptr<Segment> compile_segment(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                         bool differentiable, const CompileOptions& options) {
  std::shared_ptr<Segment> segment = make_segment(std::move(traced), sources, differentiable, options);
  segment->ready();
  return segment;
}

}  // namespace lutra
