// A graph that can run at once: where its code is made in the background, it is interpreted until the code is there.
#pragma once
#include <memory>
#include <vector>

#include "jit/compile.h"
#include "jit/compile_later.h"

namespace lutra {

class EventuallyCompiled {
 public:
  // Compiles it, or where options.background says so begins to.
  EventuallyCompiled(std::unique_ptr<Graph> graph, const CompileOptions& options);
  // Throws what the compiler threw in the background. The graph draws no gradients.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  bool wait(std::chrono::milliseconds most) { return !later_ || later_->wait(most); }

 private:
  std::unique_ptr<Graph> interpreted_;  // null where the code is there from the beginning
  std::unique_ptr<Graph> uncompiled_;
  Compiled compiled_;
  std::unique_ptr<CompileLater> later_;  // the last member: it goes first
};

}  // namespace lutra
