// Walks from stacks and from what write barriers have listed to unmarked objects. See reach.h.
#include "vm/mirror/reach.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <lua.hpp>

namespace lutra::mirror {

namespace {

// The head of global_State.
struct Global {
  void *allocf, *allocd;
  uint64_t total, threshold;
  uint8_t currentwhite, state, nocdatafin, lightudnum;
  uint32_t sweepstr;
  uint64_t root, sweep, gray, grayagain, weak, mmudata, debt, estimate;
  uint32_t stepmul, pause;
};
static_assert(offsetof(Global, stepmul) == 104);

// Around the node that all empty tables share.
struct GlobalTail {
  uint64_t main_thread;
  uint64_t buffer[4];
  TValue temporary[2];
  Node empty;
  TValue registry;
  Upval open;  // head of a ring: tv is the link back, `unused` the link on
};

// An object that waits to be marked has the same field for it in each kind.
struct Listed {
  uint64_t nextgc;
  uint8_t marked, gct;
  uint64_t other, gclist;
};
static_assert(offsetof(Listed, gclist) == 24 && offsetof(Tab, gclist) == 24 && offsetof(Thread, gclist) == 24);

// A function of C: its upvalues are values.
struct CFunc {
  uint64_t header[6];
  TValue upvalues[1];
};

constexpr uint8_t kWhites = 3, kFinalized = 8, kPropagate = 1;
constexpr uint8_t kBuffer = 3;  // the first type of userdata whose payload holds tables
enum Kind : uint8_t {
  kKindStr = 4,
  kKindUpval,
  kKindThread,
  kKindProto,
  kKindFunc,
  kKindTrace,
  kKindCdata,
  kKindTab,
  kKindUdata
};

template <class T>
const T* at(uint64_t address) {
  return std::bit_cast<const T*>(address);
}

const Global* global(lua_State* L) { return at<Global>(thread(L)->glref); }

// Bytes from the head of global_State, the same in each state of this LuaJIT. A walk must not look for them: what
// allocates may step the collector.
std::atomic<ptrdiff_t> tail_offset{0}, roots_offset{0};

const GlobalTail* tail(lua_State* L) { return at<GlobalTail>(thread(L)->glref + tail_offset.load()); }

// The metatables of types but tables and userdata, then io's files: kinds of values from nil to numbers, and two.
constexpr size_t kRoots = 16, kRootOfNumbers = 13;

ptrdiff_t find_tail(lua_State* L) {
  lua_newtable(L);
  const Node* empty = static_cast<const Tab*>(lua_topointer(L, -1))->node;
  lua_pop(L, 1);
  return ptrdiff_t(std::bit_cast<uintptr_t>(empty) - offsetof(GlobalTail, empty) - thread(L)->glref);
}

// By the place where the metatable of numbers turns up; 0 where it does not.
ptrdiff_t find_roots(lua_State* L) {
  constexpr size_t kWords = 80;  // of the rest of global_State, and some of what lies behind it
  const auto* words = at<uint64_t>(std::bit_cast<uintptr_t>(tail(L) + 1));
  lua_pushnumber(L, 0);
  if (!lua_getmetatable(L, -1)) lua_pushnil(L);
  lua_newtable(L);
  const auto mark = std::bit_cast<uintptr_t>(lua_topointer(L, -1));
  lua_setmetatable(L, -3);
  const size_t i = size_t(std::find(words, words + kWords, mark) - words);
  lua_setmetatable(L, -2);
  const bool gone = i < kWords && words[i] != mark;
  lua_pushliteral(L, "");
  const void* strings = lua_getmetatable(L, -1) ? lua_topointer(L, -1) : nullptr;
  lua_settop(L, lua_gettop(L) - (strings ? 3 : 2));
  if (!gone || i < kRootOfNumbers) return 0;
  const uint64_t* roots = words + i - kRootOfNumbers;
  if (at<void>(roots[kKindStr]) != strings) return 0;
  return ptrdiff_t(std::bit_cast<uintptr_t>(roots) - thread(L)->glref);
}

// Which unmarked objects have been seen: a hash set of pointers.
class Seen {
 public:
  Seen() : slots_(256) {}
  bool insert(const void* p) {
    if (++count_ * 2 > slots_.size()) grow();
    return put(p);
  }
  bool has(const void* p) const {
    for (size_t i = hash(p);; ++i) {
      const void* slot = slots_[i & (slots_.size() - 1)];
      if (slot == p || !slot) return slot == p;
    }
  }

 private:
  static size_t hash(const void* p) { return std::bit_cast<uintptr_t>(p) * 0x9e3779b97f4a7c15u >> 32; }
  bool put(const void* p) {
    for (size_t i = hash(p);; ++i) {
      const void*& slot = slots_[i & (slots_.size() - 1)];
      if (slot == p) return false;
      if (!slot) return slot = p, true;
    }
  }
  void grow() {
    std::vector<const void*> old(slots_.size() * 2);
    old.swap(slots_);
    for (const void* p : old) {
      if (p) put(p);
    }
  }
  std::vector<const void*> slots_;
  size_t count_ = 0;
};

class Walk {
 public:
  Walk(lua_State* L, const Bounds& b)
      : L_(L),
        g_(global(L)),
        tail_(tail(L)),
        apart_(b.apart),
        passive_(b.passive),
        since_(static_cast<const Udata*>(b.since) - 1),
        left_(b.budget) {}

  bool run() { return roots() && drain(); }
  bool reached(const Udata* u) const { return !is_white(u) || seen_.has(u); }

 private:
  static bool is_white(const void* o) { return static_cast<const Header*>(o)->marked & kWhites; }

  void visit(const void* p) {
    if (!p || !is_white(p)) return;
    switch (static_cast<const Header*>(p)->gct) {
      case kKindUpval:
      case kKindThread:
      case kKindFunc:
      case kKindTab:
      case kKindUdata:
        if (seen_.insert(p)) work_.push_back(p);
        return;
      default: return;  // constants, which lead to no userdata
    }
  }
  void visit(TValue v) {
    if (!is_number(v) && tag(v) < kLightud) visit(gc_pointer(v));
  }
  bool take(size_t values) {
    if (values > left_) return false;
    left_ -= values;
    return true;
  }

  bool scan(const TValue* from, const TValue* to) {
    if (!take(size_t(to - from))) return false;
    for (; from < to; ++from) visit(*from);
    return true;
  }
  bool scan_table(const Tab* t) {
    visit(t->metatable);
    if (t == apart_) return true;
    if (!scan(t->array, t->array + t->asize)) return false;
    if (!t->hmask) return true;
    if (!take(size_t(t->hmask) + 1)) return false;
    for (const Node* n = t->node; n <= t->node + t->hmask; ++n) {
      if (n->val.u64 == kNilValue) continue;
      visit(n->key);
      visit(n->val);
    }
    return true;
  }
  bool scan_thread(const Thread* t) {
    visit(at<Header>(t->env));
    return scan(t->stack + 2, t->top);
  }
  bool scan_function(const Func* f) {
    visit(f->env);
    if (!f->is_lua()) {
      const TValue* first = at<CFunc>(std::bit_cast<uintptr_t>(f))->upvalues;
      return scan(first, first + f->nupvalues);
    }
    for (size_t i = 0; i < f->nupvalues; ++i) visit(f->upvalues[i]);
    return take(f->nupvalues);
  }
  bool scan_object(const void* p) {
    switch (static_cast<const Header*>(p)->gct) {
      case kKindUpval: return visit(*static_cast<const Upval*>(p)->v), true;
      case kKindThread: return scan_thread(static_cast<const Thread*>(p));
      case kKindFunc: return scan_function(static_cast<const Func*>(p));
      case kKindTab: return scan_table(static_cast<const Tab*>(p));
      case kKindUdata: {
        const auto* u = static_cast<const Udata*>(p);
        visit(u->env);
        visit(u->metatable);
        return u->udtype < kBuffer;
      }
      default: return false;
    }
  }
  bool drain() {
    while (!work_.empty()) {
      const void* p = work_.back();
      work_.pop_back();
      if (!take(1) || !scan_object(p)) return false;
    }
    return true;
  }
  bool scan_list(uint64_t first, bool tables_only, bool* has_main) {
    for (const Listed* o = at<Listed>(first); o; o = at<Listed>(o->gclist)) {
      if (!take(1) || (o->gct != kKindTab && (tables_only || o->gct != kKindThread))) return false;
      if (has_main && std::bit_cast<uintptr_t>(o) == tail_->main_thread) *has_main = true;
      if (!scan_object(o)) return false;
    }
    return true;
  }
  // Userdata hang on the main thread, the newest first.
  bool scan_finalizers() {
    const auto* main = at<Header>(tail_->main_thread);
    for (const auto* u = at<Udata>(main->nextgc); u && u != since_; u = at<Udata>(u->nextgc)) {
      if (!take(1)) return false;
      if (u->metatable && u->metatable != passive_ && !(u->marked & kFinalized)) visit(u);
    }
    return true;
  }
  // Values are put there without a barrier.
  bool scan_roots() {
    const auto* roots = at<uint64_t>(thread(L_)->glref + roots_offset.load());
    for (size_t i = 0; i < kRoots; ++i) visit(at<Header>(roots[i]));
    return take(kRoots);
  }
  bool roots() {
    bool has_main = false;
    if (!scan_list(g_->grayagain, false, &has_main) || !has_main) return false;
    if (!scan_list(g_->weak, true, nullptr) || !scan_roots() || !scan_thread(thread(L_))) return false;
    for (const Upval* v = &tail_->open;;) {
      v = at<Upval>(v->unused);
      if (v == &tail_->open) break;
      if (!take(1)) return false;
      if (!is_white(v)) visit(*v->v);
    }
    return scan_finalizers();
  }

  lua_State* L_;
  const Global* g_;
  const GlobalTail* tail_;
  const Tab *apart_, *passive_;
  const Udata* since_;
  size_t left_;
  Seen seen_;
  std::vector<const void*> work_;
};

}  // namespace

bool check_collector(lua_State* L) {
  if (!available(L) || !lua_pushthread(L)) return false;
  lua_pop(L, 1);
  const Global* g = global(L);
  const int multiplier = lua_gc(L, LUA_GCSETSTEPMUL, 217), pause = lua_gc(L, LUA_GCSETPAUSE, 203);
  const bool steps = g->stepmul == 217 && g->pause == 203;
  lua_gc(L, LUA_GCSETSTEPMUL, multiplier);
  lua_gc(L, LUA_GCSETPAUSE, pause);
  if (!steps || g->total != uint64_t(lua_gc(L, LUA_GCCOUNT, 0)) * 1024 + uint64_t(lua_gc(L, LUA_GCCOUNTB, 0)))
    return false;
  const ptrdiff_t offset = find_tail(L);
  if (offset < 0 || offset > 1024) return false;
  tail_offset.store(offset);
  const GlobalTail* t = tail(L);
  if (gc_pointer(t->registry) != lua_topointer(L, LUA_REGISTRYINDEX)) return false;
  if (t->main_thread != std::bit_cast<uintptr_t>(L)) return false;
  const ptrdiff_t roots = find_roots(L);
  if (!roots) return false;
  roots_offset.store(roots);
  guards_open_variables(L);
  lua_newuserdata(L, 8);
  const bool first =
      thread(L)->nextgc == std::bit_cast<uintptr_t>(static_cast<const Udata*>(lua_touserdata(L, -1)) - 1);
  lua_pop(L, 1);
  // A variable that is open now is the first of the ring.
  const char kOpen[] =
      "local check = ...; local a = 1; local f = function() return a end; local r = check(f); return r";
  if (!first || luaL_loadbuffer(L, kOpen, sizeof kOpen - 1, "=lutra reach")) return false;
  lua_pushcfunction(L, [](lua_State* state) {
    const auto* f = static_cast<const Func*>(lua_topointer(state, 1));
    const Upval* v = f->upvalues[0];
    const GlobalTail* ring = tail(state);
    lua_pushboolean(state, !v->closed && at<Upval>(ring->open.unused) == v &&
                               gc_pointer(v->tv) == static_cast<const void*>(&ring->open));
    return 1;
  });
  lua_call(L, 1, 1);
  const bool ring = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return ring;
}

bool is_parked(lua_State* L) {
  const Global* g = global(L);
  return g->state == kPropagate && !g->gray && !g->mmudata;
}

bool is_marking(lua_State* L) { return global(L)->state <= kPropagate; }

bool has_unmarked_finalizer(lua_State* L, const Tab* passive, const void* own) {
  const auto* main = at<Header>(tail(L)->main_thread);
  for (const auto* u = at<Udata>(main->nextgc); u; u = at<Udata>(u->nextgc)) {
    const bool waits = (u->marked & kWhites) && !(u->marked & kFinalized);
    if (waits && u->metatable != passive && u->payload() != own) return true;
  }
  return false;
}

namespace {

void list_objects(lua_State* L, const Header** newest, const Header** oldest) {
  *newest = at<Header>(global(L)->root);
  *oldest = at<Header>(tail(L)->main_thread);
}

int step(lua_State* L) {
  int& left = *static_cast<int*>(lua_touserdata(L, 1));
  const bool marking = is_marking(L);
  for (; left > 0 && !is_parked(L) && is_marking(L) == marking; --left) lua_gc(L, LUA_GCSTEP, 0);
  return 0;
}

}  // namespace

bool park(lua_State* L, int steps, uint64_t* until) {
  const Global* g = global(L);
  if (is_parked(L)) return true;
  const bool anew = g->state != kPropagate;
  const int multiplier = lua_gc(L, LUA_GCSETSTEPMUL, 1);
  const bool failed = lua_cpcall(L, step, &steps) != 0;  // by a finalizer's error
  lua_gc(L, LUA_GCSETSTEPMUL, multiplier);
  if (anew || !*until) *until = g->total + g->total / 2;
  // The step has told LuaJIT to go on soon.
  const int percent = int(std::max(*until, g->total) * 100 / (g->total + 1)) + 1;
  const int pause = lua_gc(L, LUA_GCSETPAUSE, percent);
  lua_gc(L, LUA_GCRESTART, -1);
  lua_gc(L, LUA_GCSETPAUSE, pause);
  if (failed) lua_error(L);
  return is_parked(L);
}

bool look_at_traces(lua_State* L, UnbarredStores& stores) {
  const Header *newest, *oldest;
  list_objects(L, &newest, &oldest);
  return look_at_traces(stores, newest, oldest);
}

bool learn_traces(lua_State* L) { return learn_traces(L, list_objects); }

bool unreached(lua_State* L, const Bounds& bounds, std::vector<void*>& payloads) {
  Walk walk(L, bounds);
  if (!walk.run()) return false;
  std::erase_if(payloads, [&](void* p) { return walk.reached(static_cast<const Udata*>(p) - 1); });
  return true;
}

}  // namespace lutra::mirror
