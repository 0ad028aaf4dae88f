// Lowering: a primitive node in; what one element of its result is, or how its result is made, out. One rule per entry
// of the `lower` column of ops.def; the scheduler decides which elements go to memory.
#pragma once
#include <functional>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/lower/body.h"

namespace lutra {

// Where a value's elements come from while a kernel is being written: from memory or from the instructions that make
// them. The scheduler implements it.
class Emitter {
 public:
  Emitter(Body& body, SymFacts& facts) : body(body), facts(facts) {}
  virtual ~Emitter() = default;
  // The element of t at index, in t's dtype.
  virtual int32_t operand(const Tensor& t, const Index& index) = 0;
  // value (i64) must be in [0, bound); dim is for the message, -1 for a division by zero.
  virtual void check(int32_t value, SymInt bound, int32_t dim, const Node& node) = 0;

  Body& body;
  SymFacts& facts;
};

// Invariants: nest and kept list every dimension once; the order is a function of op, sizes and strides only.
struct Reduction {
  Sizes sizes;                         // of the domain
  std::vector<bool> reduced;           // by dimension
  std::vector<std::vector<int>> nest;  // loops over reduced dimensions, outermost first; several are taken as one
  std::vector<int> kept;               // the other dimensions, outermost first
  bool rows = false;                   // the innermost dimension is reduced
  int32_t lanes = 1;
  int32_t block = 0;  // feeds of a block of a sum (loop.h); 0: one block
  bool keepdim = false;
  loop::RedOp op = loop::RedOp::kSum;
  DType type = DType::kFloat32;  // of the accumulator
  std::function<int32_t(Emitter&, const Index&)> element;
};

struct Lowered {
  enum Kind : uint8_t {
    kPointwise,     // emit gives the element at an index
    kReduce,        // reduction
    kView,          // map gives the index of the operand
    kExtern,        // a library's kernel on reads
    kExternResult,  // a result of a library's kernel but its first; reads[0] is that
    kScatter,       // a copy of reads[0], then serial loops that add
    kStrided,       // a copy of reads[0], then a strided store of reads[1]
    kCopy,          // reads[0] is written with reads[1]
    kJoin,          // pieces that together are the result, each a kernel of its own
  };
  Kind kind = kPointwise;
  std::vector<Tensor> reads;  // tensor arguments
  bool checks = false;        // may fail while running
  bool heavy = false;         // costs more than a few instructions an element
  bool window = false;        // reads many elements for one: never computed twice
  std::function<int32_t(Emitter&, const Index&)> emit;
  Reduction reduction;
  // kView: false where the index of the operand is not affine.
  std::function<bool(const Index&, Index&)> map;
  // kScatter, kStrided: writes the second kernel of the two, into a buffer that holds the copy.
  std::function<void(Emitter&, int32_t buffer)> scatter;
  bool independent = false;  // iterations of its outermost loop
  // kJoin: each writes its part of the result.
  std::vector<std::function<void(Emitter&, int32_t buffer)>> pieces;
};

// The rule of node's op. Composite ops must be decomposed first.
Lowered lower(const Node& node, SymFacts& facts);

// The rules, named by ops.def.
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

// Whether op always is a library's launch.
bool is_extern(OpId op);
// Index of an operand of `sizes` that broadcasts to `result`.
Index broadcast_index(SymFacts& facts, const Index& index, const Sizes& result, const Sizes& sizes);
// Dimensions from the outermost to the innermost in memory: by strides, the later dimension within on a tie.
std::vector<int> stride_order(SymFacts& facts, const Sizes& strides);
// 0 <= dim < rank.
int64_t wrap_dim(int64_t dim, int64_t rank);

}  // namespace lutra
