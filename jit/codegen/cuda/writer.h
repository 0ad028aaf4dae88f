// Writes a mapped kernel as CUDA C++. analysis.h describes the mapping; device/*.cuh has the functions that the text
// calls.
//
// Invariants:
// 1. Names: loop variable i<id>, first element of a thread's pack c<id>, value v<id>, partials a<id>, positions taken
//    so far q<id>, pointers p<n>, integer arguments n<n>, packs x<n> (loaded) and y<n> (stored).
// 2. Control flow around barriers and shuffles depends on the arguments only, so it is the same for all threads of a
//    block. A group that does not exist (live is false) runs along: its loops are empty, and it stores nothing.
// 3. If one thread of a group may read what another one stored, there is a barrier in between. touched_ holds the
//    accesses since the last barrier.
// 4. A failing check makes ok false. Memory whose address depends on values is accessed only while ok holds.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "jit/codegen/cuda/analysis.h"
#include "ops/core/error.h"

namespace lutra::cuda {

struct Parts;  // the device/*.cuh files that a kernel needs

class Writer {
 public:
  // most > 1: the kernel takes up to `most` argument blocks, each with a part of the grid
  // (KernelSource::several_entry).
  Writer(const loop::Kernel& k, const Mapping& m, int most);
  bool reduces() const { return reduce_; }
  std::string run();  // a translation unit
  std::string entry() const { return entry_; }

 private:
  using Inst = loop::Inst;
  using Loop = loop::Loop;
  using Accumulator = loop::Accumulator;
  using Stmts = std::vector<loop::Stmt>;

  // How the code for a shared loop's elements is written.
  struct Style {
    bool packed = false;    // whole packs, from c<id>
    bool resident = false;  // packs are in register arrays, indexed by r
    std::string phase;      // which V partials to use: text for a multiple of V; empty for none
  };
  // A thread's packs that are unrolled: how many, from which element on (empty: of the thread's row), and whether they
  // are guarded.
  struct Rounds {
    int count = 0;
    std::string from;
    bool guarded = false;
  };
  // An access by a group's threads since the last barrier.
  struct Touch {
    int32_t ptr;
    std::string key;
    bool store, shared;  // shared: each element is accessed by its thread; otherwise all threads load, or the first one
                         // stores
  };
  // An array of packs in registers that holds the contents of a place.
  struct Kept {
    std::string name;
    int32_t ptr;
  };

  // source.cc
  const char* block_x() const { return most_ > 1 ? "block_x" : "blockIdx.x"; }
  void head();
  void block_struct();
  std::string nest_total() const;
  void nest_indices();
  void flat_apart();
  void split_indices(const std::string& from, size_t depth);
  std::string extent(size_t d) const;
  void flat();
  void tiles();
  void group();
  void group_body(const Stmts& body);
  void group_inst(const Inst& in);
  void group_loop(const Loop& l);
  void thread_body(const Stmts& body);
  void thread_loop(const Loop& l);
  void declare_accumulators(const Loop& l);
  std::string packed_condition(const std::vector<const Loop*>& loops);
  void touch(const Inst& in, const Loop* shared);
  void barrier();
  bool conflicts(const std::vector<Touch>& a, const std::vector<Touch>& b) const;

  // emit_rows.cc
  void shared_loop(const Loop& l);
  void rows_resident(const Loop& l);
  void run_rounds(const Loop& l);
  void open_rounds(const Loop& l);
  void open_round(const Loop& l);
  void close_rounds();
  void rows_plain(const Loop& l);
  void rows_folded(const Loop& l, int k);
  bool folds(const Loop& l) const;
  void elements(const Loop& l, const Style& style);
  void load_packs(const Loop& l, bool resident);
  void finish_accumulators(const Loop& l);
  void finish_in_block(const std::vector<const Accumulator*>& accs);
  size_t slot_bytes() const { return m_.columns ? 32 * 16 : 16; }  // of an accumulator's results, of up to 16 bytes
  void plan_residency(const Stmts& body);
  int partials(const Accumulator& a) const;
  int lanes(const Accumulator& a) const;
  std::string whole(const Accumulator& a, const std::string& text) const;
  int phases(const Loop& l) const;
  std::string bound(const Loop& l) const;

  // emit_blocks.cc
  std::vector<const Accumulator*> blocked(const Loop& l) const;
  bool one_block(const Loop& l, const Accumulator& a) const;
  bool feeds_divide_blocks(const Loop& l, int feeds) const;
  void begin_feeds(const Loop& l, int feeds, const std::string& when);
  int serial_block(const Loop& l) const;
  void open_serial(const Loop& l, const std::string& unroll);
  void close_serial(const Loop& l);
  void begin_feed(const Accumulator& a);
  void end_blocks(const Accumulator& a);

  // emit_values.cc
  void inst(const Inst& in);
  void define(const Inst& in, const std::string& text);
  std::string value(const Inst& in) const;
  std::string binary(const Inst& in) const;
  std::string unary(const Inst& in) const;
  std::string cast(DType from, DType to, const std::string& v) const;
  std::string constant(const Inst& in) const;
  std::string rounded(DType t, const std::string& v) const;
  std::string load(const Inst& in) const;
  void store(const Inst& in, const std::string& guard);
  void accum(const Inst& in);
  void check(const Inst& in);
  std::string address(const loop::Access& a, int32_t loop_id = -1, const std::string& as = "") const;
  std::string coef(const loop::Coef& c) const;
  std::string from_memory(DType t, const std::string& v) const;
  std::string to_memory(DType t, const std::string& v) const;
  bool guarded(const Inst& in) const;
  std::string op_type(const Accumulator& a) const;

  void line(const std::string& text);
  void open(const std::string& text);
  void close();

  const loop::Kernel& k_;
  const Mapping& m_;
  const int most_;
  std::string out_, entry_;
  int depth_ = 0;
  std::vector<DType> types_;              // by value
  std::vector<const Accumulator*> accs_;  // by value
  std::vector<bool> counted_;             // by value: a sum whose loop counts its feeds
  std::vector<const Loop*> stack_;        // the open serial and shared loops
  std::string phase_;                     // index of the partial for the elements being written; "" for a single one
  const Loop* shared_ = nullptr;          // the enclosing shared loop
  bool fast_ = false;                     // writing the path that keeps rows in registers
  bool folded_ = false;                   // partials are combined as they are computed, see rows_folded
  bool checks_ = false;
  bool in_groups_ = false;                     // in code of groups, some of which may not exist
  std::map<const Inst*, std::string> packs_;   // loads and stores of the elements being written that use packs
  std::map<const Inst*, std::string> tiles_;   // loads that read from shared memory
  std::map<std::string, Kept> kept_;           // by place
  std::map<std::string, int> reads_;           // number of loads of a place by packs, in the loops of the body
  std::map<const Inst*, bool> dead_, wanted_;  // dead_: stores that are overwritten; wanted_: accesses whose packs are
                                               // read again
  Rounds rounds_;
  std::vector<std::string> once_;  // declarations of packs that only one round reads
  std::vector<Touch> touched_;
  size_t shared_bytes_ = 0, slots_ = 0;
  int names_ = 0;
  bool reduce_ = false;
};

const char* value_type(DType t);   // the C++ type of a value
const char* memory_type(DType t);  // the C++ type of an element in memory

}  // namespace lutra::cuda
