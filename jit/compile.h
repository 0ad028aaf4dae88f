// The road of jit in one call: captured graph in, executable out.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/runtime/executable.h"

namespace lutra {

struct CompileOptions {
  double memory_budget = 1;        // of a graph that is differentiated outside: see PartitionOptions
  uint64_t random_cut = 0;         // likewise
  std::string backend = "native";  // "native", "eager" (call_op node by node), "aot_eager" (after the passes)
  std::vector<std::string> disabled_passes;
  bool kept = false;  // takes what an earlier process compiled, and keeps what this one does (jit/cache)
  std::string about;  // names what is kept: where the program has it
  const std::string* text = nullptr;  // the graph's, where it has been printed; for the call only
  std::string eager;  // not empty: one eager op, whose kernel has this name and need not be compiled when it first runs
  // Called with each stage's name ("graph", "functionalise", ..., "loop", "schedule", "asm") and text when
  // wanted(stage).
  std::function<bool(const char* stage)> wanted;
  std::function<void(const char* stage, const std::string& text)> log;
};

struct Compiled {
  std::shared_ptr<Executable> executable;  // null for the eager backends
  std::shared_ptr<Graph> graph;            // after the passes; what those interpret. Null of a kept segment
  double compile_ms = 0;
  size_t kernels = 0;
  struct Stage {
    const char* name;  // "cache", "functionalise", ..., "schedule", "codegen"
    double ms;
  };
  std::vector<Stage> stages;
  std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                         const std::vector<Donor>& donors = {}) const;
};

// Throws Error(kInternal) with the stage's text for what it cannot compile, Error(kUser) for what the user may change.
Compiled compile_graph(std::unique_ptr<Graph> graph, const CompileOptions& options = {});
// The kernels of a plan as loop IR.
std::string loops_text(const Plan& plan);
// Runs a graph node by node through call_op: the eager witness.
std::vector<Value> interpret(const Graph& graph, const std::vector<Tensor>& inputs, const std::vector<double>& scalars);

}  // namespace lutra
