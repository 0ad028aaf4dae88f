// Tests the partitioner. In: a graph of primitives. Out: the values that it keeps for the backward.
#include <catch2/catch.hpp>

#include "jit/autograd/min_cut.h"
#include "jit/autograd/partition.h"

namespace lutra {
namespace {

// The second to fourth result are read by a backward.
const char* const kText = R"(graph {
  %0 = input 'x' : f32[4, 8] strides [8, 1]
  %1 = input 'w' : f32[8, 8] strides [8, 1]
  %2 = input 'b' : f32[8] strides [1]
  %3 = mm(%0, %1) : f32[4, 8] strides [8, 1]
  %4 = add(%3, %2, 1.0) : f32[4, 8] strides [8, 1]
  %5 = exp(%4) : f32[4, 8] strides [8, 1]
  %6 = sin(%5) : f32[4, 8] strides [8, 1]
  %7 = mm(%6, %1) : f32[4, 8] strides [8, 1]
  return %7, %4, %5, %6
}
)";

std::string kept(double budget) {
  auto g = parse_graph(kText);
  g->renumber();
  const Partition p = partition(*g, 1, {false, false, false}, {budget, 0});
  std::string text;
  for (const KeptValue& k : p.kept) text += str("%", k.value->node->id, k.copied ? " copied " : " ");
  for (size_t i : p.inputs) text += str("input ", i, " ");
  return str(text, p.saved_bytes, " of ", p.all_bytes, ", again ", p.recomputed_bytes);
}

}  // namespace

TEST_CASE("the cheapest cut keeps one of a chain of pointwise values", "[autograd]") {
  CHECK(kept(1) == "%4 128 of 384, again 256");
}

TEST_CASE("a budget has products computed again, from inputs", "[autograd]") {
  CHECK(kept(0.25) == "input 2 input 1 input 0 0 of 384, again 384");
}

TEST_CASE("a minimum cut", "[autograd]") {
  MinCut cut;
  const int source = cut.add_node(), a = cut.add_node(), b = cut.add_node(), sink = cut.add_node();
  cut.add_edge(source, a, 3), cut.add_edge(source, b, 2), cut.add_edge(a, b, 5);
  cut.add_edge(a, sink, 1), cut.add_edge(b, sink, MinCut::kInfinite);
  CHECK(cut.run(source, sink) == 5);
  CHECK(cut.behind(sink) == std::vector<bool>{false, true, true, true});
}

}  // namespace lutra
