// Minor collections. See minor.h; names and rules are those of LuaJIT's lj_gc.c.
#include "vm/mirror/minor.h"

#include <algorithm>
#include <cstring>
#include <lua.hpp>
#include <utility>

#include "vm/mirror/global.h"
#include "vm/mirror/watch.h"

namespace lutra::mirror {
namespace {

// A bit that is unused in all objects but cdata, which are not walked.
constexpr uint8_t kSeen = 0x80;
constexpr uint8_t kBuffer = 3;  // Udata::udtype: a string buffer, which refers to more

// The data of minor collections that the registry holds for a lua_State.
struct State {
  bool known = false, held = false;
  uint8_t white = 0;
  Udata* sentinel = nullptr;
  Watch* watch = nullptr;
};

char state_key;

int sentinel_gone(lua_State* L) {
  const auto* at = static_cast<State* const*>(lua_touserdata(L, 1));
  if (at && (*at)->sentinel && (*at)->sentinel->payload() == at) (*at)->held = false;
  return 0;
}

int state_gone(lua_State* L) {
  delete std::exchange(static_cast<State*>(lua_touserdata(L, 1))->watch, nullptr);
  return 0;
}

void push_metatable(lua_State* L, lua_CFunction gc) {
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, gc);
  lua_setfield(L, -2, "__gc");
}

// Returns the lua_State's data. Creates it on first use, with the metatable of the sentinels as its environment.
State& state_of(lua_State* L) {
  lua_pushlightuserdata(L, &state_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  auto* state = static_cast<State*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  if (state) return *state;
  lua_pushlightuserdata(L, &state_key);
  state = new (lua_newuserdata(L, sizeof(State))) State;
  push_metatable(L, state_gone);
  lua_setmetatable(L, -2);
  push_metatable(L, sentinel_gone);
  lua_setfenv(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  state->watch = new Watch;
  state->known = is_global_known(L);
  return *state;
}

// Creates the sentinel, before all existing userdata in LuaJIT's list.
void put_sentinel(lua_State* L, State& state) {
  auto** at = static_cast<State**>(lua_newuserdata(L, sizeof(State*)));
  *at = &state;
  lua_pushlightuserdata(L, &state_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_getfenv(L, -1);
  lua_setmetatable(L, -3);
  state.sentinel = static_cast<Udata*>(object(L, -2));
  lua_pop(L, 2);
}

// -- LuaJIT's own marking

// Runs collector steps by lua_gc, and restores the step multiplier afterwards. One step covers ten times as many bytes
// as the step multiplier.
class Pace {
 public:
  explicit Pace(lua_State* L) : L_(L), multiplier_(int(global(L).stepmul)) { global(L).debt = 0; }
  ~Pace() { lua_gc(L_, LUA_GCSETSTEPMUL, multiplier_); }
  Pace(const Pace&) = delete;
  void step(int multiplier) {
    lua_gc(L_, LUA_GCSETSTEPMUL, multiplier);
    lua_gc(L_, LUA_GCSTEP, 0);
  }

 private:
  lua_State* L_;
  const int multiplier_;
};

// Marks until no gray object is left. An object counts as at least 40 bytes, so a step of 40 bytes for each gray object
// stops before LuaJIT would go on to sweep.
void mark_gray(lua_State* L) {
  constexpr int kMost = 256;
  Global& g = global(L);
  if (g.state == kPropagate && !g.gray) return;
  const ThresholdScope threshold(L);
  Pace pace(L);
  if (g.state == kPause) pace.step(1);
  while (g.state == kPropagate && g.gray) {
    int n = 0;
    for (const Header* o = g.gray; o && n < kMost; o = list_link(o)) n++;
    pace.step(4 * n);
  }
}

// Runs the collector to the end of its cycle, including finalizers. This sets the threshold of the next cycle.
void end_cycle(lua_State* L) {
  if (global(L).state == kPause) return;
  Pace pace(L);
  pace.step(0);
}

// -- our own

class Walk {
 public:
  Walk(Global& g, const MinorKind& kind, size_t most) : g_(g), kind_(kind), most_(most) {}
  ~Walk() {
    for (Header* o : seen_) o->marked &= uint8_t(~kSeen);
  }

  // Marks all objects that are reachable from the running thread, the roots, the collector's lists, open upvalues and
  // the userdata of other kinds between first and end. Returns false if there is too much to visit.
  bool reach(lua_State* L, const Udata* first, const Udata* end) {
    mark(std::bit_cast<Header*>(L));
    for (Header* o : g_.roots) mark(o);
    for (Header* o = g_.grayagain; o; o = list_link(o)) {
      if (!enter(o)) return false;
    }
    for (Header* o = g_.weak; o; o = list_link(o)) {
      if (!enter(o)) return false;
    }
    for (const Upval* v = open_next(&g_.uvhead); v != &g_.uvhead; v = open_next(v)) {
      if (!(v->marked & (kWhites | kBlack))) mark(*v->v);
    }
    for (const Udata* u = first; u != end; u = next(u)) {
      visited_++;
      if (u->metatable && !(u->marked & kFinalized) && !is_kind(u)) mark(header(u));
    }
    return go_on();
  }

  size_t visited() const { return visited_; }

  // Takes the userdata that reach() has not marked. With `behind` (the sentinel) it moves them behind it in LuaJIT's
  // list. If out of memory, it takes none.
  void take(uint64_t* link, const Udata* end, Udata* behind, std::vector<Udata*>* gone) {
    size_t n = 0;
    for (auto* u = std::bit_cast<const Udata*>(*link); u && u != end; u = next(u)) n += is_gone(u);
    gone->reserve(n);
    while (auto* u = std::bit_cast<Udata*>(*link)) {
      if (u == end) return;
      if (!is_gone(u)) {
        link = &u->nextgc;
        continue;
      }
      u->marked |= kFinalized;
      gone->push_back(u);
      if (!behind) {
        link = &u->nextgc;
        continue;
      }
      *link = u->nextgc;
      u->nextgc = std::exchange(behind->nextgc, std::bit_cast<uint64_t>(u));
    }
  }

  // Removes the taken userdata from weak tables. Call it after take().
  void clear_weak() {
    for (const Tab* t : weak_) {
      if (t == kind_.own) continue;
      for (uint32_t i = 0; i < t->asize; i++) {
        if (is_taken(t->array[i])) t->array[i].u64 = kNilValue;
      }
      for (uint32_t i = 0; t->hmask > 0 && i <= t->hmask; i++) {
        Node& n = t->node[i];
        if (n.val.u64 != kNilValue && (is_taken(n.key) || is_taken(n.val))) n.val.u64 = kNilValue;
      }
    }
  }

 private:
  static const Upval* open_next(const Upval* v) { return std::bit_cast<const Upval*>(v->unused); }
  static const Udata* next(const Udata* u) { return std::bit_cast<const Udata*>(u->nextgc); }
  static Header* header(const void* object) { return std::bit_cast<Header*>(object); }

  bool is_gone(const Udata* u) const {
    return (u->marked & kWhites) && !(u->marked & (kFinalized | kSeen)) && is_kind(u);
  }
  bool is_kind(const Udata* u) const { return u->metatable == kind_.metatable && u->len == kind_.bytes; }
  bool is_kind(TValue v) const { return tag(v) == kUdata && is_kind(static_cast<Udata*>(gc_pointer(v))); }
  // Returns whether v is unreachable userdata of the kind, finalized now or by an earlier collection.
  bool is_taken(TValue v) const {
    if (tag(v) != kUdata) return false;
    const auto* u = static_cast<Udata*>(gc_pointer(v));
    return (u->marked & kWhites) && (u->marked & kFinalized) && !(u->marked & kSeen) && is_kind(u);
  }

  void mark(Header* o) {
    if (!o || !(o->marked & kWhites) || (o->marked & kSeen)) return;
    if (o->gct == type_of(kStr) || o->gct == type_of(kCdata)) return;
    seen_.push_back(o);
    o->marked |= kSeen;
  }
  void mark(TValue v) {
    if (!is_number(v) && tag(v) < kLightud) mark(static_cast<Header*>(gc_pointer(v)));
  }
  void mark_weak(TValue v) {
    if (!is_kind(v)) mark(v);
  }

  bool go_on() {
    for (size_t i = 0; i < seen_.size(); i++) {
      if (!enter(seen_[i])) return false;
    }
    return true;
  }

  // Marks the objects that o refers to. Returns false if the walk must end: too much to visit, or an object of an
  // unknown type.
  bool enter(Header* o) {
    switch (static_cast<Tag>(~uint32_t(o->gct))) {
      case kTab: enter(*std::bit_cast<const Tab*>(o)); break;
      case kFunc: enter(*std::bit_cast<const Func*>(o)); break;
      case kProto: enter(*std::bit_cast<const Proto*>(o)); break;
      case kThread: enter(*std::bit_cast<const Thread*>(o)); break;
      case kUpval: mark(*std::bit_cast<const Upval*>(o)->v); break;
      case kUdata: {
        const auto* u = std::bit_cast<const Udata*>(o);
        if (u->udtype == kBuffer) return false;
        mark(header(u->metatable)), mark(header(u->env));
        break;
      }
      default: return false;
    }
    return ++visited_ <= most_;
  }

  void enter(const Tab& t) {
    mark(header(t.metatable));
    bool weak_key = false, weak_value = false;
    const TValue* mode = t.metatable ? raw_get(t.metatable, g_.mode_name()) : nullptr;
    if (mode && tag(*mode) == kStr) {
      const char* text = static_cast<const Str*>(gc_pointer(*mode))->data();
      weak_key = std::strchr(text, 'k'), weak_value = std::strchr(text, 'v');
      if (weak_key || weak_value) weak_.push_back(&t);
    }
    if (&t == kind_.own) return;
    visited_ += t.asize / 4;
    for (uint32_t i = 0; i < t.asize; i++) weak_value ? mark_weak(t.array[i]) : mark(t.array[i]);
    if (t.hmask == 0) return;
    visited_ += t.hmask / 4;
    for (const Node* n = t.node; n <= t.node + t.hmask; n++) {
      if (n->val.u64 == kNilValue) continue;
      weak_key ? mark_weak(n->key) : mark(n->key);
      weak_value ? mark_weak(n->val) : mark(n->val);
    }
  }

  void enter(const Func& f) {
    mark(header(f.env));
    if (f.is_lua()) {
      mark(header(proto_of(&f)));
      for (int i = 0; i < f.nupvalues; i++) mark(header(f.upvalues[i]));
    } else {
      const auto* values = std::bit_cast<const TValue*>(&f.upvalues[1]);  // after the lua_CFunction
      for (int i = 0; i < f.nupvalues; i++) mark(values[i]);
    }
  }

  void enter(const Proto& p) {
    for (uint32_t i = 1; i <= p.sizekgc; i++) mark(std::bit_cast<Header*>(*(p.k - i)));
    visited_ += p.sizekgc / 4;
  }

  void enter(const Thread& th) {
    visited_ += size_t(th.top - th.stack) / 4;
    for (const TValue* v = th.stack + 2; v < th.top; v++) mark(*v);
    mark(std::bit_cast<Header*>(th.env));
  }

  Global& g_;
  const MinorKind& kind_;
  const size_t most_;
  size_t visited_ = 0;
  std::vector<Header*> seen_;
  std::vector<const Tab*> weak_;
};

bool is_busy(const Global& g) { return g.threshold == kStopped || g.jit_base || g.is_recording() || g.in_finalizer(); }

bool is_held(const State& state, const Global& g) {
  return state.held && g.state == kPropagate && !g.mmudata && (g.currentwhite & kWhites) == state.white;
}

}  // namespace

ThresholdScope::ThresholdScope(lua_State* L) : threshold_(&global(L).threshold), saved_(*threshold_) {
  *threshold_ = kStopped;
}
ThresholdScope::~ThresholdScope() { *threshold_ = saved_; }

std::vector<Udata*> userdata_of(lua_State* L, const MinorKind& kind) {
  std::vector<Udata*> found;
  for (uint64_t at = global(L).mainthread->nextgc; at;) {
    auto* u = std::bit_cast<Udata*>(at);
    if (u->metatable == kind.metatable && u->len == kind.bytes) found.push_back(u);
    at = u->nextgc;
  }
  return found;
}

Minor hold(lua_State* L, const MinorKind& kind, Found* found) {
  State& state = state_of(L);
  if (!state.known) return Minor::kNever;
  Global& g = global(L);
  if (is_busy(g) || !lua_checkstack(L, 4)) return Minor::kBusy;
  end_cycle(L);
  if (g.state != kPause || g.mmudata) return Minor::kBusy;
  {
    const ThresholdScope threshold(L);
    put_sentinel(L, state);
  }
  state.held = false;
  mark_gray(L);
  if (g.state != kPropagate || !state.watch->begin(L)) return Minor::kBusy;
  state.held = true, state.white = g.currentwhite & kWhites;
  Walk walk(g, kind, SIZE_MAX);
  if (!walk.reach(L, std::bit_cast<const Udata*>(state.sentinel->nextgc), nullptr)) return Minor::kDone;
  walk.take(&state.sentinel->nextgc, nullptr, nullptr, &found->gone);
  walk.clear_weak();
  return Minor::kDone;
}

Minor collect(lua_State* L, const MinorKind& kind, Found* found) {
  State& state = state_of(L);
  if (!state.known) return Minor::kNever;
  Global& g = global(L);
  if (is_busy(g) || !lua_checkstack(L, 4)) return Minor::kBusy;
  if (!is_held(state, g)) return Minor::kTooMuch;
  const bool more = g.gray;
  mark_gray(L);
  if (!state.watch->go_on(L, more)) return Minor::kTooMuch;
  Walk walk(g, kind, 4096 + g.total / 256);
  const bool reached = walk.reach(L, std::bit_cast<const Udata*>(g.mainthread->nextgc), state.sentinel);
  found->visited = walk.visited() + state.watch->size() / 4;
  if (!reached) return Minor::kTooMuch;
  walk.take(&g.mainthread->nextgc, state.sentinel, state.sentinel, &found->gone);
  walk.clear_weak();
  return Minor::kDone;
}

}  // namespace lutra::mirror
