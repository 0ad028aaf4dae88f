// Raw reads of LuaJIT's structs: stack slots, table nodes, threads, the caller of a C function.
#include "vm/mirror/mirror.h"

#include <algorithm>
#include <lua.hpp>

namespace lutra::mirror {

static_assert(sizeof(Str) == 24 && sizeof(Node) == 24 && sizeof(Tab) == 64 && sizeof(Udata) == 48);
static_assert(sizeof(Proto) == 104 && sizeof(Func) == 48 && sizeof(Upval) == 48 && sizeof(Thread) == 96);

namespace {

// Offsets in global_State and in the C frame of LuaJIT's interpreter; checked by available().
constexpr size_t kGlobalGcRoot = 40;
constexpr size_t kCframePrev = 32, kCframeRegisters = 40, kCframeSize = kCframeRegisters + 8 * 8;

const char* cframe_of(lua_State* L) {
  return reinterpret_cast<char*>(reinterpret_cast<uint64_t>(thread(L)->cframe) & ~uint64_t{3});
}

const char* previous_cframe(const char* cf) {
  return reinterpret_cast<const char*>(*reinterpret_cast<const uint64_t*>(cf + kCframePrev) & ~uint64_t{3});
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

namespace {

// The next frame out: a link holds the caller's program counter, whose call says how far away it is, or a distance.
const TValue* previous_frame(const TValue* frame) {
  const uint64_t link = frame->u64;
  if (link & 3) return frame - (link >> 3);
  return frame - (2 + ((reinterpret_cast<const uint32_t*>(link)[-1] >> 8) & 0xff));
}

__attribute__((noinline, no_sanitize("address"))) void machine_words(const std::vector<lua_State*>& threads,
                                                                     std::vector<uint64_t>& words) {
  const char *innermost = nullptr, *outermost = nullptr;
  for (lua_State* th : threads) {
    for (const char* cf = cframe_of(th); cf; cf = previous_cframe(cf)) {
      if (!innermost || cf < innermost) innermost = cf;
      outermost = std::max(outermost, cf);
    }
  }
  if (!innermost) return;
  // The innermost frame is in a C call: its own saved program counter is an old one.
  for (const char* w = innermost + kCframeRegisters; w < outermost + kCframeSize; w += sizeof(uint64_t)) {
    const uint64_t word = *reinterpret_cast<const uint64_t*>(w);  // here, where no sanitizer looks
    words.push_back(word);
  }
}

}  // namespace

std::vector<uint64_t> running_words(const std::vector<lua_State*>& threads) {
  std::vector<uint64_t> words;
  for (lua_State* th : threads) {
    const Thread* t = thread(th);
    for (const TValue* frame = t->base - 1; frame > t->stack + 1; frame = previous_frame(frame)) {
      if ((frame->u64 & 3) == 0) words.push_back(frame->u64);
      if ((frame->u64 & 7) == 2) words.push_back(frame[-2].u64);  // a continuation: after a metamethod or a stitch
    }
  }
  machine_words(threads, words);
  return words;
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
