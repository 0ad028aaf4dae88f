// Raw reads of LuaJIT's structs: stack slots, table nodes, threads, the caller of a C function.
#include "vm/mirror/mirror.h"

#include <lua.hpp>

namespace lutra::mirror {

static_assert(sizeof(Str) == 24 && sizeof(Node) == 24 && sizeof(Tab) == 64 && sizeof(Udata) == 48);
static_assert(sizeof(Proto) == 104 && sizeof(Func) == 48 && sizeof(Upval) == 48 && sizeof(Thread) == 96);

namespace {

// Offsets in global_State and in the C frame of LuaJIT's interpreter; checked by available().
constexpr size_t kGlobalGcRoot = 40;
constexpr size_t kCframeL = 16, kCframePrev = 32, kCframeWords = 6;

const char* cframe_of(lua_State* L) {
  return reinterpret_cast<char*>(reinterpret_cast<uint64_t>(thread(L)->cframe) & ~uint64_t{3});
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

std::vector<lua_State*> all_threads(lua_State* L) {
  std::vector<lua_State*> found;
  const char* global = reinterpret_cast<const char*>(thread(L)->glref);
  const Header* o = reinterpret_cast<const Header*>(*reinterpret_cast<const uint64_t*>(global + kGlobalGcRoot));
  for (; o; o = reinterpret_cast<const Header*>(o->nextgc)) {
    if (o->gct == static_cast<uint8_t>(~kThread)) {
      found.push_back(reinterpret_cast<lua_State*>(const_cast<Header*>(o)));
    }
  }
  return found;
}

bool stack_points_into(lua_State* L, const void* begin, const void* end) {
  const uint64_t b = reinterpret_cast<uint64_t>(begin), e = reinterpret_cast<uint64_t>(end);
  const Thread* th = thread(L);
  for (const TValue* v = th->stack; v < th->top; ++v) {
    if (v->u64 >= b && v->u64 < e) return true;
  }
  // A hook or a finalizer runs while the interrupted Lua function's pc is in the interpreter's C frame only.
  for (const char* cf = cframe_of(L); cf;
       cf = reinterpret_cast<const char*>(*reinterpret_cast<const uint64_t*>(cf + kCframePrev) & ~uint64_t{3})) {
    if (*reinterpret_cast<lua_State* const*>(cf + kCframeL) != L) break;
    for (size_t w = 0; w < kCframeWords; ++w) {
      const uint64_t word = reinterpret_cast<const uint64_t*>(cf)[w];
      if (word >= b && word < e) return true;
    }
  }
  return false;
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
