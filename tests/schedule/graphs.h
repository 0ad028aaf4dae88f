// Graphs for the scheduler's tests: a train step, and random ones; with real inputs for them.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/graph/text.h"

namespace lutra {

// One step of an MLP in -> hidden -> hidden -> classes with cross entropy and AdamW, batch symbolic.
std::unique_ptr<Graph> train_step_graph(int64_t in, int64_t hidden, int64_t classes, int64_t batch);
// 5 to 30 ops: arithmetic, broadcasting, views, reductions, gathers, matrix products, random ops, writes.
std::unique_ptr<Graph> random_graph(uint32_t seed, Device device = {});
// Returns the graph as the scheduler gets it: functional, decomposed, without dead nodes.
std::unique_ptr<Graph> lowered_graph(const Graph& graph);
// Null where the graph has an argument that only the decomposition refuses.
std::unique_ptr<Graph> lowered_if_allowed(const Graph& graph);
// The values of size(0, 0) and size(0, 1) in a run; -1: the hint.
struct RunSizes {
  int64_t rows = -1, cols = -1;
};
int64_t evaluate(const SymEnv& env, int32_t expr, RunSizes sizes);
// Whether a plan made with env serves these sizes.
bool guards_hold(const SymEnv& env, RunSizes sizes);
// Small integers for integer types.
std::vector<Tensor> real_inputs(const Graph& graph, uint32_t seed, RunSizes sizes = {});
std::vector<double> real_scalars(const Graph& graph);

std::string bytes_of(const Tensor& t);  // in row-major order; all NaNs are one
// Outputs and inputs after a run, as bytes.
struct SeenRun {
  std::vector<std::string> values;
  std::string error;
  bool operator==(const SeenRun&) const = default;
};
enum class Witness { kFused, kUnfused, kEager };
SeenRun run_graph(const Graph& lowered, Witness how, const std::string& isa, uint32_t seed, RunSizes sizes = {});
std::string describe(const SeenRun& a, const SeenRun& b);

}  // namespace lutra
