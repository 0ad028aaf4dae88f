// Lua's heap while limits are in force: an allocator before the state's own in, refusals where a limit is reached out.
#pragma once
#include <cstdint>
#include <string>

struct lua_State;

namespace lutra {

// For a scope the state may hold so many bytes, its tensors included (0: any number), and gets no block of memory that
// could not be filled before the deadline (of CLOCK_MONOTONIC, infinite: none). Scopes may lie in one another: the
// strictest holds. Throws nothing but std::bad_alloc.
class HeapScope {
 public:
  HeapScope(lua_State* L, int64_t bytes, double deadline);
  ~HeapScope();
  HeapScope(const HeapScope&) = delete;

  // Whether the state was refused memory in this scope because of its bytes, or because its time is over.
  bool refused_bytes() const;
  bool refused_time() const;
  std::string refusal() const;  // "limits: N bytes are used up"

 private:
  struct Heap;
  static void* limited(void* ud, void* block, size_t old_bytes, size_t bytes);
  Heap* heap_;
  bool own_;
  int64_t saved_limit_;
  double saved_deadline_;
};

}  // namespace lutra
