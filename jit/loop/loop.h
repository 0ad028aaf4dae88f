// Loop IR: one kernel as a tree of loops over scalar instructions in SSA. Eager ops and fused graphs are lowered to it.
// The x64, arm64 and cuda code generators and both interpreters read it. It has a text form (print, parse, print is the
// identity).
//
//   kernel @add_relu(p0: f32 in, p1: f32 in, p2: f32 out; n0, n1, s2, s3; x0) {
//     for i0 in n0 parallel {
//       for i1 in n1 vector {
//         %0 = load.f32 p0[i0*s2 + i1]
//         %1 = load.f32 p1[i1*s3]
//         %2 = add.f32 %0, %1
//         store.f32 p2[i0*n1 + i1], %2
//       }
//       for i2 in n1 lanes acc(%5: sum.f32 x16) {
//         %3 = load.f32 p2[i0*n1 + i2]
//         accum.f32 %5, %3
//       }
//     }
//   }
//
// Invariants:
// 1. Sizes, strides and offsets are integer arguments of the kernel (printed n where one is a size or a value, else s),
//    scalars (x) are double arguments; constants appear only where they are part of an op's meaning (0, 1, class of a
//    stride).
// 2. A value is visible in the body that defines it and the loops within. A loop's accumulators are values after the
//    loop. Within a body, loads see earlier stores of the same and of earlier iterations.
// 3. The meaning of a kernel is a sequential run of its loops in order; `vector` and `parallel` assert that iterations
//    are independent. Results never depend on vector width, threads or instruction set.
// 4. Reduction order: an accumulator with lanes L (a power of two <= kMaxLanes) keeps L partial results. Iteration i of
//    the lanes loop goes to partial i % L; outer serial loops of the reduction continue with the same partials. The
//    partials are combined as a halving tree: for (w = L/2; w >= 1; w /= 2) for j < w: p[j] = op(p[j], p[j + w]). L = 1
//    is plain sequential order. Partials begin as the identity (sum 0, prod 1, max -inf or the smallest integer, ...).
//    A sum "by B" is summed in blocks, so that its error does not grow with the number of terms. A feed is one
//    iteration, with lanes L consecutive ones from a multiple of L (the loop's last feed may be shorter). Before feed B
//    + 1 each partial p is added to the sum (s, c) of its earlier blocks and begins again at 0: t = s + p; c += p - (t
//    - s); s = t (Kahan and Babuska's compensated sum). The first block is s = p, c = 0. At the end the last block is
//    added alike and the partial is s + c, or s where c is NaN (s is infinite); with one block it is p.
// 5. Each instruction rounds to its type; nothing is contracted. f16 and bf16 are computed in f32 and then rounded to
//    the type (a cast to them goes through f32 too); sums that shall be better accumulate in f32. Integer arithmetic
//    wraps. Floats follow IEEE. max(a, b) is NaN if either is, else a < b ? b : a; min likewise. div, rem, floordiv of
//    integers by zero give 0; div truncates, rem and floordiv round down as PyTorch's remainder and floor_divide
//    (floats too). A float cast to an integer truncates; NaN and what does not fit give the smallest i64 or i32,
//    smaller integers take the low bits of the i32. Mathematical functions and the random ops are the algorithms of
//    jit/loop/math.h and functions.h.
// 6. After a failing check the launch has failed: what is written from then on is unspecified.
// 7. lanes loops contain no loops. They feed only accumulators with lanes > 1, all with the same lanes, each once.
//    vector loops contain no vector loops, and store to no place twice. A parallel loop is the only statement at the
//    top, except instructions without effect; other parallel loops may be in it in the same way (a CPU's threads share
//    the outermost one). Kernels for a CPU have at most kMaxCpuLanes lanes, and no lanes loop within a vector loop.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ops/core/dtype.h"

namespace lutra::loop {

inline constexpr int32_t kMaxLanes = 1024, kMaxCpuLanes = 64;

// Which types the operands and the result have.
enum class TypeRule : uint8_t {
  kAny,       // result of any type, operands none
  kI64,       // result i64, operands none
  kSame,      // operands and result alike
  kCompare,   // operands alike, result b8
  kSelect,    // a is b8; b, c and the result alike
  kCast,      // a of any type
  kTake,      // no result; a has the type
  kCheckI64,  // no result; a is i64
  kRandom,    // a is i64, the result f32 or f64 (randbits: i64)
};
// Types an op is defined for.
enum class TypeSet : uint8_t { kAll, kNumbers, kFloats, kLogic, kInts };

// X(enumerator, text, operands, rule, types, cost): scalar instructions. cost is the time for an element, in additions
// of float32, measured on AVX2. Only choices of speed depend on it.
// clang-format off
#define LUTRA_LOOP_OPS(X)                                                                                              \
  X(kConst, "const", 0, kAny, kAll, 0)             /* imm (float types) or iimm */                                     \
  X(kScalar, "scalar", 0, kAny, kAll, 0)           /* double argument `arg`, converted (rounded) to type */            \
  X(kIntArg, "intarg", 0, kI64, kAll, 0)           /* integer argument `arg` */                                        \
  X(kIndex, "index", 0, kI64, kAll, 1)             /* loop variable of loop `arg` */                                   \
  X(kLoad, "load", 0, kAny, kAll, 1)               /* access */                                                        \
  X(kStore, "store", 1, kTake, kAll, 1)            /* access; a: the value */                                          \
  X(kStoreAdd, "store_add", 1, kTake, kNumbers, 1) /* access; memory += a, in loop order; serial loops only */         \
  X(kAccum, "accum", 1, kTake, kAll, 1)            /* the accumulator whose id is `arg` takes a */                     \
  X(kCheck, "check", 1, kCheckI64, kAll, 1) /* a must be in [0, integer argument `arg`), else the launch fails */      \
  X(kAdd, "add", 2, kSame, kNumbers, 1)                                                                                \
  X(kSub, "sub", 2, kSame, kNumbers, 1)                                                                                \
  X(kMul, "mul", 2, kSame, kNumbers, 1)                                                                                \
  X(kDiv, "div", 2, kSame, kNumbers, 1)                                                                                \
  X(kRem, "rem", 2, kSame, kNumbers, 40)                                                                               \
  X(kFloorDiv, "floordiv", 2, kSame, kNumbers, 40)                                                                     \
  X(kPow, "pow", 2, kSame, kNumbers, 100)                                                                              \
  X(kMin, "min", 2, kSame, kNumbers, 3)                                                                                \
  X(kMax, "max", 2, kSame, kNumbers, 3)                                                                                \
  X(kNeg, "neg", 1, kSame, kNumbers, 1)                                                                                \
  X(kAbs, "abs", 1, kSame, kNumbers, 1)                                                                                \
  X(kExp, "exp", 1, kSame, kFloats, 22)                                                                                \
  X(kLog, "log", 1, kSame, kFloats, 32)                                                                                \
  X(kTanh, "tanh", 1, kSame, kFloats, 40)                                                                              \
  X(kSqrt, "sqrt", 1, kSame, kFloats, 1)                                                                               \
  X(kFloor, "floor", 1, kSame, kFloats, 1)                                                                             \
  X(kCeil, "ceil", 1, kSame, kFloats, 1)                                                                               \
  X(kSin, "sin", 1, kSame, kFloats, 45)                                                                                \
  X(kCos, "cos", 1, kSame, kFloats, 45)                                                                                \
  X(kErf, "erf", 1, kSame, kFloats, 50)                                                                                \
  X(kErfc, "erfc", 1, kSame, kFloats, 110)                                                                             \
  X(kExpm1, "expm1", 1, kSame, kFloats, 30)                                                                            \
  X(kLog1p, "log1p", 1, kSame, kFloats, 38)                                                                            \
  X(kAtan2, "atan2", 2, kSame, kFloats, 60) /* the angle of (b, a) */                                                  \
  X(kTan, "tan", 1, kSame, kFloats, 60)                                                                                \
  X(kAtan, "atan", 1, kSame, kFloats, 45)                                                                              \
  X(kAsin, "asin", 1, kSame, kFloats, 45)                                                                              \
  X(kAcos, "acos", 1, kSame, kFloats, 45)                                                                              \
  X(kExp2, "exp2", 1, kSame, kFloats, 22)                                                                              \
  X(kLog2, "log2", 1, kSame, kFloats, 38)                                                                              \
  X(kLog10, "log10", 1, kSame, kFloats, 38)                                                                            \
  X(kErfinv, "erfinv", 1, kSame, kFloats, 110)                                                                         \
  X(kAtanh, "atanh", 1, kSame, kFloats, 40)                                                                            \
  X(kNormalCdf, "normal_cdf", 1, kSame, kFloats, 25) /* how often a normal number is less than a */                    \
  X(kFmod, "fmod", 2, kSame, kFloats, 45)            /* exact, with the sign of a */                                   \
  X(kNextAfter, "nextafter", 2, kSame, kFloats, 16)  /* the number of the type next to a on the side of b */           \
  X(kCopysign, "copysign", 2, kSame, kFloats, 1)     /* |a| with the sign of b */                                      \
  X(kGcd, "gcd", 2, kSame, kInts, 300)               /* of the magnitudes; gcd(a, 0) = |a| */                          \
  X(kEq, "eq", 2, kCompare, kAll, 1)                                                                                   \
  X(kNe, "ne", 2, kCompare, kAll, 1)                                                                                   \
  X(kLt, "lt", 2, kCompare, kNumbers, 1)                                                                               \
  X(kLe, "le", 2, kCompare, kNumbers, 1)                                                                               \
  X(kGt, "gt", 2, kCompare, kNumbers, 1)                                                                               \
  X(kGe, "ge", 2, kCompare, kNumbers, 1)                                                                               \
  X(kAnd, "and", 2, kSame, kLogic, 1) /* bitwise on integers */                                                        \
  X(kOr, "or", 2, kSame, kLogic, 1)                                                                                    \
  X(kXor, "xor", 2, kSame, kLogic, 1)                                                                                  \
  X(kNot, "not", 1, kSame, kLogic, 1)                                                                                  \
  X(kSelect, "select", 3, kSelect, kAll, 1)       /* a ? b : c */                                                      \
  X(kCast, "cast", 1, kCast, kAll, 1)             /* from the operand's type to type */                                \
  X(kUniform, "uniform", 1, kRandom, kFloats, 90) /* a: element index; Philox4x32-10(seed, call + arg, a) to [0, 1) */ \
  X(kNormal, "normal", 1, kRandom, kFloats, 200)  /* same, Box-Muller */                                               \
  X(kRandBits, "randbits", 1, kRandom, kInts, 90) /* same, 63 random bits as i64 */
// clang-format on

enum class Op : uint8_t {
#define X(e, ...) e,
  LUTRA_LOOP_OPS(X)
#undef X
      kCount
};

struct OpInfo {
  const char* name;
  uint8_t operands;
  TypeRule rule;
  TypeSet types;
  int16_t cost;
  bool defines() const { return rule != TypeRule::kTake && rule != TypeRule::kCheckI64; }
};
const OpInfo& info(Op op);
inline const char* name(Op op) { return info(op).name; }
// Returns the cost of an instruction of that type; integer division is slower.
int cost(Op op, DType type);
// Returns true if it costs as much as tens of additions.
inline bool is_heavy(Op op) { return info(op).cost >= 20; }
bool accepts(TypeSet set, DType type);
bool has_access(Op op);  // load, store, store_add
bool has_effect(Op op);  // store, store_add, accum, check

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
  Op op = Op::kConst;
  DType type = DType::kNone;  // of the result (of the stored value, for stores)
  int32_t id = -1;            // value defined, -1 for none
  int32_t a = -1, b = -1, c = -1;
  int32_t arg = -1;  // see the table; kAccum: the accumulator's id
  double imm = 0;    // kConst of a float type
  int64_t iimm = 0;  // kConst of an integer type or bool
  Access access;
};

enum class RedOp : uint8_t { kSum, kProd, kMax, kMin, kArgMax, kArgMin, kAny, kAll };
// The reduction gives a position, not a value.
inline bool is_position(RedOp op) { return op == RedOp::kArgMax || op == RedOp::kArgMin; }
const char* name(RedOp op);

// A reduction over the loop that declares it and the loops within. After the loop `id` is its value. kArgMax and
// kArgMin compare the values, and return the position (i64) among the iterations in loop order. NaN comes before all,
// then the first of equal values.
struct Accumulator {
  RedOp op;
  DType type;       // of the values that it accumulates
  int32_t id = -1;  // what kAccum refers to; the value defined after the loop (kAny, kAll: b8)
  int32_t lanes = 1;
  int32_t block = 0;  // feeds of a block; 0: one block
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
  bool shared = false;  // not written, but a written parameter may be the same memory, so its contents may change
};

// Returns true if loads of it may be moved and repeated.
inline bool is_constant(const Param& p) { return !p.written && !p.shared; }

struct Kernel {
  std::string name;
  std::vector<Param> params;  // pointer arguments
  int32_t ints = 0;           // number of integer arguments
  int32_t scalars = 0;        // number of double arguments
  int32_t values = 0;         // value ids are below this
  int32_t loops = 0;
  std::vector<Stmt> body;
};

std::string print(const Kernel& k);
Kernel parse_kernel(const std::string& text);  // throws Error(kUser) naming the line
std::string verify(const Kernel& k);           // empty, or what is wrong
Kernel clone(const Kernel& k);

}  // namespace lutra::loop
