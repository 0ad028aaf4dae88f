// Which launches of a run that is recorded wait for which: those that touch memory that an earlier one wrote, or write
// memory that an earlier one touched. All others may run side by side, so what a step does beside its longest chain
// (weight gradients, sums, updates) is hidden behind it.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "jit/runtime/arena.h"
#include "jit/schedule/plan.h"
#include "ops/cuda/context.h"
#include "ops/extern/cuda/recording.h"

namespace lutra {

constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

// Bytes of a space: of the arena, of a block of libraries' memory, of all addresses (for functions). What is told apart
// by its name alone has a space of its own.
struct MemoryRange {
  enum Kind : int64_t { kArena, kBuffer, kStorage, kScratch, kAddresses };
  int64_t space = 0;
  size_t from = 0, to = 1;

  static MemoryRange of(Kind kind, int64_t n = 0, size_t from = 0, size_t to = 1) {
    return {int64_t(kind) << 32 | n, from, to};
  }
};

// Invariants:
// 1. Memory is told apart by what it is in the plan (storage of inputs, result), never by address, and in the arena by
//    where it lies there: the order holds for every replay with the arena's layout, which is part of what a recording
//    must find equal. What a launch that runs functions is given does not move from replay to replay, so within it
//    memory is told apart by address.
// 2. Temporary memory of libraries is a block of a ScratchPool, or lies in the arena: who takes it waits for who had
//    it.
// 3. What functions put into the stream waits for what their launch waits for; who waits for that launch waits for all
//    of it.
class LaunchOrder : cuda::ScratchWatch {
 public:
  // Of a stream that this thread captures from now on.
  LaunchOrder(const Plan& plan, const ArenaLayout& layout, const char* arena, cuda::StreamHandle stream,
              cuda::ScratchPool& scratch);
  // Of a graph within the one of that order: the body of a conditional node.
  explicit LaunchOrder(LaunchOrder& around);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  // Of the capture that is under way on this thread, or null.
  static LaunchOrder* current();

  // A buffer of the plan that is recorded.
  MemoryRange range_of(int32_t buffer) const;

  // Around what a launch puts into the stream. wait: when it has said what it touches. begin throws where a graph of so
  // many launches would take too long to make.
  void begin();
  void touch(const MemoryRange& range, bool written);
  void wait();
  void end();
  // Between wait and end of a launch that runs functions: around their launches.
  void enter();
  void leave();

  // Around what waits for all that is done, and is waited for by all that comes.
  void wait_for_all();
  void all_wait();
  // What is captured now: its graph, and the nodes that the next one waits for.
  cuda::GraphHandle graph() const;
  std::vector<cuda::GraphNode> leaves() const;
  // Of a capture that was ended and goes on: its graph, which nobody else owns until it ends.
  cuda::GraphHandle resumed = nullptr;

  // Temporary memory for a call of a function: pieces in turn, so that calls that follow each other may overlap.
  void* arena(const void* function, size_t bytes, Device device);

 private:
  // Positions among done_.
  class Set {
   public:
    bool has(size_t i) const { return i / 64 < words_.size() && (words_[i / 64] >> i % 64 & 1); }
    void add(size_t i);
    void add(const Set& other);

   private:
    std::vector<uint64_t> words_;
  };
  struct Piece {
    size_t to = 0;
    int32_t writer = -1;
    std::vector<int32_t> readers;  // since
  };
  using Pieces = std::map<size_t, Piece>;  // by where they begin; no byte is in two
  struct Done {
    std::vector<cuda::GraphNode> leaves;
    Set before;  // that it waits for, however indirectly
  };
  // What is being put into the stream.
  struct Launch {
    std::vector<std::pair<MemoryRange, bool>> touched;
    std::vector<int32_t> asked;  // that it waits for, some of them through others
    Set before;
    int32_t entry = -1;  // of one that runs functions: stands for what it waits for
  };
  struct Arenas {
    std::vector<Ref<Storage>> all;
    size_t calls = 0;
  };
  void wait_for(int32_t done);
  void mark(const MemoryRange& range, bool written);
  static void cut(Pieces& pieces, size_t at);
  static Pieces::iterator first_in(Pieces& pieces, size_t from);
  std::vector<cuda::GraphNode> nodes_of(std::span<const int32_t> asked) const;
  void take(const MemoryRange& range);
  void taken(size_t block) override;
  void taken_lent(const void* p, size_t nbytes) override;

  const Plan& plan_;
  const ArenaLayout& layout_;
  const char* const arena_;
  const cuda::StreamHandle stream_;
  cuda::ScratchPool& scratch_;
  std::map<int64_t, Pieces> spaces_;
  std::vector<Done> done_;
  Launch launch_;
  std::vector<Launch> around_;  // whose functions' launches these are, outermost first
  std::map<const void*, Arenas> arenas_;
  LaunchOrder* const outer_ = nullptr;
  int32_t floor_ = -1;  // what all that comes waits for
};

// Lets launches of a graph that wait by themselves (ops/cuda/loaded_module.h) begin while a small kernel that they
// depend on still runs: what a launch costs before its first instruction is hidden. Beside a large kernel a launch that
// waits would take the place of others that could run. The number of edges that were changed.
size_t overlap_launches(cuda::GraphHandle graph, const cuda::Context& gpu);

}  // namespace lutra
