// Limits on Lua's heap. See heap.h.
//
// Invariants:
// 1. Only growth is refused, and Lua then raises "not enough memory". A block may always shrink or be freed, as Lua
//    expects.
// 2. Garbage is collected when half of the remaining room is used, at Lua's next collector check; then again after half
//    of what remains.
// 3. Only large blocks are refused. LuaJIT allocates small ones while it leaves machine code, and crashes if that
//    fails. Small blocks are granted, up to a slack, and a hook raises the error at Lua's next instruction.
#include "vm/host/heap.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <lua.hpp>

#include "ops/core/account.h"
#include "ops/core/clock.h"
#include "ops/core/interrupt.h"
#include "vm/host/limits.h"
#include "vm/host/modes.h"

namespace lutra {

namespace {
constexpr double kFilled = 1e9;                  // assumed rate of writing to new memory, in bytes a second
constexpr size_t kLargeBlock = size_t(4) << 20;  // smaller blocks are filled in negligible time
constexpr size_t kSmallBlock = size_t(1) << 20;  // Lua's stack has at most half as much
constexpr int64_t kSlack = int64_t(8) << 20;
}  // namespace

struct HeapScope::Heap {
  lua_Alloc alloc;
  void* ud;
  lua_State* L;
  MemoryAccount* account;
  double deadline = INFINITY;
  int64_t collect_at = MemoryAccount::kAny;  // bytes of the heap
  int step_multiplier = 0;
  bool collecting = false, swept = false, raising = false, refused_time = false;
  lua_Hook hook = nullptr;  // the hook that ours replaces
  int mask = 0, count = 0;

  int64_t held() const { return account->heap.load(std::memory_order_relaxed); }
  bool is_time_over(size_t bytes) {
    if (bytes < kLargeBlock) return false;
    if (stop_reason) return true;
    if (deadline == INFINITY) return false;
    return clock_seconds() + double(bytes) / kFilled > deadline;
  }
  void plan() {
    const int64_t limit = account->limit.load(std::memory_order_relaxed);
    if (limit == MemoryAccount::kAny) {
      collect_at = limit;
      return;
    }
    const int64_t room = limit - held() - account->tensors.load(std::memory_order_relaxed);
    collect_at = held() + std::max<int64_t>(room / 2, 0);
  }
  // Makes Lua's collector run a whole cycle at its next check. Called within an allocation.
  void collect() {
    if (collecting || !lua_gc(L, LUA_GCISRUNNING, 0)) return;
    collecting = true;
    step_multiplier = lua_gc(L, LUA_GCSETSTEPMUL, 0);  // a step that does not stop
    lua_gc(L, LUA_GCRESTART, 0);                       // now
  }
  void end_collection() {
    if (!collecting) return;
    collecting = swept = false;
    lua_gc(L, LUA_GCSETSTEPMUL, step_multiplier);
  }
  // Raises the error at Lua's next instruction. A hook does not stop machine code, so LuaJIT's profiler makes it leave
  // that.
  void raise_soon() {
    if (raising || lua_gethook(L) == raise_in_lua) return;
    hook = lua_gethook(L), mask = lua_gethookmask(L), count = lua_gethookcount(L);
    lua_sethook(L, raise_in_lua, LUA_MASKCOUNT, 1);
    leave_traces(L);
  }
  void restore_hook() {
    if (lua_gethook(L) == raise_in_lua) lua_sethook(L, hook, mask, count);
  }
  static void raise_in_lua(lua_State* L, lua_Debug*);
};

void HeapScope::Heap::raise_in_lua(lua_State* L, lua_Debug*) {
  void* ud = nullptr;
  if (lua_getallocf(L, &ud) != limited) {
    lua_sethook(L, nullptr, 0, 0);
    return;
  }
  Heap& heap = *static_cast<Heap*>(ud);
  heap.restore_hook();
  if (heap.account->has_room(0)) return;
  lua_gc(L, LUA_GCCOLLECT, 0);
  if (heap.account->has_room(0)) return;
  heap.raising = true;  // allocating the message must not raise another error
  luaL_where(L, 0);
  lua_pushstring(L, "limits: ");
  lua_pushnumber(L, lua_Number(heap.account->limit.load()));
  lua_pushliteral(L, " bytes are used up");
  lua_concat(L, 4);
  heap.raising = false;
  lua_error(L);
}

void* HeapScope::limited(void* ud, void* block, size_t old_bytes, size_t bytes) {
  Heap& heap = *static_cast<Heap*>(ud);
  const int64_t growth = int64_t(bytes) - int64_t(old_bytes);
  if (growth > 0) {
    if (heap.swept) {
      heap.end_collection();
      heap.plan();
    }
    if (!heap.account->has_room(growth)) {
      heap.account->refused = true;
      heap.collect();  // frees the garbage that the error leaves
      if (bytes > kSmallBlock || !heap.account->has_room(growth - kSlack)) return nullptr;
      heap.raise_soon();
    } else if (heap.is_time_over(bytes)) {
      heap.refused_time = true;
      return nullptr;
    } else if (heap.held() + growth > heap.collect_at) {
      heap.collect();
    }
  }
  void* result = heap.alloc(heap.ud, block, old_bytes, bytes);
  if (!result && bytes) return nullptr;
  heap.account->heap.store(heap.held() + growth, std::memory_order_relaxed);
  if (!bytes && heap.collecting) heap.swept = true;
  return result;
}

namespace {

int64_t heap_bytes(lua_State* L) { return int64_t(lua_gc(L, LUA_GCCOUNT, 0)) * 1024 + lua_gc(L, LUA_GCCOUNTB, 0); }

// Collects garbage if the limit is already exceeded. A call that ran out of memory leaves garbage; without a collection
// the next call's first blocks would be refused.
void make_room(lua_State* L, const MemoryAccount& account, int64_t limit) {
  const int64_t held = heap_bytes(L) + account.tensors.load(std::memory_order_relaxed);
  if (held <= limit || !lua_gc(L, LUA_GCISRUNNING, 0)) return;
  const auto collect = [](lua_State* state) { return lua_gc(state, LUA_GCCOLLECT, 0); };
  if (lua_cpcall(L, collect, nullptr) != 0) lua_pop(L, 1);  // a finalizer's error
}

}  // namespace

HeapScope::HeapScope(lua_State* L, int64_t bytes, double deadline) {
  void* ud = nullptr;
  const lua_Alloc now = lua_getallocf(L, &ud);
  own_ = now != limited;
  MemoryAccount& account = own_ ? *modes_of(L)->account : *static_cast<Heap*>(ud)->account;
  saved_limit_ = account.limit;
  const int64_t limit = bytes > 0 ? std::min(saved_limit_, bytes) : saved_limit_;
  make_room(L, account, limit);
  if (own_) {
    heap_ = new Heap{now, ud, L, &account};
    account.heap = heap_bytes(L);
    account.refused = false;
    lua_setallocf(L, limited, heap_);
  } else {
    heap_ = static_cast<Heap*>(ud);
  }
  saved_deadline_ = heap_->deadline;
  account.limit = limit;
  heap_->deadline = std::min(saved_deadline_, deadline);
  heap_->plan();
}

HeapScope::~HeapScope() {
  heap_->restore_hook();
  heap_->end_collection();
  heap_->account->limit = saved_limit_;
  heap_->deadline = saved_deadline_;
  heap_->plan();
  if (!own_) return;
  lua_setallocf(heap_->L, heap_->alloc, heap_->ud);
  heap_->account->heap = 0;
  delete heap_;
}

bool HeapScope::refused_bytes() const { return heap_->account->refused; }
bool HeapScope::refused_time() const { return heap_->refused_time; }
std::string HeapScope::refusal() const { return heap_->account->refusal(); }

}  // namespace lutra
