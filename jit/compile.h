// The compiler in one call: a captured graph in, an executable out.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/runtime/executable.h"

namespace lutra {

struct Compiled;
struct CompileOptions;

// Runs a compiled graph in place of its executable and checks the results (jit/repro).
struct Watch {
  virtual ~Watch() = default;
  virtual std::vector<Value> run(const Compiled& compiled, const std::vector<Tensor>& inputs,
                                 const std::vector<double>& scalars, const std::vector<Donor>& donors) = 0;
  // Returns true once the compiled code was found to be wrong. It is not run any more then.
  virtual bool refused() const = 0;
};

struct CompileOptions {
  double memory_budget = 1;        // PartitionOptions::budget, for a graph that is differentiated outside
  uint64_t random_cut = 0;         // PartitionOptions::random, likewise
  std::string backend = "native";  // "native", "eager" (call_op node by node), "aot_eager" (after the passes)
  std::vector<std::string> disabled_passes;
  bool stated_machine = false;  // choose for the stated machine (Backend::stated), not for the one that is present
                                // (lutra-opt)
  bool kept = false;            // use the disk cache: take what an earlier process compiled, store what this one
                                // compiles (jit/cache)
  std::string about;            // the place of the graph in the program; it names the entry of the disk cache
  const std::string* text = nullptr;  // the graph's text if it has been printed already; valid during the call only
  bool background = false;            // compile graphs that are found while the segment runs in the background
  bool autotune = false;              // mode "max-autotune": Executable::set_autotune
  std::string eager;  // not empty: the graph is one eager op. Its kernel has this name and may be compiled after its
                      // first run.
  std::shared_ptr<const std::atomic<int>> verify;  // lt.config.verify: runs one of this many runs eagerly, too; 0: none
  // Adds up the CPU time of compiling graphs that are found while the segment runs. Null: nobody counts it.
  std::shared_ptr<std::atomic<double>> late_ms;
  // Makes the Watch of the compiled graph, given the captured one. Null: nothing watches the runs.
  std::shared_ptr<Watch> (*watch)(std::unique_ptr<Graph> captured, const CompileOptions& options) = nullptr;
  // Called with a captured graph that the compiler failed on. Its result is appended to the error's text.
  std::string (*failed)(const Graph& captured, const std::string& what, const CompileOptions& options) = nullptr;
  std::shared_ptr<const std::string> guards;  // the guards of the segment, as text; written after the compilation
  // Called with each stage's name ("graph", "functionalise", ..., "loop", "schedule", "asm") and its text if
  // wanted(stage) returns true.
  std::function<bool(const char* stage)> wanted;
  std::function<void(const char* stage, const std::string& text)> log;
};

struct Compiled {
  std::shared_ptr<Executable> executable;  // null for the eager backends
  std::shared_ptr<Graph> graph;            // after the passes; the eager backends interpret it. Null if the segment
                                           // came from the disk cache
  std::shared_ptr<Watch> watch;            // null: nothing watches the runs
  double compile_ms = 0;
  size_t kernels = 0;
  struct Stage {
    const char* name;  // "cache", "functionalise", ..., "schedule", "codegen"
    double ms;
  };
  std::vector<Stage> stages;
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors = {}, std::vector<InputView>* views = nullptr) const;
  bool is_refused() const { return watch && watch->refused(); }
  // Runs the graph without the watch.
  std::vector<Value> run_alone(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                               const std::vector<Donor>& donors = {}) const;
};

// Takes the executable from the disk cache, or compiles it. Throws Error(kInternal) with the stage's text if the
// compiler fails, Error(kUser) if the user can fix the cause.
Compiled compile_graph(std::unique_ptr<Graph> graph, const CompileOptions& options = {});
// Returns the loop IR of a plan's kernels as text.
std::string loops_text(const Plan& plan);
// Called after each node has run, with the node's arguments and results in this run.
using NodeObserver = std::function<void(const Node& node, const Args& args, const Results& results)>;
// Runs a graph node by node through call_op: the eager reference for compiled code.
std::vector<Value> interpret(const Graph& graph, const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                             const NodeObserver* observer = nullptr);
// Like interpret, but each result is a tensor of its own, without base or autograd history, as compiled code returns
// it.
std::vector<Value> interpret_apart(const Graph& graph, const std::vector<Tensor>& inputs,
                                   const std::vector<double>& scalars);

}  // namespace lutra
