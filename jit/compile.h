// The road of jit in one call: captured graph in, executable out.
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

// Runs a compiled graph in the place of those who do not watch it (jit/repro).
struct Watch {
  virtual ~Watch() = default;
  virtual std::vector<Value> run(const Compiled& compiled, const std::vector<Tensor>& inputs,
                                 const std::vector<double>& scalars, const std::vector<Donor>& donors) = 0;
  // Whether the compiled code was found to be wrong and is not run any more.
  virtual bool refused() const = 0;
};

struct CompileOptions {
  double memory_budget = 1;        // of a graph that is differentiated outside: see PartitionOptions
  uint64_t random_cut = 0;         // likewise
  std::string backend = "native";  // "native", "eager" (call_op node by node), "aot_eager" (after the passes)
  std::vector<std::string> disabled_passes;
  bool stated_machine = false;  // choices are made for one that need not be there (lutra-opt)
  bool kept = false;            // takes what an earlier process compiled, and keeps what this one does (jit/cache)
  std::string about;            // names what is kept: where the program has it
  const std::string* text = nullptr;  // the graph's, where it has been printed; for the call only
  bool background = false;            // graphs that are found while the segment runs are compiled in the background
  bool autotune = false;              // mode "max-autotune": Executable::set_autotune
  std::string eager;  // not empty: one eager op, whose kernel has this name and need not be compiled when it first runs
  std::shared_ptr<const std::atomic<int>> verify;  // of the state: one of so many runs is made eagerly, too; 0: none
  // Makes the watch of what was compiled of a captured graph; null: none.
  std::shared_ptr<Watch> (*watch)(std::unique_ptr<Graph> captured, const CompileOptions& options) = nullptr;
  // Told of a captured graph that the compiler failed at. What it answers is added to the error, which then goes on.
  std::string (*failed)(const Graph& captured, const std::string& what, const CompileOptions& options) = nullptr;
  std::shared_ptr<const std::string> guards;  // under which the segment runs, as text; known after the compilation
  // Called with each stage's name ("graph", "functionalise", ..., "loop", "schedule", "asm") and text when
  // wanted(stage).
  std::function<bool(const char* stage)> wanted;
  std::function<void(const char* stage, const std::string& text)> log;
};

struct Compiled {
  std::shared_ptr<Executable> executable;  // null for the eager backends
  std::shared_ptr<Graph> graph;            // after the passes; what those interpret. Null of a kept segment
  std::shared_ptr<Watch> watch;            // null: nobody watches the runs
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
  // The same without the watch.
  std::vector<Value> run_alone(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                               const std::vector<Donor>& donors = {}) const;
};

// Takes what an earlier process has kept, or compiles it. Throws Error(kInternal) with the stage's text for what it
// cannot compile, Error(kUser) for what the user may change.
Compiled compile_graph(std::unique_ptr<Graph> graph, const CompileOptions& options = {});
// The kernels of a plan as loop IR.
std::string loops_text(const Plan& plan);
// Who looks at each node after it has run: its arguments and results as they were for this run.
using NodeObserver = std::function<void(const Node& node, const Args& args, const Results& results)>;
// Runs a graph node by node through call_op: the eager witness.
std::vector<Value> interpret(const Graph& graph, const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                             const NodeObserver* observer = nullptr);
// Its results as compiled code gives them: tensors of their own, which know of no base and no history.
std::vector<Value> interpret_apart(const Graph& graph, const std::vector<Tensor>& inputs,
                                   const std::vector<double>& scalars);

}  // namespace lutra
