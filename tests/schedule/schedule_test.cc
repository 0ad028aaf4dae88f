// Tests plans by golden texts, and that fused, unfused and eager runs agree bit for bit.
#include <filesystem>

#include "jit/codegen/kernel.h"
#include "jit/passes/passes.h"
#include "jit/schedule/schedule.h"
#include "tests/golden.h"
#include "tests/schedule/graphs.h"
#include "tests/seeds.h"

namespace lutra {
namespace {

bool agrees(const Graph& graph, uint32_t seed, const std::string& isa) {
  const SeenRun fused = run_graph(graph, Witness::kFused, isa, seed),
                eager = run_graph(graph, Witness::kEager, isa, seed);
  return !fused.error.empty() || !eager.error.empty() || describe(fused, eager).empty();
}

// The first value of a failing graph that already differs, with what it is made of.
std::string shrink(const Graph& graph, uint32_t seed, const std::string& isa) {
  for (size_t i = 0; i < graph.nodes.size(); i++) {
    auto part = parse_graph(print(graph));
    part->outputs.clear();
    for (const Tensor& t : part->nodes[i]->results) part->outputs.push_back(t);
    while (!part->nodes.empty() && part->nodes.back()->op == OpId::copy_) part->nodes.pop_back();
    if (i >= part->nodes.size()) break;
    part = dce(*part);
    if (!agrees(*part, seed, isa)) return "shrunk to\n" + print(*part);
  }
  return "no smaller graph fails\n";
}

// Whether there were results to compare.
bool check_agreement(const Graph& lowered, uint32_t seed, const std::string& isa, RunSizes sizes = {}) {
  SeenRun fused = run_graph(lowered, Witness::kFused, isa, seed, sizes);
  SeenRun unfused = run_graph(lowered, Witness::kUnfused, isa, seed, sizes);
  SeenRun eager = run_graph(lowered, Witness::kEager, isa, seed, sizes);
  if (eager.error == "refused") return false;
  // If a graph has several errors, each way of running it may raise another one first.
  if (!fused.error.empty() && !unfused.error.empty() && !eager.error.empty()) return false;
  INFO(isa << " seed " << seed << " rows " << sizes.rows << " cols " << sizes.cols << "\n"
           << print(lowered) << print(schedule(lowered)));
  if (fused == unfused && fused == eager) return eager.error.empty();
  INFO(shrink(lowered, seed, isa));
  CHECK(describe(fused, unfused) == "");
  CHECK(describe(fused, eager) == "");
  return true;
}

// Some op's result would be too large for a test at these sizes.
bool too_large(const Graph& graph, RunSizes sizes) {
  for (const auto& n : graph.nodes) {
    for (const Tensor& t : n->results) {
      double elements = 1;
      for (SymInt s : t->sizes) elements *= double(s.expr ? evaluate(*graph.env, s.expr, sizes) : s.hint);
      if (elements > 1 << 22) return true;
    }
  }
  return false;
}

size_t launches(const Graph& lowered) { return schedule(lowered).launches.size(); }

}  // namespace

TEST_CASE("plans of graph texts are golden and compute what eager does", "[schedule]") {
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/schedule"))) {
    if (entry.path().extension() != ".graph") continue;
    std::string stem = entry.path().stem();
    INFO(stem);
    auto graph = lowered_graph(*parse_graph(read_text("tests/schedule/" + stem + ".graph")));
    check_golden("schedule/" + stem + ".plan", print(schedule(*graph)));
    check_agreement(*graph, 1, "interp");
  }
}

TEST_CASE("a train step is few launches and agrees with eager bit for bit", "[schedule]") {
  auto graph = lowered_graph(*train_step_graph(20, 16, 10, 12));
  check_golden("schedule/train_step.plan", print(schedule(*graph)));
  CHECK(launches(*graph) <= 24);
  check_agreement(*graph, 3, "interp");
}

TEST_CASE("an equality that bounds imply is known once it is asked for", "[schedule]") {
  // 0 < size(0, 2) < 2: whether the dimensions lie as one is answered without a guard of its own.
  const auto graph = parse_graph(R"(graph {
  sym size(0, 0) = 2
  sym stride(0, 0) = 8
  sym size(0, 1) = 8
  sym size(0, 2) = 1
  %0 = input 'in0' : f32[size(0, 0), size(0, 1), size(0, 2)] strides [stride(0, 0), 1, 1]
  guard eq(size(0, 1), 0) false
  guard eq(size(0, 2), 0) false
  guard eq(size(0, 1), 1) false
  %1 = unsqueeze(%0, 2) : f32[size(0, 0), size(0, 1), 1, size(0, 2)] strides [stride(0, 0), 1, size(0, 2), 1]
  %2 = sum(%1, None, false, None) : f32[] strides []
  return %2
}
)");
  CHECK(launches(*graph) == 1);
}

TEST_CASE("random graphs: fused, unfused and eager agree bit for bit", "[schedule]") {
  const auto [first, last] = seeds(600);
  uint64_t compared = 0, at_other_sizes = 0;
  for (uint32_t seed = uint32_t(first); seed <= last; seed++) {
    CAPTURE(seed);
    auto captured = random_graph(seed);
    INFO(print(*captured));
    const auto graph = lowered_if_allowed(*captured);
    if (!graph) continue;
    check_agreement(*graph, seed, "interp");
    compared += check_agreement(*graph, seed, best_isa());
    // The same plan at other sizes.
    for (RunSizes sizes : {RunSizes{5, 9}, RunSizes{2, 65}, RunSizes{0, 4}, RunSizes{3, 1}, RunSizes{130, 301}}) {
      if (guards_hold(*graph->env, sizes) && !too_large(*graph, sizes))
        at_other_sizes += check_agreement(*graph, seed, best_isa(), sizes);
    }
  }
  // Most graphs give results, and most serve other sizes.
  CHECK(compared >= (last - first + 1) / 2);
  CHECK(at_other_sizes >= (last - first + 1) / 2);
}

}  // namespace lutra
