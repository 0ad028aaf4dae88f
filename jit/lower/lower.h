// Lowers a primitive node: computes what one element of its result is, or how its result is made. There is one rule for
// each entry of the `lower` column of ops.def. The scheduler decides which elements are stored in memory.
#pragma once
#include <memory>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/lower/element_function.h"
#include "jit/lower/facts.h"

namespace lutra {

// The context in which a rule writes one element function.
class RuleContext {
 public:
  RuleContext(const std::vector<Tensor>& reads, SymFacts& facts, size_t rank)
      : body(rank), facts(facts), reads_(reads) {}
  // Returns the element of t at index, in t's dtype. The node reads t.
  int32_t operand(const Tensor& t, const Index& index);
  // Checks that value (i64) is in [0, bound). dim is for the message, -1 for a division by zero.
  void check(int32_t value, SymInt bound, int32_t dim) { body.check(value, bound, dim); }

  FunctionBuilder body;
  SymFacts& facts;

 private:
  const std::vector<Tensor>& reads_;
};

// Invariants: nest and kept list every dimension once; the order is a function of op, sizes and strides only.
struct Reduction {
  Sizes sizes;                         // of the domain
  std::vector<bool> reduced;           // by dimension
  std::vector<std::vector<int>> nest;  // loops over reduced dimensions, outermost first; dimensions of one entry are
                                       // one loop
  std::vector<int> kept;               // the other dimensions, outermost first
  bool rows = false;                   // the innermost dimension is reduced
  int32_t lanes = 1;
  int32_t block = 0;  // feeds in a block of a sum (loop.h); 0: one block
  bool keepdim = false;
  loop::RedOp op = loop::RedOp::kSum;
  DType type = DType::kFloat32;  // of the accumulator
};

struct Lowered {
  enum Kind : uint8_t {
    kPointwise,     // element gives the element at an index
    kReduce,        // reduction
    kView,          // map gives the index of the operand
    kExtern,        // a library's kernel on reads
    kExternResult,  // a further result of a library's kernel; reads[0] is its first
    kStrided,       // a copy of reads[0], then a strided store of reads[1]
    kCopy,          // reads[0] is written with reads[1]
    kJoin,          // the result consists of parts, each made by a kernel of its own
  };
  Kind kind = kPointwise;
  std::vector<Tensor> reads;  // tensor arguments
  bool checks = false;        // may fail while running
  bool heavy = false;         // costs more than a few instructions an element
  bool window = false;        // reads many elements for one, so it is never computed twice
  ElementFunction element;    // kPointwise, kCopy: of the result; kReduce: of the domain
  Reduction reduction;
  // kView: the index of the operand, over the dimensions of the result. If it is not affine, the view is read from
  // memory.
  bool affine = false;
  Index map;
  // kStrided: the second of the two kernels; it writes into memory that holds the copy. kJoin: the kernels, each of
  // which writes its part of the result.
  std::vector<ElementFunction> writes;
  bool independent = false;  // the iterations of all loops of writes[0] are independent
};

// Runs the rule of node's op. Composite ops must be decomposed first.
Lowered lower(const Node& node, SymFacts& facts);

// A lowered node: a node of the graph, a part of a split one, or a further result of a library's kernel.
struct LoweredNode {
  const Node* node;
  std::unique_ptr<Node> own;  // owns the node of a part, except of the last one
  Tensor value;               // its result; kCopy: the tensor that it writes
  Lowered low;
};
// Splits a reduction into parts, in order. The last part makes the result. Empty if the reduction is not split.
std::vector<LoweredNode> split_reduction(const Node& node, const Lowered& low, SymFacts& facts);

// A lowered graph. Nodes are in an order in which they can run; those that write inputs come last.
struct LoweredGraph {
  SymFacts facts;
  std::vector<LoweredNode> nodes;
};
LoweredGraph lower(const Graph& graph);

// The text form (text_print.cc has its grammar); print, parse, print is the identity.
std::string print(const Graph& graph, const LoweredGraph& lowered);
struct ParsedLowering {
  std::unique_ptr<Graph> graph;  // its inputs, and the op and result of each node
  LoweredGraph lowered;
};
ParsedLowering parse_lowered(const std::string& text);  // throws Error(kUser) naming the line
std::string verify(const LoweredGraph& lowered);        // "", or what is wrong
std::string verify(const LoweredNode& node);
const char* name(Lowered::Kind kind);

// The rules, named in ops.def.
Lowered lower_pointwise(const Node& node, SymFacts& facts);
Lowered lower_reduce(const Node& node, SymFacts& facts);
Lowered lower_view(const Node& node, SymFacts& facts);
Lowered lower_gather(const Node& node, SymFacts& facts);
Lowered lower_scatter_add(const Node& node, SymFacts& facts);
Lowered lower_extern(const Node& node, SymFacts& facts);
Lowered lower_extern_mm(const Node& node, SymFacts& facts);
Lowered lower_as_strided_scatter(const Node& node, SymFacts& facts);
Lowered lower_join(const Node& node, SymFacts& facts);
Lowered lower_flip(const Node& node, SymFacts& facts);
Lowered lower_select_scatter(const Node& node, SymFacts& facts);
Lowered lower_copy_(const Node& node, SymFacts& facts);
Lowered lower_pool_map(const Node& node, SymFacts& facts);
Lowered lower_pool_take(const Node& node, SymFacts& facts);
Lowered lower_pool_image(const Node& node, SymFacts& facts);
Lowered lower_dynamic(const Node& node, SymFacts& facts);
Lowered lower_decompose(const Node& node, SymFacts& facts);

// Returns true for a reduction by channel: its order is that of row-major memory even if channels are innermost.
bool is_by_channel(const Node& node);
// Returns true if the node reduces along dimensions.
bool is_reduction(const Node& node);
// Returns true if op always is a library's launch.
bool is_extern(OpId op);
// Returns the element function that write(context, index) builds, over `rank` dimensions.
template <class F>
ElementFunction element_function(const Lowered& l, SymFacts& facts, size_t rank, F&& write) {
  RuleContext e(l.reads, facts, rank);
  e.body.function.result = write(e, parameters(rank));
  return std::move(e.body.function);
}
// Returns a function that writes memory.
template <class F>
ElementFunction write_function(const Lowered& l, SymFacts& facts, F&& write) {
  RuleContext e(l.reads, facts, 0);
  write(e);
  return std::move(e.body.function);
}

// Returns the index into an operand of `sizes` that broadcasts to `result`.
Index broadcast_index(SymFacts& facts, const Index& index, const Sizes& result, const Sizes& sizes);
// Returns the dimensions from the outermost to the innermost in memory, by strides. On a tie the later dimension is the
// inner one.
std::vector<int> stride_order(SymFacts& facts, const Sizes& strides);
// Returns dim with 0 <= dim < rank; a negative one counts from the end.
int64_t wrap_dim(int64_t dim, int64_t rank);

}  // namespace lutra
