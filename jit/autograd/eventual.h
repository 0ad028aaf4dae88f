// A graph that can run at once: where its code is made in the background, it is interpreted until the code is there.
// What the graph makes as a view without history stays one, whoever runs it: eager refuses to write it under the tape.
#pragma once
#include <memory>
#include <vector>

#include "jit/compile.h"
#include "jit/compile_later.h"

namespace lutra {

// A view without history; and what makes one of a tensor that is none.
bool is_plain_view(const Tensor& t);
void make_plain_view(const Tensor& t);
// Which results the graph makes as such; and they are made so again after a run.
std::vector<size_t> plain_views(const Graph& graph);
void link_plain_views(const std::vector<size_t>& views, const std::vector<Value>& results);

class EventuallyCompiled {
 public:
  // Compiles it, or where options.background says so begins to.
  EventuallyCompiled(std::unique_ptr<Graph> graph, const CompileOptions& options);
  // Throws what the compiler threw in the background. The graph draws no gradients.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  bool wait(std::chrono::milliseconds most) { return !later_ || later_->wait(most); }

 private:
  std::vector<Value> run_compiled(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  std::vector<size_t> views_;
  std::unique_ptr<Graph> interpreted_;  // null where the code is there from the beginning
  std::unique_ptr<Graph> uncompiled_;
  Compiled compiled_;
  std::unique_ptr<CompileLater> later_;  // the last member: it goes first
};

}  // namespace lutra
