// Decides when to search for dead tensors. See pressure.h.
//
// A minor collection (vm/mirror/minor.h) finds the tensors that were created and died since the last major one. It
// takes a few us whatever the size of the heap, so it runs after few bytes. Then the memory of dead CPU tensors is
// still in the processor's cache, and results alternate between the same few blocks. Bytes that survive minor
// collections trigger a major one. Without minor collections all new bytes do.
#include "vm/bind/pressure.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <lua.hpp>
#include <new>
#include <utility>

#include "vm/bind/binding.h"
#include "vm/bind/tensor_box.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"
#include "vm/mirror/minor.h"

namespace lutra {
namespace {

// The collector's policy for one kind of memory. A minor collection runs when more than `least_minor` new bytes are
// held, or `per_visited` for each object that the last one visited (some ns). A small heap gets a full collection when
// `least` bytes, or `per_heap_kb` for each KB of heap, have survived minor ones (a collection costs about 0.26 us a
// KB). A large heap is collected in steps: n KB = bytes / E * heap KB / 2, E = max(`most`, live bytes), keeps the peak
// under E.
struct Pressure {
  int64_t (*now)();
  double (*least)();
  double least_minor, per_visited, per_heap_kb, most;
  int64_t last = 0;  // the smallest number of held bytes since the last collection
  double period = 0, debt = 0, outlived = 0, made = 0;

  bool is_due() {
    const int64_t held = now();
    last = std::min(last, held);
    return double(held - last) >= std::max(period, least_minor);
  }
  void set_period(double visited, double heap) {
    period = std::min(visited * per_visited, std::max(least(), std::min(heap * per_heap_kb, most)));
  }
};

double least_on_host() { return 12 << 20; }
double least_on_device() {
  return std::clamp(double(device_memory_bytes()) / 40, 512.0 * 1024 * 1024, 2048.0 * 1024 * 1024);
}

struct Pressures {
  // A GPU fills a MB in 0.3 us, and a fortieth of its memory may hold dead tensors: 0.1 us a MB with 80 GB, 0.3 with 20
  // GB or less. If memory runs out, the heap is collected before an error is raised.
  Pressure host = {allocated_bytes, least_on_host, 1 << 20, 1 << 10, 32 << 10, 256 << 20};
  Pressure device = {allocated_device_bytes, least_on_device, 64 << 20, 16 << 10, 512 << 10, double(int64_t(4) << 30)};
  // Small dead tensors hold little memory, but each takes some 600 bytes on the host. A few thousand exceed the
  // processor's cache, and each op then waits for memory several times (on a GPU an op takes 2.5 us instead of 1.3).
  double tensors = 0, tensors_since_major = 0;
  double visited = 0;  // objects that the last collection visited
};

constexpr double kTensors = 256, kMinTensors = 2048, kTensorsPerHeapKb = 2, kMaxHeapKb = 8192;
thread_local Pressures pressures;

// Counts the bytes that survived a minor collection. Returns whether a full collection should run. A large heap is
// collected in steps, which end the state that minor collections need, and fully once that is worth its cost. While
// minor collections work, a large heap is not collected until `most` bytes have survived them.
bool press(lua_State* L, Pressure& p, double heap, mirror::Minor minor) {
  const int64_t now = p.now(), grown = now - p.last;
  p.last = now;
  if (grown <= 0) return false;
  p.outlived += double(grown);
  if (heap * p.per_heap_kb < p.most) return p.outlived >= std::max(p.least(), heap * p.per_heap_kb);
  if (minor == mirror::Minor::kDone && p.outlived < p.most) return false;
  if (minor == mirror::Minor::kTooMuch && p.made >= heap * p.per_heap_kb) return true;
  p.debt += double(grown) / std::max(p.most, double(now)) * heap * 0.5;
  if (p.debt < 1) return false;
  const int step = int(p.debt);
  p.debt -= step;
  lua_gc(L, LUA_GCSTEP, step);
  return false;
}

mirror::MinorKind tensors_of(lua_State* L) {
  const Runtime& rt = runtime(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, rt.tensor_metatable);
  lua_rawgeti(L, LUA_REGISTRYINDEX, rt.tensors);
  const mirror::MinorKind kind = {static_cast<const mirror::Tab*>(lua_topointer(L, -2)), sizeof(TensorBox),
                                  static_cast<const mirror::Tab*>(lua_topointer(L, -1))};
  lua_pop(L, 2);
  return kind;
}

using Collection = mirror::Minor (*)(lua_State*, const mirror::MinorKind&, mirror::Found*);

// Runs a collection. Collects nothing if there is no memory for its lists.
mirror::Minor run(lua_State* L, Collection collection) {
  mirror::Found found;
  mirror::Minor done{};
  try {
    done = collection(L, tensors_of(L), &found);
  } catch (const std::bad_alloc&) {
    return mirror::Minor::kBusy;
  }
  pressures.visited = double(found.visited);
  if (found.gone.empty()) return done;
  const mirror::ThresholdScope no_collection(L);
  drop_gone_tensors(L, found.gone);
  return done;
}

// Runs the collections that are needed. Call it only if the collector runs: LuaJIT restarts a stopped collector after a
// full collection.
void relieve(lua_State* L) {
  Pressures& p = pressures;
  luaL_checkstack(L, 8, "too many tensors");
  const auto each = {&p.host, &p.device};
  const double before[] = {double(p.host.now() - p.host.last), double(p.device.now() - p.device.last)};
  const mirror::Minor minor = run(L, mirror::collect);
  if (minor == mirror::Minor::kBusy) return;
  if (minor == mirror::Minor::kDone) p.tensors_since_major = 0;
  p.tensors = 0, p.host.made += before[0], p.device.made += before[1];
  const double heap = lua_gc(L, LUA_GCCOUNT, 0);
  for (Pressure* of : each) of->set_period(p.visited, heap);
  const bool host = press(L, p.host, heap, minor), device = press(L, p.device, heap, minor);
  const bool counted = heap < kMaxHeapKb && p.tensors_since_major >= std::max(kMinTensors, heap * kTensorsPerHeapKb);
  if (!host && !device && !counted) return;
  if (run(L, mirror::hold) != mirror::Minor::kDone) lua_gc(L, LUA_GCCOLLECT, 0);
  p.tensors_since_major = 0;
  for (Pressure* of : each) of->outlived = of->made = of->period = 0, of->last = of->now();
}

// lt.config.stress = "collect": a minor collection at each new tensor. One in 32 is checked by a full collection of
// LuaJIT, which must free the userdata that the minor one found.
const char kJudged = 0;

void judge(lua_State* L) {
  const mirror::MinorKind kind = tensors_of(L);
  mirror::Found found;
  if (mirror::collect(L, kind, &found) != mirror::Minor::kDone) return;
  std::vector<Tensor> tensors;
  for (mirror::Udata* u : found.gone) {
    auto* box = static_cast<TensorBox*>(u->payload());
    if (box->magic != &kTensorMagic) continue;
    tensors.push_back(box->tensor);
    drop_gone_tensors(L, {&u, 1});
    box->magic = &kJudged;
  }
  lua_gc(L, LUA_GCCOLLECT, 0);
  for (mirror::Udata* u : mirror::userdata_of(L, kind)) {
    if (static_cast<TensorBox*>(u->payload())->magic != &kJudged) continue;
    std::fprintf(stderr, "lutra: internal error: a minor collection took a tensor that Lua refers to\n");
    std::abort();
  }
}

void collect_under_stress(lua_State* L) {
  thread_local uint32_t count = 0;
  luaL_checkstack(L, 8, "too many tensors");
  if (++count * 2654435761u >> 27 == 0) judge(L);
  if (run(L, mirror::collect) == mirror::Minor::kTooMuch) run(L, mirror::hold);
}

bool collect_all(size_t) {
  lua_State* L = current_lua();
  if (!L) return false;
  const auto live = [] { return allocated_bytes() + allocated_device_bytes(); };
  const int64_t before = live();
  lua_gc(L, LUA_GCCOLLECT, 0);
  return live() < before;
}

}  // namespace

constinit thread_local bool collection_is_due = false;
// The state whose garbage is searched. Several states of a thread share the counters, but a call of another state would
// not find this state's garbage.
static constinit thread_local const Runtime* due_state = nullptr;
static constinit thread_local bool due_state_waits = false;  // another state waits while one is due

void open_pressure() { set_memory_pressure_hook(collect_all); }

void tell_collector(lua_State* L, const Runtime& rt) {
  Pressures& p = pressures;
  const bool stress = rt.config.stress == "collect";
  if (stress && lua_gc(L, LUA_GCISRUNNING, 0)) collect_under_stress(L);
  p.tensors++, p.tensors_since_major++;
  const bool host = p.host.is_due(), device = p.device.is_due();
  if (!host && !device && !stress && p.tensors < std::max(kTensors, p.visited / 4)) return;
  if (collection_is_due && due_state == &rt) return collect_what_is_due(L);  // no binding was called since
  if (collection_is_due && !std::exchange(due_state_waits, true)) {
    if (lua_gc(L, LUA_GCISRUNNING, 0)) relieve(L);
    return;
  }
  collection_is_due = true, due_state = &rt, due_state_waits = false;
}

void collect_what_is_due(lua_State* L) {
  if (&runtime(L) != due_state) return;
  collection_is_due = false;
  if (!lua_gc(L, LUA_GCISRUNNING, 0)) return;
  if (runtime(L).config.stress == "collect") collect_under_stress(L);
  relieve(L);
}

}  // namespace lutra
