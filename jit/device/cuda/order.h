// Decides which launches of a recorded run wait for which: a launch waits for those that wrote memory that it accesses,
// and for those that accessed memory that it writes. All others may run in parallel. So work outside a step's longest
// chain (weight gradients, sums, updates) is hidden behind that chain.
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

// A range of bytes in a space: the arena, a block of libraries' memory, or all addresses (for functions). Memory that
// its name alone identifies has a space of its own.
struct MemoryRange {
  enum Kind : int64_t { kArena, kBuffer, kStorage, kScratch, kAddresses };
  int64_t space = 0;
  size_t from = 0, to = 1;

  static MemoryRange of(Kind kind, int64_t n = 0, size_t from = 0, size_t to = 1) {
    return {int64_t(kind) << 32 | n, from, to};
  }
};

// Invariants:
// 1. Memory is identified by its role in the plan (storage of an input, result), never by address, and in the arena by
//    its place there. So the order is valid for every replay with the same arena layout; a recording's key includes
//    this layout. Memory that a launch passes to functions does not move between replays, so within it memory is
//    identified by address.
// 2. Temporary memory of libraries is a block of a ScratchPool, or in the arena. A launch that takes it waits for those
//    that had it before.
// 3. What functions put into the stream waits for what their launch waits for. What waits for that launch waits for all
//    of it.
class LaunchOrder : cuda::ScratchWatch {
 public:
  // Orders the launches of a stream that this thread captures from now on.
  LaunchOrder(const Plan& plan, const ArenaLayout& layout, const char* arena, cuda::StreamHandle stream,
              cuda::ScratchPool& scratch);
  // Orders the launches of a graph within `around`'s: the body of a conditional node.
  explicit LaunchOrder(LaunchOrder& around);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  // Returns the order of this thread's current capture, or null.
  static LaunchOrder* current();

  // Returns the range of a buffer of the recorded plan.
  MemoryRange range_of(int32_t buffer) const;

  // These enclose what a launch puts into the stream. Call wait() after touch() for all memory that the launch
  // accesses. begin throws if a graph of so many launches would take too long to make.
  void begin();
  void touch(const MemoryRange& range, bool written);
  void wait();
  void end();
  // For a launch that runs functions: enclose their launches, between wait and end.
  void enter();
  void leave();

  // Enclose a launch that waits for all earlier launches. All later launches wait for it.
  void begin_barrier();
  void end_barrier();
  // The graph that is being captured, and the nodes that the next one waits for.
  cuda::GraphHandle graph() const;
  std::vector<cuda::GraphNode> leaves() const;
  // The graph of a capture that was ended and then continued. Nobody else owns it until it ends.
  cuda::GraphHandle resumed = nullptr;

  // Returns temporary memory for a call of a function. Calls get different pieces in turn, so that consecutive calls
  // may overlap.
  void* arena(const void* function, size_t bytes, Device device);

 private:
  // A set of indices into done_.
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
    std::vector<int32_t> readers;  // since the last write
  };
  using Pieces = std::map<size_t, Piece>;  // by their begin; pieces do not overlap
  struct Done {
    std::vector<cuda::GraphNode> leaves;
    Set before;  // what it waits for, directly or indirectly
  };
  // The launch that is being put into the stream.
  struct Launch {
    std::vector<std::pair<MemoryRange, bool>> touched;
    std::vector<int32_t> dependencies;  // earlier launches; some of these wait for others of them
    Set before;
    int32_t entry = -1;  // of a launch that runs functions: a node for what it waits for
  };
  struct Arenas {
    std::vector<Ref<Storage>> all;
    size_t calls = 0;
  };
  void wait_for(int32_t done);
  void mark(const MemoryRange& range, bool written);
  static void cut(Pieces& pieces, size_t at);
  static Pieces::iterator first_in(Pieces& pieces, size_t from);
  std::vector<cuda::GraphNode> nodes_of(std::span<const int32_t> launches) const;
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
  std::vector<Launch> around_;  // the launches whose functions' launches these are, outermost first
  std::map<const void*, Arenas> arenas_;
  LaunchOrder* const outer_ = nullptr;
  int32_t floor_ = -1;  // what all later launches wait for
};

// Lets launches that wait by themselves (ops/cuda/loaded_module.h) begin while a small kernel that they depend on is
// still running. This hides the time before a launch's first instruction. Next to a large kernel a waiting launch would
// take the place of others that could run. Returns the number of edges that it changed.
size_t overlap_launches(cuda::GraphHandle graph, const cuda::Context& gpu);

}  // namespace lutra
