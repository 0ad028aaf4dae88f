// A graph that can run at once: where its code is made in the background, it is interpreted until the code is there.
// Compiled late, it has no guards. For sizes that the compiler's answers do not hold for it is compiled again, a few
// times, and interpreted otherwise.
// What the graph makes as a view without history stays one, whoever runs it: eager refuses to write it under the tape.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
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
  bool wait(std::chrono::milliseconds most);
  size_t versions() const { return made_.load(); }

 private:
  // Code, and what it relies on.
  struct Version {
    Compiled compiled{};
    std::unique_ptr<SizeAnswers> answers{};  // of the compiler; null: none
    std::unique_ptr<Graph> graph;            // until it is compiled
    std::unique_ptr<CompileLater> later{};   // the last member: it goes first
    explicit Version(std::unique_ptr<Graph> g) : graph(std::move(g)) {}
  };
  static constexpr size_t kMostVersions = 4;
  // Sizes that come once are interpreted.
  static constexpr int kMissesBefore = 1;

  void add(std::unique_ptr<Version> version);
  void compile(Version& version);
  void compile_for(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  bool serves(Version& version, const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  std::vector<Value> run_version(const Version& version, const std::vector<Tensor>& inputs,
                                 const std::vector<double>& scalars);
  std::vector<size_t> views_;
  size_t guarded_;
  CompileOptions options_;
  std::unique_ptr<Graph> interpreted_;  // null where the code serves all runs from the beginning
  std::unique_ptr<Graph> pattern_;      // of versions; under mutex_
  std::mutex mutex_;
  int misses_ = 0;
  std::atomic<size_t> made_{0};
  std::array<std::unique_ptr<Version>, kMostVersions> versions_;  // those that are made do not change
};

}  // namespace lutra
