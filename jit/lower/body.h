// A kernel under construction: loops, scalar instructions and accesses with symbolic coefficients go in; a loop::Kernel
// with its arguments numbered in order of first use comes out.
// Invariants:
// 1. Pure instructions are numbered by value and stand in the outermost loop in which their operands are known.
// 2. A load whose address holds a checked value stands no further out than the check.
// 3. Loops are merged only where every position in them is provably unchanged; reductions keep their order.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/loop/loop.h"
#include "jit/lower/affine.h"
#include "jit/lower/facts.h"

namespace lutra {

struct BodyLoop;

struct BodyInst {
  loop::Inst inst;
  int32_t buffer = -1;  // accesses: id of the plan's buffer
  Affine at;            // accesses; kIndex: the i64 computed
  int32_t expr = 0;     // kScalar, kIntArg: the argument
  int32_t fault = -1;   // kCheck: which fault
  SymInt bound;         // kCheck
};

// An instruction, or a loop where that is set.
struct BodyStmt {
  BodyInst inst;
  std::unique_ptr<BodyLoop> loop;
};

struct BodyLoop {
  int32_t id = 0;
  SymInt size;
  loop::LoopMode mode = loop::LoopMode::kSerial;
  bool joined = false;  // a reduction's order takes this loop and the one within as a single one
  bool parallel = false;
  std::vector<loop::Accumulator> accs;
  std::vector<BodyStmt> body;
  struct Merge {
    SymInt outer, inner;
  };
  std::vector<Merge> merges;  // sizes of the loops that became this one, the last merge last
};

// What the arguments of the finished kernel are.
struct BodyArgs {
  struct Check {
    int32_t arg, fault;
  };
  std::vector<int32_t> buffers;  // one a pointer argument
  std::vector<int32_t> ints, scalars;
  std::vector<Check> checks;
  SymInt extent = 0, work = 1;  // of the parallel loop, and of an iteration of it; 0, and of all
};

class Body {
 public:
  explicit Body(SymFacts& facts) : facts_(facts) { scopes_.emplace_back(); }

  int32_t open(SymInt size, loop::LoopMode mode, bool joined = false);
  void close();
  // On the open loop at `depth` (1: outermost).
  int32_t accumulator(size_t depth, loop::RedOp op, DType type, int32_t lanes, int32_t block);
  void accum(int32_t acc, int32_t value);

  int32_t op(loop::Op op, DType type, int32_t a = -1, int32_t b = -1, int32_t c = -1, int32_t arg = -1);
  int32_t constant(DType type, double v);
  int32_t constant_int(DType type, int64_t v);
  int32_t scalar(int32_t expr, DType type);  // a number expression of the env
  int32_t int_value(SymInt v);               // i64
  int32_t cast(int32_t value, DType type);
  int32_t index(const Affine& at);  // i64
  // A complex element is two values in memory and here: ops on it are loads, stores, casts and selects of both.
  int32_t load(int32_t buffer, DType type, const Affine& at);
  void store(loop::Op op, int32_t buffer, const Affine& at, int32_t value);
  void check(int32_t value, SymInt bound, int32_t fault);

  // The part of a complex value: 0 the real one, 1 the imaginary one.
  int32_t part(int32_t value, int which) const { return values_[size_t(value)].parts[which]; }
  DType type(int32_t value) const { return values_[size_t(value)].type; }
  size_t depth() const { return scopes_.size() - 1; }
  size_t depth_of(int32_t value) const { return values_[size_t(value)].depth; }
  // How often the body at depth runs, by hints.
  double trips(size_t depth) const { return scopes_[depth].trips; }
  // A function counts as what it costs: so much code it is.
  int instructions() const { return instructions_; }
  // Of all instructions, by hints, in additions of float32.
  double additions() const { return additions_; }
  // Of those of 64 bits that no vector loop holds: places in memory come from such.
  double index_additions() const { return index_additions_; }
  // Hashes of the instructions before all loops, sorted: kernels that are put together have one of each.
  std::vector<uint64_t> hoisted() const;

  // Values made elsewhere, remembered while the scope they live in is open: -1 where there is none.
  int32_t recall(const std::string& key) const;
  void remember(const std::string& key, int32_t value);

  struct Use {
    int32_t buffer;
    Affine at;
    bool written;
    DType type;
    double elements;  // that it meets, by hints: iterations of the loops that it moves with
  };
  const std::vector<Use>& uses() const { return uses_; }

  // Merges loops; false where loops that a reduction takes as one cannot be merged.
  bool merge_loops();
  // The outermost loop, which stands alone, may be split among threads; nested: and those of a perfect nest within.
  // Without that it becomes one with the loops within, where an iteration of it takes long.
  void make_parallel(bool nested = false);
  loop::Kernel finish(const std::string& name, BodyArgs& args);

 private:
  struct ValueInfo {
    DType type;
    size_t depth, address_depth;
    int32_t parts[2] = {-1, -1};
    bool rounds = false;   // a cast to a half type
    int32_t widened = -1;  // the one that this is, in a wider float
  };
  struct Scope {
    std::unique_ptr<BodyLoop> loop;  // null at depth 0
    double trips = 1;                // of its body, by hints
    std::vector<BodyStmt> body;
    std::unordered_map<std::string, int32_t> known;
  };
  size_t depth_of_terms(const Affine& at) const;
  double elements_of(const Affine& at) const;
  void count(const loop::Inst& in, size_t depth);
  int32_t place(size_t depth, const std::string& key, BodyInst inst);
  int32_t new_value(DType type, size_t depth);
  int32_t cast_parts(int32_t value, DType to);
  int32_t load_one(int32_t buffer, DType type, const Affine& at);
  void store_one(loop::Op op, int32_t buffer, const Affine& at, int32_t value);
  int32_t pair(DType type, int32_t re, int32_t im);
  bool merge(std::vector<BodyStmt>& body);
  std::vector<BodyLoop*> outer_loops();
  void undo_merge(BodyLoop& around, const BodyLoop* row);
  void join_outer_loops();
  bool can_merge(const BodyLoop& outer, const BodyLoop& inner);
  void drop_dead();
  void mark_used(const std::vector<BodyStmt>& body, std::vector<bool>& used) const;
  bool linear(const std::vector<BodyStmt>& body, const BodyLoop& outer, const BodyLoop& inner);

  SymFacts& facts_;
  std::vector<Scope> scopes_;
  std::vector<ValueInfo> values_;
  std::vector<Use> uses_;
  int32_t loops_ = 0;
  int instructions_ = 0;
  double additions_ = 0, index_additions_ = 0;
};

}  // namespace lutra
