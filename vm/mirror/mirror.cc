// Raw reads of LuaJIT's structs: stack slots, table nodes, threads, the caller of a C function.
#include "vm/mirror/mirror.h"

#include <cstring>
#include <lua.hpp>
#include <utility>

#include "vm/mirror/global.h"

namespace lutra::mirror {

static_assert(sizeof(Str) == 24 && sizeof(Node) == 24 && sizeof(Tab) == 64 && sizeof(Udata) == 48);
static_assert(sizeof(Proto) == 104 && sizeof(Func) == 48 && sizeof(Upval) == 48 && sizeof(Thread) == 96);

namespace {

// Offsets in global_State, which available() checks.
constexpr size_t kGlobalCurrentWhite = 32, kGlobalGcRoot = 40;
constexpr size_t kGlobalState = 33;

// Pushes a Lua function with one upvalue. store_again sets that by lua_setupvalue, which runs LuaJIT's barrier.
void push_writer(lua_State* L) {
  static char key;
  lua_pushlightuserdata(L, &key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  luaL_loadstring(L, "local v; return function() return v end");
  lua_call(L, 0, 1);
  lua_pushlightuserdata(L, &key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

void store_again(lua_State* L, Upval* v, Func* writer, int index) {
  Upval* own = std::exchange(writer->upvalues[0], v);
  lua_pushnil(L);
  top(L)[-1] = v->tv;
  lua_setupvalue(L, index, 1);
  writer->upvalues[0] = own;
}

// Sets the colour of a closed upvalue so that a running collector cycle sees its value, as lj_gc_closeuv does.
void settle(lua_State* L, Upval* v, Func* writer, int index) {
  const char* global = reinterpret_cast<const char*>(thread(L)->glref);
  const uint8_t white = *reinterpret_cast<const uint8_t*>(global + kGlobalCurrentWhite) & kWhites;
  const uint8_t state = *reinterpret_cast<const uint8_t*>(global + kGlobalState);
  const bool dead = (v->marked & kWhites) == (white ^ kWhites);
  if (dead) v->tv.u64 = kNilValue;  // nobody refers to it; its value may have been freed
  const bool gray = (v->marked & (kWhites | kBlack)) == 0;
  if (dead || (gray && state != kPropagate && state != kAtomic)) {
    v->marked = uint8_t((v->marked & ~(kWhites | kBlack)) | white);
  } else if (gray) {
    v->marked |= kBlack;
    store_again(L, v, writer, index);
  }
}

}  // namespace

void* object(lua_State* L, int index) {
  const TValue v = index > 0 ? base(L)[index - 1] : top(L)[index];
  return is_number(v) || tag(v) >= kLightud ? nullptr : gc_pointer(v);
}

const TValue* raw_get(const Tab* t, const Str* key) {
  const uint64_t wanted = make_gc(kStr, key).u64;
  for (const Node* n = &t->node[key->sid & t->hmask]; n; n = n->next) {
    if (n->key.u64 == wanted) return tag(n->val) == kNil ? nullptr : &n->val;
  }
  return nullptr;
}

void push_object(lua_State* L, Tag t, const void* p) {
  lua_pushnil(L);
  top(L)[-1] = make_gc(t, p);
}

std::vector<lua_State*> threads_since(lua_State* L, const void* mark) {
  std::vector<lua_State*> found;
  const char* global = reinterpret_cast<const char*>(thread(L)->glref);
  const uint8_t dead = *reinterpret_cast<const uint8_t*>(global + kGlobalCurrentWhite) ^ kWhites;
  const Header* o = reinterpret_cast<const Header*>(*reinterpret_cast<const uint64_t*>(global + kGlobalGcRoot));
  for (; o && o != mark; o = reinterpret_cast<const Header*>(o->nextgc)) {
    if (o->gct == static_cast<uint8_t>(~kThread) && !(o->marked & dead & kWhites)) {
      found.push_back(reinterpret_cast<lua_State*>(const_cast<Header*>(o)));
    }
  }
  return found;
}

namespace {

constexpr uint64_t kVarargFrame = 3, kContFrame = 2;

// Returns where the frame above a Lua frame stores the return address: in its link, or before its continuation if a
// metamethod was called or a trace was left for it. Returns null for the two special values that are no continuations.
TValue* link_of(TValue* above) {
  if ((above->u64 & 3) == 0) return above;
  return (above->u64 & 7) == kContFrame && above[-3].u64 > 1 ? above - 2 : nullptr;
}

}  // namespace

size_t lua_frames(lua_State* L, LuaFrame* out, size_t most) {
  const Thread* t = thread(L);
  size_t n = 0;
  TValue* above = t->base - 1;
  for (TValue* frame = previous_frame(above); n < most && frame > t->stack + 1; frame = previous_frame(above)) {
    TValue* called_by = std::exchange(above, frame);
    // A call of a vararg function has two frames; the function runs in the upper one.
    if ((called_by->u64 & 7) == kVarargFrame || tag(frame[-1]) != kFunc) continue;
    const auto* f = static_cast<const Func*>(gc_pointer(frame[-1]));
    if (!f->is_lua()) continue;
    const TValue* link = link_of(called_by);
    out[n++] = {f, frame - t->stack, link ? link - t->stack : 0, link ? code_at(link->u64) - 1 : nullptr};
  }
  return n;
}

void move_frame(lua_State* L, const LuaFrame& frame, const Func* f, const uint32_t* pc) {
  TValue* own = thread(L)->stack + frame.frame;
  thread(L)->stack[frame.link].u64 = reinterpret_cast<uint64_t>(pc);
  own[-1] = make_gc(kFunc, f);
  if ((own->u64 & 7) == kVarargFrame) previous_frame(own)[-1] = own[-1];
}

bool replace_frames(const std::vector<lua_State*>& threads, const Func* from, const Func* to) {
  const TValue old = make_gc(kFunc, from), fresh = make_gc(kFunc, to);
  bool any = false;
  for (lua_State* th : threads) {
    const Thread* t = thread(th);
    for (TValue* frame = t->base - 1; frame > t->stack + 1; frame = previous_frame(frame)) {
      if (frame[-1].u64 != old.u64) continue;
      frame[-1] = fresh;
      any = true;
    }
  }
  return any;
}

void move_caller(lua_State* L, const Func* f, const uint32_t* pc) {
  TValue* frame = base(L) - 1;
  TValue* caller = previous_frame(frame);
  ((frame->u64 & 3) == 0 ? frame : frame - 2)->u64 = reinterpret_cast<uint64_t>(pc);
  caller[-1] = make_gc(kFunc, f);
}

void return_to(lua_State* L, ptrdiff_t frame, const Func* f, const uint32_t* pc, int n) {
  Thread* t = thread(L);
  TValue* own = t->stack + frame;
  TValue* place = own + 1 + ((pc[-1] >> 8) & 0xff) + 2;
  const TValue running = t->base[-2];
  std::memmove(place, t->top - n, size_t(n) * sizeof(TValue));
  own[-1] = make_gc(kFunc, f);
  if ((own->u64 & 7) == kVarargFrame) previous_frame(own)[-1] = own[-1];
  place[-2] = running;
  place[-1].u64 = std::bit_cast<uint64_t>(pc);
  t->base = place;
  t->top = place + n;
}

// Does what lj_func_closeuv does: removes each upvalue from the thread's list and from the ring of open upvalues, and
// adds it to the list of all objects.
void close_variables(lua_State* L, ptrdiff_t place) {
  Thread* t = thread(L);
  const auto lies_behind = [&] { return t->openupval && t->openupval->v > t->stack + place; };
  if (!lies_behind()) return;
  lua_checkstack(L, 8);
  push_writer(L);
  const int index = lua_gettop(L);
  Func* writer = static_cast<Func*>(object(L, -1));
  uint64_t* root = reinterpret_cast<uint64_t*>(t->glref + kGlobalGcRoot);
  while (lies_behind()) {
    auto* v = const_cast<Upval*>(t->openupval);
    t->openupval = next_open(v);
    auto *previous = static_cast<Upval*>(gc_pointer(v->tv)), *next = static_cast<Upval*>(gc_pointer({v->unused}));
    next->tv.u64 = v->tv.u64, previous->unused = v->unused;
    v->tv = *v->v;
    v->v = &v->tv;
    v->closed = 1;
    v->nextgc = *root;
    *root = std::bit_cast<uint64_t>(v);
    settle(L, v, writer, index);
  }
  lua_pop(L, 1);
}

bool caller_function(lua_State* L, Caller* out) {
  lua_Debug ar;
  if (!lua_getstack(L, 1, &ar) || !lua_getinfo(L, "Slf", &ar)) return false;
  if (*ar.what == 'C') {
    lua_pop(L, 1);
    return false;
  }
  *out = {0, ar.currentline};
  if (!available(L)) return true;
  const uint32_t* ret = return_pc(L);
  const Func* f = static_cast<Func*>(object(L, -1));
  const uint32_t* code = proto_of(f)->bytecode();
  if (ret > code && ret <= code + proto_of(f)->sizebc) out->pc = static_cast<unsigned>(ret - 1 - code);
  return true;
}

}  // namespace lutra::mirror
