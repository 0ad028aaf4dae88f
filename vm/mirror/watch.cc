// Watchers of upvalues. See watch.h; names and rules are those of LuaJIT's lj_gc.c and lj_func.c.
#include "vm/mirror/watch.h"

#include <lua.hpp>

namespace lutra::mirror {
namespace {

constexpr uint8_t kWatcher = 0x5a;  // a value of Upval::immutable, which is 0 or 1 in real upvalues
constexpr uint8_t kKnown = 0x10;    // a bit of Header::marked that upvalues do not use: found in this cycle

// While an upvalue is open, its links are stored where its closed value will be.
struct Links {
  Upval *previous, *next;
};
static_assert(sizeof(Links) == sizeof(TValue) + sizeof(uint64_t));
Links& links(Upval* v) { return *std::bit_cast<Links*>(&v->tv); }

bool is_watcher(const Upval* v) { return v->immutable == kWatcher; }

}  // namespace

// Returns a watcher of an earlier cycle, or a new one, made as lj_mem_newgco and func_finduv do.
Upval* Watch::new_watcher(lua_State* L) {
  if (!spare_.empty()) {
    Upval* v = spare_.back();
    spare_.pop_back();
    return v;
  }
  void* state = nullptr;
  const lua_Alloc allocate = lua_getallocf(L, &state);
  auto* v = static_cast<Upval*>(allocate(state, nullptr, 0, sizeof(Upval)));
  if (!v) return nullptr;
  Global& g = global(L);
  *v = {.nextgc = g.root, .marked = 0, .gct = type_of(kUpval), .closed = 0, .immutable = kWatcher};
  g.total += sizeof(Upval);
  g.root = std::bit_cast<uint64_t>(v);
  links(v) = {&g.uvhead, links(&g.uvhead).next};
  links(links(v).next).previous = links(&g.uvhead).next = v;
  return v;
}

bool Watch::watch(lua_State* L, Upval* variable) {
  Upval* v = new_watcher(L);
  if (!v) return false;
  v->marked = 0;
  v->v = &variable->tv;
  watchers_++;
  return true;
}

bool Watch::find(lua_State* L, const Header* behind, bool all) {
  Global& g = global(L);
  std::vector<Upval*> found;
  const auto look = [&](Upval* v) {
    if (v->immutable || (!all && (v->marked & kKnown))) return;
    (v->marked & kWhites ? white_ : found).push_back(v);
    if (v->marked & kWhites) v->marked |= kKnown;
  };
  const auto* end = std::bit_cast<const Header*>(g.mainthread);
  const auto* first = std::bit_cast<Header*>(g.root);
  for (const Header* o = first; o != behind && o != end; o = std::bit_cast<const Header*>(o->nextgc)) {
    if (o->gct == type_of(kUpval)) look(const_cast<Upval*>(std::bit_cast<const Upval*>(o)));
  }
  for (Upval* v = links(&g.uvhead).next; v != &g.uvhead; v = links(v).next) {
    if (!is_watcher(v)) {
      look(v);
    } else if (!all) {
      break;  // the rest are older
    } else if (v->marked & kWhites) {
      spare_.push_back(v);
    }
  }
  for (Upval* v : found) {
    if (!watch(L, v)) return false;
    v->marked |= kKnown;
  }
  newest_ = std::bit_cast<const Header*>(g.root);
  return true;
}

bool Watch::begin(lua_State* L) {
  white_.clear();
  spare_.clear();  // after an earlier call ran out of memory, these may have been freed
  watchers_ = 0;
  const bool done = find(L, nullptr, true);
  spare_.clear();  // the next sweep frees them
  return done;
}

bool Watch::go_on(lua_State* L, bool marked_more) {
  if (marked_more) {
    size_t kept = 0;
    for (Upval* v : white_) {
      if (v->marked & kWhites) {
        white_[kept++] = v;
      } else if (!watch(L, v)) {
        return false;
      }
    }
    white_.resize(kept);
  }
  return find(L, newest_, false);
}

}  // namespace lutra::mirror
