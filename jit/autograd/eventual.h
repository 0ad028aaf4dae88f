// A graph that can run at once. If its code is compiled in the background, the graph is interpreted until the code is
// ready. The graph is compiled after the segment's guards were made, so it checks the compiler's size answers itself.
// For sizes with other answers it is compiled again, a few times; other runs are interpreted.
// A view that the graph makes without history stays one, whether compiled code or the interpreter makes it: eager
// refuses to write it under the tape.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "jit/compile.h"
#include "jit/compile_later.h"
#include "jit/runtime/host_program.h"
#include "ops/core/clock.h"

namespace lutra {

// A plain view is a view without history. make_plain_view turns a tensor into one.
bool is_plain_view(const Tensor& t);
void make_plain_view(const Tensor& t);
// plain_views returns which results the graph makes as plain views. link_plain_views makes them plain views again after
// a run.
std::vector<size_t> plain_views(const Graph& graph);
void link_plain_views(const std::vector<size_t>& views, const std::vector<Value>& results);

// The compiler's answers to questions about sizes. hold() asks the questions again for the sizes of a run.
class SizeAnswers {
 public:
  SizeAnswers(const Graph& graph, std::shared_ptr<SymEnv> env, size_t guarded);
  bool empty() const { return program_.guard_count() == 0; }
  bool hold(const std::vector<Tensor>& inputs, const std::vector<double>& scalars) const;

 private:
  std::shared_ptr<SymEnv> env_;  // the program's expressions
  HostProgram program_;
};

// A scope. Adds the CPU time that its thread takes within it to options.late_ms.
class LateTime {
 public:
  explicit LateTime(const CompileOptions& options) : sum_(options.late_ms.get()) {}
  ~LateTime() {
    if (sum_) *sum_ += thread_cpu_ms() - start_;
  }
  LateTime(const LateTime&) = delete;

 private:
  std::atomic<double>* sum_;
  const double start_ = sum_ ? thread_cpu_ms() : 0;
};

class EventuallyCompiled {
 public:
  // Compiles the graph, or starts to do so in the background if options.background is set. guarded: how many guards of
  // the graph's env the caller checks before each run.
  EventuallyCompiled(std::unique_ptr<Graph> graph, const CompileOptions& options, size_t guarded = 0);
  // Throws what the compiler threw in the background. The run records no history.
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars);
  bool wait(std::chrono::milliseconds most);
  size_t versions() const { return made_.load(); }

 private:
  // Code, and the answers that it relies on.
  struct Version {
    Compiled compiled{};
    std::unique_ptr<SizeAnswers> answers{};  // the compiler's; null: none
    std::unique_ptr<Graph> graph;            // null once it is compiled
    std::unique_ptr<CompileLater> later{};   // the last member: it is destroyed first
    explicit Version(std::unique_ptr<Graph> g) : graph(std::move(g)) {}
  };
  static constexpr size_t kMaxVersions = 4;
  // Sizes that occur only once are interpreted.
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
  std::unique_ptr<Graph> interpreted_;  // null if the code serves all runs from the beginning
  std::unique_ptr<Graph> pattern_;      // the graph to resize for other versions; guarded by mutex_
  std::mutex mutex_;
  int misses_ = 0;
  std::atomic<size_t> made_{0};
  std::array<std::unique_ptr<Version>, kMaxVersions> versions_;  // the first made_ ones do not change
};

}  // namespace lutra
