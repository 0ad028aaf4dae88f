// Limits on Lua's heap: an allocator in front of the state's own, which refuses memory when a limit is reached.
#pragma once
#include <cstdint>
#include <string>

struct lua_State;

namespace lutra {

// Limits for a scope how many bytes the state may hold, including its tensors (0: no limit). Refuses a block of memory
// that could not be filled before the deadline (in seconds of CLOCK_MONOTONIC; infinite: none). Scopes may be nested;
// the strictest limit holds. Throws only std::bad_alloc.
class HeapScope {
 public:
  HeapScope(lua_State* L, int64_t bytes, double deadline);
  ~HeapScope();
  HeapScope(const HeapScope&) = delete;

  // Return whether memory was refused in this scope because of the limit of bytes, or of the deadline.
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
