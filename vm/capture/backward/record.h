// Records a part of a backward as a graph, with the origins of its inputs and the destinations of its results.
#pragma once
#include <memory>
#include <vector>

#include "jit/graph/graph.h"
#include "vm/capture/backward/calls.h"

namespace lutra {

// The sizes and numbers of a part that are symbols. seen: the sizes in another run of the part.
struct PartSymbols {
  std::vector<bool> sizes, numbers;
  std::vector<int64_t> seen;
};

// A gradient and its destination. from: the graph's output, or ~n: tensor n of the part.
struct PartResult {
  enum Kind : uint8_t { kNode, kLeaf, kTarget, kGrad, kRetained } kind;
  uint32_t place;   // place of the node; index of the target
  uint32_t result;  // result of the node; for kRetained: index of the retained gradient
  int from;
};

struct RecordedPart {
  std::unique_ptr<Graph> graph;
  std::vector<uint32_t> inputs;                       // indices of the part's tensors
  std::vector<int32_t> scalars;                       // indices of its numbers; ~n: size n
  std::vector<std::pair<uint32_t, int32_t>> symbols;  // sizes of the part that are symbols, as expressions
  std::vector<uint32_t> constants;                    // sizes that were requested as symbols, but are constants
  std::vector<PartResult> results;
  std::vector<uint32_t> ran;                              // places of nodes, in order
  std::vector<std::pair<uint32_t, Ref<GradNode>>> joint;  // places of joint nodes, and the nodes that stood for them
  // Indices of the part's calls, in the order in which their values were appended to the part's tensors and numbers.
  std::vector<std::pair<uint32_t, std::shared_ptr<CapturedCall>>> calls;
  int draws_of = -1;  // index of the checkpoint's call whose random state the graph begins with; -1: none
};

// Records the part. Throws errors of the engine, NeedsData and CallRefused. Appends the values that calls read to the
// part.
RecordedPart record_part(Engine& engine, BackwardPart& part, const PartSymbols& symbols, CallCaptures& captures);

}  // namespace lutra
