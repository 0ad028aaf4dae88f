// A graph that can run at once: where its code is made in the background, it is interpreted until the code is there.
// Compiled late, it has no guards: it is interpreted, too, for sizes that the compiler's answers do not hold for.
// What the graph makes as a view without history stays one, whoever runs it: eager refuses to write it under the tape.
#pragma once
#include <memory>
#include <vector>

#include "jit/compile.h"
#include "jit/compile_later.h"
#include "jit/runtime/host_program.h"

namespace lutra {

// A view without history; and what makes one of a tensor that is none.
bool is_plain_view(const Tensor& t);
void make_plain_view(const Tensor& t);
// Which results the graph makes as such; and they are made so again after a run.
std::vector<size_t> plain_views(const Graph& graph);
void link_plain_views(const std::vector<size_t>& views, const std::vector<Value>& results);

// Answers about sizes, asked again of each run's.
class SizeAnswers {
 public:
  SizeAnswers(const Graph& graph, std::shared_ptr<SymEnv> env, size_t guarded);
  bool empty() const { return program_.guard_count() == 0; }
  bool hold(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) const;

 private:
  std::shared_ptr<SymEnv> env_;  // the program's expressions
  HostProgram program_;
};

class EventuallyCompiled {
 public:
  // Compiles it, or where options.background says so begins to. guarded: how many answers of the graph's env somebody
  // checks before each run.
  EventuallyCompiled(std::unique_ptr<Graph> graph, const CompileOptions& options, size_t guarded = 0);
  // Throws what the compiler threw in the background. The graph draws no gradients.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  bool wait(std::chrono::milliseconds most) { return !later_ || later_->wait(most); }

 private:
  void compile(const CompileOptions& options);
  std::vector<Value> run_compiled(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  std::vector<size_t> views_;
  size_t guarded_;
  std::unique_ptr<Graph> interpreted_;    // null where the code serves all runs from the beginning
  std::unique_ptr<SizeAnswers> answers_;  // of the compiler; null: none
  std::unique_ptr<Graph> uncompiled_;
  Compiled compiled_;
  std::unique_ptr<CompileLater> later_;  // the last member: it goes first
};

}  // namespace lutra
