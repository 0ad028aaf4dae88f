// The element function of a lowered node, as data: statements of loop IR that compute one element of the result at an
// index, or write a part of the result.
//
// Invariants:
// 1. A statement's number is the value that it defines; its operands have smaller numbers.
// 2. In an Affine, loop d < rank is dimension d of the index; other loops are those that the function opens; values are
//    statements of type int64.
// 3. Nothing here refers to memory: `operand k` is an element of the k-th tensor that the node reads, wherever it comes
//    from.
#pragma once
#include <vector>

#include "jit/loop/loop.h"
#include "jit/lower/affine.h"

namespace lutra {

struct FunctionStmt {
  enum Kind : uint8_t {
    kOp,       // op of type on a, b, c; arg
    kCast,     // a to type
    kNumber,   // number
    kInteger,  // integer
    kScalar,   // the number expression arg
    kSize,     // size
    kIndex,    // place
    kPart,     // part arg of the complex value a: 0 the real one, 1 the imaginary one
    kOperand,  // the element at `place` of the tensor arg
    kCheck,    // a must be in [0, size); arg is the dimension for the message, -1 if there is none
    kOpen,     // loop arg over size
    kClose,    // closes the innermost open loop
    kStore,    // a to position `place` of the result's memory
  };
  bool defines() const { return kind < kCheck; }
  Kind kind = kOp;
  loop::Op op = loop::Op::kCount;
  DType type = DType::kNone;
  loop::LoopMode mode = loop::LoopMode::kSerial;
  int32_t a = -1, b = -1, c = -1, arg = -1;
  int32_t place = 0, places = 0;  // the function's affine forms that it uses: the first one, and how many
  union {
    double number = 0;
    int64_t integer;
  };
  SymInt size = 0;
};

struct ElementFunction {
  int32_t rank = 0;  // dimensions of the index
  std::vector<FunctionStmt> stmts;
  Index places;
  int32_t result = -1;

  bool empty() const { return stmts.empty(); }
};

// Returns the type that a value of this dtype has in a kernel.
DType value_type(DType t);
// Returns true if each of the n places is the dimension of the same number.
bool is_same_index(const Affine* places, size_t n);
// (loop 0, ..., loop rank - 1)
Index parameters(size_t rank);
// Returns f applied to `index`, whose forms are over a domain of `rank` dimensions. f opens no loops.
ElementFunction at_index(const ElementFunction& f, size_t rank, const Index& index);

// Builds an element function. Rules call it.
class FunctionBuilder {
 public:
  explicit FunctionBuilder(size_t rank) {
    function.rank = int32_t(rank);
    function.stmts.reserve(4);
    function.places.reserve(2 * rank);
  }

  int32_t op(loop::Op op, DType type, int32_t a = -1, int32_t b = -1, int32_t c = -1, int32_t arg = -1);
  int32_t constant(DType type, double v);
  int32_t constant_int(DType type, int64_t v);
  int32_t scalar(int32_t expr, DType type);  // a number expression of the env
  int32_t int_value(SymInt v);               // i64
  int32_t cast(int32_t value, DType type);
  int32_t index(const Affine& at);  // i64
  int32_t part(int32_t value, int which);
  int32_t operand(size_t k, DType type, const Index& index);
  void check(int32_t value, SymInt bound, int32_t dim);
  // Open and close loops, in functions that write.
  int32_t open(SymInt size, loop::LoopMode mode);
  void close();  // the innermost one
  void close_all();
  void store(const Affine& at, int32_t value);

  ElementFunction function;

 private:
  int32_t add(FunctionStmt s);
  int32_t loops_ = 0, open_ = 0;
};

}  // namespace lutra
