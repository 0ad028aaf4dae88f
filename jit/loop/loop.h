// Loop IR: one kernel as a tree of loops over scalar instructions in SSA. Eager ops and fused graphs both become this;
// the x64 and cuda code generators and both interpreters read it. It has a text form (print, parse, print is the
// identity).
//
//   kernel @add_relu(%p0: f32 in, %p1: f32 in, %p2: f32 out; n0, n1, s2, s3; $x0) {
//     for i0 in n0 parallel {
//       for i1 in n1 vector {
//         %0 = load.f32 p0[i0*s2 + i1]
//         %1 = load.f32 p1[i1*s3]
//         %2 = add.f32 %0, %1
//         store p2[i0*n1 + i1], %2
//       }
//     }
//   }
//
// Invariants:
// 1. Sizes, strides and offsets are integer arguments (n, s) of the kernel, scalars ($x) are double arguments;
// constants
//    appear only where they are part of an op's meaning (0, 1, class of a stride).
// 2. A value is visible in the body that defines it and the loops within. A loop's accumulators are values after the
// loop.
// 3. The meaning of a kernel is a sequential run of its loops in order; `vector` and `parallel` assert that iterations
// are
//    independent. Results never depend on vector width, threads or instruction set.
// 4. Reduction order: an accumulator with lanes L keeps L partial results; iteration i of the lanes loop goes to
// partial
//    i % L (outer serial loops of the reduction go on with the same partials); the partials are combined as a halving
//    tree: for (w = L/2; w >= 1; w /= 2) for j < w: p[j] = op(p[j], p[j + w]). L = 1 is plain sequential order.
// 5. Each instruction rounds to its type; nothing is contracted. Integer arithmetic wraps. Floats follow IEEE; max and
// min
//    propagate NaN as PyTorch's do.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ops/core/dtype.h"

namespace lutra::loop {

// X(enumerator, text, operands): scalar instructions. Compare results and logic have type bool.
#define LUTRA_LOOP_OPS(X)                                                                                              \
  X(kConst, "const", 0)        /* imm as double or int */                                                              \
  X(kScalar, "scalar", 0)      /* double argument `arg`, converted (rounded) to type */                                \
  X(kIntArg, "intarg", 0)      /* integer argument `arg` as i64 */                                                     \
  X(kIndex, "index", 0)        /* loop variable of loop `arg` as i64 */                                                \
  X(kLoad, "load", 0)          /* access */                                                                            \
  X(kStore, "store", 1)        /* access; a: the value */                                                              \
  X(kStoreAdd, "store_add", 1) /* access; memory += a, in loop order */                                                \
  X(kAccum, "accum", 1)        /* accumulator `arg` takes a */                                                         \
  X(kCheck, "check", 1)        /* a (i64) must be in [0, integer argument `arg`); otherwise the launch reports it */   \
  X(kAdd, "add", 2)                                                                                                    \
  X(kSub, "sub", 2) X(kMul, "mul", 2) X(kDiv, "div", 2) X(kRem, "rem", 2) X(kFloorDiv, "floordiv", 2)                  \
      X(kPow, "pow", 2) X(kMin, "min", 2) X(kMax, "max", 2) X(kNeg, "neg", 1) X(kAbs, "abs", 1) X(kExp, "exp", 1)      \
          X(kLog, "log", 1) X(kTanh, "tanh", 1) X(kSqrt, "sqrt", 1) X(kFloor, "floor", 1) X(kCeil, "ceil", 1)          \
              X(kSin, "sin", 1) X(kCos, "cos", 1) X(kErf, "erf", 1) X(kEq, "eq", 2) X(kNe, "ne", 2) X(kLt, "lt", 2)    \
                  X(kLe, "le", 2) X(kGt, "gt", 2) X(kGe, "ge", 2) X(kAnd, "and", 2) X(kOr, "or", 2) X(kXor, "xor", 2)  \
                      X(kNot, "not", 1) X(kSelect, "select", 3)                                                        \
                          X(kCast, "cast", 1) /* from the operand's type to type; float to int truncates */            \
      X(kUniform, "uniform", 1)               /* a: element index i64; Philox4x32-10(seed, call + arg, a) to [0, 1) */ \
      X(kNormal, "normal", 1)                 /* same, Box-Muller */                                                   \
      X(kRandBits, "randbits", 1)             /* same, 63 random bits as i64 */

enum class Op : uint8_t {
#define X(e, text, n) e,
  LUTRA_LOOP_OPS(X)
#undef X
      kCount
};
const char* name(Op op);

// A stride or offset: a literal (0 and 1 are stride classes the code generator uses) or an integer argument.
struct Coef {
  int32_t arg = -1;  // >= 0: integer argument
  int64_t literal = 0;
  static Coef of_arg(int32_t a) { return {a, 0}; }
  static Coef of(int64_t v) { return {-1, v}; }
  bool operator==(const Coef&) const = default;
};

// pointer argument + offset + sum of (loop variable or i64 value) * coefficient, in elements.
struct Access {
  struct Term {
    bool is_value = false;  // id is a value (gathered index), else a loop id
    int32_t id = 0;
    Coef stride;
  };
  int32_t ptr = 0;
  Coef offset;
  std::vector<Term> terms;
};

struct Inst {
  Op op;
  DType type;       // of the result (of the stored value, for stores)
  int32_t id = -1;  // value defined, -1 for none
  int32_t a = -1, b = -1, c = -1;
  int32_t arg = -1;  // see the table
  double imm = 0;    // kConst of a float type
  int64_t iimm = 0;  // kConst of an integer type or bool
  Access access;
};

enum class RedOp : uint8_t { kSum, kProd, kMax, kMin, kArgMax, kArgMin, kAny, kAll };
const char* name(RedOp op);

// A reduction over the loop that declares it and the loops within. After the loop `id` is its value. kArgMax/kArgMin
// take the value and give the position (i64) among the iterations in loop order; the first of equals, NaN before all.
struct Accumulator {
  RedOp op;
  DType type;       // of the values it takes
  int32_t id = -1;  // value defined after the loop
  int32_t lanes = 1;
};

enum class LoopMode : uint8_t {
  kSerial,
  kVector,  // independent iterations, may run in vectors
  kLanes,   // innermost loop of a reduction with lanes > 1
};

struct Loop;
using Stmt = std::variant<Inst, std::unique_ptr<Loop>>;

struct Loop {
  int32_t id = 0;  // i<id>
  Coef size;
  LoopMode mode = LoopMode::kSerial;
  bool parallel = false;  // outermost loop only: [begin, end) of the block is its range
  std::vector<Accumulator> accs;
  std::vector<Stmt> body;
};

struct Param {
  DType type;
  bool written = false;
};

struct Kernel {
  std::string name;
  std::vector<Param> params;  // pointer arguments
  int32_t ints = 0;           // number of integer arguments
  int32_t scalars = 0;        // number of double arguments
  int32_t values = 0;         // ids are below this
  int32_t loops = 0;
  std::vector<Stmt> body;
};

std::string print(const Kernel& k);
Kernel parse_kernel(const std::string& text);
std::string verify(const Kernel& k);  // empty, or what is wrong
Kernel clone(const Kernel& k);

}  // namespace lutra::loop
