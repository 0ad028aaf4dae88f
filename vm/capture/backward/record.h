// A part of a backward in; a graph of it out, with where its inputs come from and where its results go.
#pragma once
#include <memory>
#include <vector>

#include "jit/graph/graph.h"
#include "vm/capture/backward/calls.h"

namespace lutra {

// Which sizes and numbers of a part are symbols; seen: those of another run of the part.
struct PartSymbols {
  std::vector<bool> sizes, numbers;
  std::vector<int64_t> seen;
};

// A gradient, what becomes of it and where it is: the graph's output, or ~n: tensor n of the part.
struct PartResult {
  enum Kind : uint8_t { kNode, kLeaf, kTarget, kGrad, kRetained } kind;
  uint32_t place;   // of the node; which target
  uint32_t result;  // of the node; of kRetained: which of them
  int from;
};

struct RecordedPart {
  std::unique_ptr<Graph> graph;
  std::vector<uint32_t> inputs;                       // which tensors of the part
  std::vector<int32_t> scalars;                       // which numbers of it; ~n: size n
  std::vector<std::pair<uint32_t, int32_t>> symbols;  // sizes of the part that are symbols, as expressions
  std::vector<uint32_t> constants;                    // those that were to be symbols, but are not
  std::vector<PartResult> results;
  std::vector<uint32_t> ran;                              // places of nodes, in order
  std::vector<std::pair<uint32_t, Ref<GradNode>>> joint;  // places of joint nodes, and what stood for them
  // Which calls of the part, in the order in which the part's tensors and numbers have what they read.
  std::vector<std::pair<uint32_t, std::shared_ptr<CapturedCall>>> calls;
  int draws_of = -1;  // which call of the part, of a checkpoint, has the random state that the graph begins with
};

// Throws what the engine throws on the way, NeedsData, and CallRefused. Adds to the part what calls read.
RecordedPart record_part(Engine& engine, BackwardPart& part, const PartSymbols& symbols, CallCaptures& captures);

}  // namespace lutra
