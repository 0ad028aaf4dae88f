// decompose: replaces composite ops by the primitives of their decomposition, recursively.
#include "jit/passes/passes.h"

namespace lutra {
namespace {

// Decomposes the composites that are recorded.
struct Decomposer : Mode {
  explicit Decomposer(GraphRecorder& recorder) : recorder(recorder) {}
  GraphRecorder& recorder;
  Results call(OpId op, Args& args) override {
    const OpInfo& row = info(op);
    if (!row.is_composite()) return recorder.call(op, args);
    ModeScope scope(this);
    return decompose_named(row, args);
  }
  Tensor call_inplace(OpId op, Args& args) override { return recorder.call_inplace(op, args); }
};

}  // namespace

GraphPtr decompose(const Graph& g) {
  return rebuild(g, [](Rebuilder& b, const Node& n, Args& args, Results& results) {
    if (!info(n.op).is_composite()) return false;
    Decomposer mode(b.recorder);
    ModeScope scope(&mode);
    results = call_parts(info(n.op), args);
    for (size_t i = 0; i < results.size(); i++) {
      const Tensor &was = n.results[i], &now = results[i];
      LUTRA_CHECK(now->dtype == was->dtype && now->sizes.size() == was->sizes.size(), "the decomposition of ",
                  name(n.op), " gives ", describe(now), ", its meta rule ", describe(was));
    }
    return true;
  });
}

}  // namespace lutra
