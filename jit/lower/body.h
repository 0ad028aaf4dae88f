// Builds a kernel. In: loops, scalar instructions and accesses with symbolic coefficients. Out: a loop::Kernel, whose
// arguments are numbered in order of first use.
// Invariants:
// 1. Pure instructions are numbered by value, and are in the outermost loop in which their operands are known.
// 2. A load whose address contains a checked value is no further out than the check.
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

// An instruction; or a loop, if `loop` is set.
struct BodyStmt {
  BodyInst inst;
  std::unique_ptr<BodyLoop> loop;
};

struct BodyLoop {
  int32_t id = 0;
  SymInt size;
  loop::LoopMode mode = loop::LoopMode::kSerial;
  bool joined = false;  // a reduction treats this loop and the one within as one loop
  bool parallel = false;
  std::vector<loop::Accumulator> accs;
  std::vector<BodyStmt> body;
  struct Merge {
    SymInt outer, inner;
  };
  std::vector<Merge> merges;  // the sizes of the loops that were merged into this one, the last merge last
};

// The arguments of the finished kernel.
struct BodyArgs {
  struct Check {
    int32_t arg, fault;
  };
  std::vector<int32_t> buffers;  // one for each pointer argument
  std::vector<int32_t> ints, scalars;
  std::vector<Check> checks;
  SymInt extent = 0, work = 1;  // extent: of the parallel loop, 0 without one. work: of one of its iterations, or of
                                // the whole kernel
};

class Body {
 public:
  explicit Body(SymFacts& facts) : facts_(facts) { scopes_.emplace_back(); }

  int32_t open(SymInt size, loop::LoopMode mode, bool joined = false);
  void close();
  // Adds an accumulator to the open loop at `depth` (1: the outermost).
  int32_t accumulator(size_t depth, loop::RedOp op, DType type, int32_t lanes, int32_t block);
  void accum(int32_t acc, int32_t value);

  int32_t op(loop::Op op, DType type, int32_t a = -1, int32_t b = -1, int32_t c = -1, int32_t arg = -1);
  int32_t constant(DType type, double v);
  int32_t constant_int(DType type, int64_t v);
  int32_t scalar(int32_t expr, DType type);  // a number expression of the env
  int32_t int_value(SymInt v);               // i64
  int32_t cast(int32_t value, DType type);
  int32_t index(const Affine& at);  // i64
  // A complex element is two values, in memory and here. Only loads, stores, casts and selects take complex values;
  // they act on both parts.
  int32_t load(int32_t buffer, DType type, const Affine& at);
  void store(loop::Op op, int32_t buffer, const Affine& at, int32_t value);
  void check(int32_t value, SymInt bound, int32_t fault);

  // Returns a part of a complex value: 0 the real one, 1 the imaginary one.
  int32_t part(int32_t value, int which) const { return values_[size_t(value)].parts[which]; }
  DType type(int32_t value) const { return values_[size_t(value)].type; }
  size_t depth() const { return scopes_.size() - 1; }
  size_t depth_of(int32_t value) const { return values_[size_t(value)].depth; }
  // Returns how often the body at depth runs, by hints.
  double trips(size_t depth) const { return scopes_[depth].trips; }
  // Returns the number of instructions. A mathematical function counts as its cost, since its code is that long.
  int instructions() const { return instructions_; }
  // Returns the cost of all instructions, by hints, in additions of float32.
  double additions() const { return additions_; }
  // Returns the cost of the 64-bit instructions outside vector loops. These compute addresses.
  double index_additions() const { return index_additions_; }
  // Returns sorted hashes of the instructions before all loops. A fused kernel has each of them once.
  std::vector<uint64_t> hoisted() const;

  // remember stores a value while the scope that it lives in is open. recall returns it, -1 if there is none.
  int32_t recall(const std::string& key) const;
  void remember(const std::string& key, int32_t value);

  struct Use {
    int32_t buffer;
    Affine at;
    bool written;
    DType type;
    double elements;  // how many elements it accesses, by hints: the iterations of the loops that its address depends
                      // on
    double step;      // bytes between the elements of two iterations of the innermost loop
  };
  const std::vector<Use>& uses() const { return uses_; }

  // Merges loops. Returns false if loops that a reduction treats as one cannot be merged.
  bool merge_loops();
  // Makes the outermost loop parallel if it is the only one. nested: also makes the loops of a perfect nest within it
  // parallel. Otherwise, if an iteration takes long, or if there are few and they are worth more threads, it joins the
  // outermost loop with loops within it first. least_share: the additions that are worth a thread.
  void make_parallel(bool nested, double least_share);
  loop::Kernel finish(const std::string& name, BodyArgs& args);

 private:
  struct ValueInfo {
    DType type;
    size_t depth, address_depth;
    int32_t parts[2] = {-1, -1};
    bool rounds = false;   // a cast to a half type
    int32_t widened = -1;  // the half value that this one is a cast of, in a wider float
  };
  struct Scope {
    std::unique_ptr<BodyLoop> loop;  // null at depth 0
    double trips = 1;                // of its body, by hints
    std::vector<BodyStmt> body;
    std::unordered_map<std::string, int32_t> known;
  };
  size_t depth_of_terms(const Affine& at) const;
  double elements_of(const Affine& at) const;
  double step_of(const Affine& at, DType type) const;
  void count(const loop::Inst& in, size_t depth);
  int32_t place(size_t depth, const std::string& key, BodyInst inst);
  int32_t new_value(DType type, size_t depth);
  int32_t cast_parts(int32_t value, DType to);
  int32_t load_one(int32_t buffer, DType type, const Affine& at);
  void store_one(loop::Op op, int32_t buffer, const Affine& at, int32_t value);
  int32_t pair(DType type, int32_t re, int32_t im);
  bool merge(std::vector<BodyStmt>& body);
  std::vector<BodyLoop*> outer_loops(double least_share);
  void undo_merge(BodyLoop& around, const BodyLoop* row);
  void join_outer_loops(double least_share);
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
