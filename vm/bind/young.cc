// Frees tensors that nothing reaches, by a walk from what LuaJIT's collector has not marked (vm/mirror/reach). In: each
// new userdata of a large tensor. Out: its memory, soon after the last Lua value that held it is gone.
//
// Invariants:
// 1. A tensor on the list is in a userdata that lives: finalizers take theirs off.
// 2. What is on the list was made after the collector was parked. A sentinel, garbage from the start, is finalized when
//    a cycle ends; then the list is empty.
// 3. A freed tensor's userdata is as after its finalizer, and is gone from the table of userdata.
// 4. The collector is not parked where LuaJIT's code writes without barriers (vm/mirror/traces.h): each push asks.
#include "vm/bind/young.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <lua.hpp>
#include <new>
#include <string_view>
#include <vector>

#include "ops/core/account.h"
#include "ops/core/storage.h"
#include "vm/bind/tensor_box.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/host/runtime.h"
#include "vm/mirror/reach.h"

namespace lutra {

namespace {

constexpr int kMost = 48;
constexpr int64_t kLeastBytes = 64 << 10;  // of a tensor that is worth a walk
constexpr double kBytesPerWalk = 1 << 20;  // a walk costs about 1 us, such a result 25
constexpr double kBytesPerStep = 4096;     // of the collector's, below 0.1 us
constexpr size_t kBudget = 4096;           // values a walk, below 10 us
constexpr int kMostPatience = 64;
constexpr int kStepsPerKb = 24;  // an object has some 80 bytes; a step of LuaJIT's marks twice as much

constexpr int kMostLessons = 8;

struct Young {
  TensorBox* boxes[kMost];
  int count = 0;
  bool stress = false;       // each push walks, and a cycle of the collector confirms what the walk has found
  bool each = false;         // LUTRA_TEST_FREE=all: each push walks
  bool usable = false;       // the start-up check has passed
  int patience = 1;          // walks that found nothing make the next one rarer
  void* sentinel = nullptr;  // null: not parked yet in this cycle
  void* watch = nullptr;     // likewise, from the first look at traces in a cycle on
  bool refused = false;      // not to be parked in this cycle
  int lessons = 0;           // tries to learn what traces look like
  mirror::UnbarredStores stores;
  uint64_t until = 0;
  int64_t last = 0;
  double fresh = 0;
  double kept = 0;  // by the count of hold_for_young's caller, when the collector was parked
};

char young_key, sentinel_key;

std::atomic<int> states{0};  // that have been opened

Young* look_up(lua_State* L) {
  lua_pushlightuserdata(L, &young_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  auto* y = static_cast<Young*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return y;
}

// A thread remembers its last state's, while no other state, which may have the same address, has been opened.
Young* young_of(lua_State* L) {
  static thread_local struct {
    const void* registry = nullptr;
    int states = 0;
    Young* young = nullptr;
  } last;
  const void* registry = lua_topointer(L, LUA_REGISTRYINDEX);
  const int now = states.load(std::memory_order_relaxed);
  if (last.registry != registry || last.states != now) last = {registry, now, look_up(L)};
  return last.young;
}

int end_of_cycle(lua_State* L) {
  Young* y = young_of(L);
  const void* ended = lua_touserdata(L, 1);
  if (y && y->sentinel == ended) {
    y->sentinel = nullptr;
    y->count = 0;
  }
  if (y && y->watch == ended) {
    y->watch = nullptr;
    y->refused = false;
  }
  return 0;
}

// A userdata that is garbage from the start, and on no stack that is read after top.
void* make_garbage(lua_State* L) {
  void* garbage = lua_newuserdata(L, 1);
  lua_pushlightuserdata(L, &sentinel_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
  lua_pushnil(L);
  lua_pop(L, 1);
  return garbage;
}

// Only where no allocation makes LuaJIT step its collector on.
void make_sentinel(lua_State* L, Young& y) {
  lua_newtable(L);
  lua_pop(L, 1);
  if (!mirror::is_parked(L)) return;
  void* sentinel = make_garbage(L);
  if (mirror::is_parked(L)) y.sentinel = sentinel;
  y.count = 0;
}

// The first look of a cycle, before the collector is parked.
void begin_watch(lua_State* L, Young& y) {
  void* watch = make_garbage(L);
  if (!mirror::is_marking(L)) return;
  y.watch = watch;
  y.stores.forget();
  y.refused = !mirror::look_at_traces(L, y.stores);
  if (!y.stores.unknown || y.lessons == kMostLessons) return;
  ++y.lessons;
  if (!mirror::learn_traces(L) || !y.watch || !mirror::is_marking(L)) return;  // the cycle may have ended meanwhile
  y.stores.forget();
  y.refused = !mirror::look_at_traces(L, y.stores);
}

// What LuaJIT has compiled may have written without a barrier since the last push: a whole cycle, which marks anew.
void end_watch(lua_State* L, Young& y) {
  y.refused = true;
  if (mirror::is_marking(L)) lua_gc(L, LUA_GCCOLLECT, 0);
}

const mirror::Tab* table_of(lua_State* L, int reference) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, reference);
  const auto* t = static_cast<const mirror::Tab*>(lua_topointer(L, -1));
  lua_pop(L, 1);
  return t;
}

bool is_parked(lua_State* L, Young& y) {
  if (!y.watch && mirror::is_marking(L)) begin_watch(L, y);
  if (y.refused) return false;
  const bool was = y.sentinel && mirror::is_parked(L);
  const int steps = y.stress || y.each ? INT_MAX : int(std::clamp(y.fresh / kBytesPerStep, 256.0, 4096.0));
  if (was || !mirror::park(L, steps, &y.until)) return was;
  if (y.sentinel) return true;  // a barrier had listed something
  const mirror::Tab* passive = table_of(L, runtime(L).tensor_metatable);
  if (!y.watch || mirror::has_unmarked_finalizer(L, passive, y.watch)) return false;
  make_sentinel(L, y);
  return false;
}

// Those of the list that nothing reaches.
std::vector<void*> find_dead(lua_State* L, Young& y) {
  std::vector<void*> dead(y.boxes, y.boxes + y.count);
  const Runtime& r = runtime(L);
  const mirror::Bounds bounds = {table_of(L, r.tensors), table_of(L, r.tensor_metatable), y.sentinel, kBudget};
  if (!mirror::unreached(L, bounds, dead)) dead.clear();
  return dead;
}

// A whole cycle must finalize what the walk has found dead.
void confirm(lua_State* L, const std::vector<void*>& dead) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  for (void* p : dead) {
    if (!static_cast<TensorBox*>(p)->magic) continue;
    std::fputs("lutra: a tensor that something reaches was found dead\n", stderr);
    std::abort();
  }
}

bool has_limit() { return installed_account && installed_account->limit.load() != MemoryAccount::kAny; }

}  // namespace

void open_young(lua_State* L) {
  states.fetch_add(1);
  lua_pushlightuserdata(L, &young_key);
  auto* y = new (lua_newuserdata(L, sizeof(Young))) Young;
  lua_rawset(L, LUA_REGISTRYINDEX);
  states.fetch_add(1);
  lua_pushlightuserdata(L, &sentinel_key);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, end_of_cycle);
  lua_setfield(L, -2, "__gc");
  lua_rawset(L, LUA_REGISTRYINDEX);
  y->stress = runtime(L).config.stress == "collect";
  const char* test = std::getenv("LUTRA_TEST_FREE");
  const std::string_view how = test ? test : "";
  y->each = how == "all";
  y->usable = how != "off" && mirror::check_collector(L);
}

void add_young(lua_State* L, TensorBox* box) {
  Young* y = young_of(L);
  const Storage& memory = *box->tensor->storage;
  if (!y || !y->sentinel || memory.device.type != DeviceType::kCPU) return;
  if (int64_t(memory.nbytes) < kLeastBytes && !y->stress && !y->each) return;
  if (y->count == kMost) std::move(y->boxes + 1, y->boxes + y->count--, y->boxes);
  y->boxes[y->count++] = box;
}

void remove_young(lua_State* L, TensorBox* box) {
  Young* y = young_of(L);
  if (y) y->count = int(std::remove(y->boxes, y->boxes + y->count, box) - y->boxes);
}

bool hold_for_young(lua_State* L, int kilobytes, double kept, double most) {
  Young* y = young_of(L);
  if (!y || !y->usable || y->refused || has_limit()) return false;
  if (mirror::is_parked(L)) {
    y->kept = std::min(y->kept, kept);
    return kept - y->kept < most;
  }
  y->kept = kept;
  if (!mirror::is_marking(L)) return false;
  if (!y->watch) begin_watch(L, *y);
  if (!y->watch || y->refused) return false;
  mirror::park(L, kilobytes * kStepsPerKb, &y->until);
  return true;
}

double collect_young(lua_State* L) {
  Young* y = young_of(L);
  if (!y || !y->usable || y->refused) return 0;
  if (y->watch && !mirror::look_at_traces(L, y->stores)) return end_watch(L, *y), 0;
  const int64_t now = allocated_bytes();
  y->fresh += double(std::max<int64_t>(now - y->last, 0));
  y->last = now;
  if ((y->fresh < kBytesPerWalk * y->patience && !y->stress && !y->each) || has_limit()) return 0;
  y->stress = runtime(L).config.stress == "collect";
  const bool ready = is_parked(L, *y);
  y->fresh = 0;
  if (!ready || !y->count) return 0;
  const std::vector<void*> dead = find_dead(L, *y);
  if (y->stress && !dead.empty()) confirm(L, dead);
  for (void* p : dead) {
    auto* box = static_cast<TensorBox*>(p);
    if (box->magic && lose_tensor(L, box)) remove_young(L, box);
  }
  y->last = allocated_bytes();
  y->patience = dead.empty() ? std::min(2 * y->patience, kMostPatience) : 1;
  return double(now - y->last);
}

}  // namespace lutra
