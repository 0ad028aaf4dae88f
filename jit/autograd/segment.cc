// The choice, and the segment without a backward of its own.
#include "jit/autograd/segment.h"

#include "jit/autograd/compiled_autograd.h"
#include "jit/autograd/write_counts.h"

namespace lutra {
namespace {

class WholeSegment final : public Segment {
 public:
  WholeSegment(std::unique_ptr<Graph> graph, const CompileOptions& options)
      : writes_(WriteCounts::of(*graph)), compiled_(compile_graph(std::move(graph), options)) {}

  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors) override {
    GradModeScope no_grad(false);
    std::vector<uint32_t> before;
    if (!writes_.empty()) before = writes_.before(inputs);
    std::vector<Value> outputs = compiled_.run(inputs, scalars, donors);
    if (!writes_.empty()) writes_.after(before, inputs, outputs);
    return outputs;
  }
  const Compiled& forward() const override { return compiled_; }

 private:
  WriteCounts writes_;
  Compiled compiled_;
};

}  // namespace

std::shared_ptr<Segment> compile_segment(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                         bool differentiable, const CompileOptions& options) {
  if (differentiable) return CompiledAutograd::build(std::move(traced), sources, options);
  return std::make_shared<WholeSegment>(std::move(traced), options);
}

}  // namespace lutra
