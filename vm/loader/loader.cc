// Wrappers of Lua's loaders, and a watch for stacks that kept tail-call frames have made deep.
#include "vm/loader/loader.h"

#include <cstdlib>
#include <cstring>
#include <lua.hpp>
#include <set>
#include <string>

#include "vm/bytecode/analysis.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

constexpr size_t kDeepSlots = 4096;

int append(lua_State*, const void* data, size_t size, void* to) {
  static_cast<std::string*>(to)->append(static_cast<const char*>(data), size);
  return 0;
}

// Returns the chunk's bytecode with tail calls expanded; empty if it has no tail calls.
std::string expanded(lua_State* L) {
  std::string bytes;
  if (lua_dump(L, append, &bytes)) return {};
  try {
    bc::Dump dump = bc::parse(bytes);
    return bc::expand_tail_calls(dump) ? bc::emit(dump) : std::string();
  } catch (const std::exception&) {
    return {};  // leaves a chunk of another format as it is
  }
}

// -- deep stacks

struct Watch {
  lua_Alloc allocate;
  void* data;
  lua_State* L;
  lua_Hook hook;  // the hook that ours replaces
  int mask, count;
};

const char kWatchKey = 0;

// Turns the expanded tail calls in the frames of a deep thread into tail calls again, and flushes the traces of their
// functions. It does not flush all traces: a hook runs while LuaJIT records, and an aborted recording that was stitched
// to another trace still writes to that trace.
void drop_frames(lua_State* L) {
  const mirror::Thread* t = mirror::thread(L);
  if (t->stacksize < kDeepSlots) return;
  std::set<const mirror::Proto*> flushed;
  for (const mirror::TValue* frame = t->base - 1; frame > t->stack + 1; frame = mirror::previous_frame(frame)) {
    if (frame->u64 & 3) continue;
    auto* next = reinterpret_cast<uint32_t*>(frame->u64);
    const bc::Ins call = next[-1], ret = next[0];
    const bool plain = bc::op(call) == bc::Op::CALL;
    if (!(plain || bc::op(call) == bc::Op::CALLM) || bc::op_b(call) != 0) continue;
    if (bc::op(ret) != bc::Op::RETM || bc::op_a(ret) != bc::op_a(call) || bc::op_d(ret) != 0) continue;
    next[-1] = bc::ins_ad(plain ? bc::Op::CALLT : bc::Op::CALLMT, bc::op_a(call), bc::op_c(call));
    const mirror::TValue f = mirror::previous_frame(frame)[-1];
    const auto* caller = static_cast<const mirror::Func*>(mirror::gc_pointer(f));
    if (mirror::tag(f) != mirror::kFunc || !caller->is_lua()) continue;
    if (!flushed.insert(mirror::proto_of(caller)).second) continue;
    mirror::push_object(L, mirror::kFunc, caller);
    luaJIT_setmode(L, lua_gettop(L), LUAJIT_MODE_FUNC | LUAJIT_MODE_FLUSH);
    push_table(L, PrototypeTable::kChanged);
    push_proto(L, -2);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    lua_pop(L, 2);
  }
}

void look(lua_State* L, lua_Debug*) {
  lua_pushlightuserdata(L, const_cast<char*>(&kWatchKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  const auto* w = static_cast<Watch*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  lua_sethook(L, w->hook, w->mask, w->count);
  drop_frames(L);
}

// Allocates a block that may be a stack: installs the hook if the block grows.
[[gnu::noinline]] void* allocate_large(Watch* w, void* block, size_t old_size, size_t size) {
  if (block && size > old_size && lua_gethook(w->L) != look) {
    w->hook = lua_gethook(w->L), w->mask = lua_gethookmask(w->L), w->count = lua_gethookcount(w->L);
    lua_sethook(w->L, look, LUA_MASKCOUNT, 1);
  }
  return w->allocate(w->data, block, old_size, size);
}

// The allocator that watches for deep stacks. A stack at least doubles when it grows; another large block that grows
// costs a needless check. Lua allocates and frees every object through this function.
void* watching_allocate(void* ud, void* block, size_t old_size, size_t size) {
  auto* w = static_cast<Watch*>(ud);
  if (size >= kDeepSlots * sizeof(mirror::TValue)) return allocate_large(w, block, old_size, size);
  return w->allocate(w->data, block, old_size, size);
}

void watch_stacks(lua_State* L) {
  auto* w = static_cast<Watch*>(std::malloc(sizeof(Watch)));  // remove_loader frees it
  if (!w) return;
  *w = {};
  w->L = L;
  w->allocate = lua_getallocf(L, &w->data);
  lua_pushlightuserdata(L, const_cast<char*>(&kWatchKey));
  lua_pushlightuserdata(L, w);
  lua_rawset(L, LUA_REGISTRYINDEX);
  lua_setallocf(L, watching_allocate, w);
}

// -- loaders

// Wrapper of load, loadstring, loadfile and the searcher; upvalue 1 is the original.
int load_and_keep(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  if (lua_gettop(L) == 1 && lua_isfunction(L, 1) && !lua_iscfunction(L, 1)) keep_frames(L);
  return lua_gettop(L);
}

// Implements dofile; upvalue 1 is loadfile.
int do_file(lua_State* L) {
  lua_settop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, 1);
  lua_call(L, 1, 2);
  if (lua_isnil(L, -2)) return lua_error(L);
  lua_pop(L, 1);
  lua_call(L, 0, LUA_MULTRET);
  return lua_gettop(L) - 1;
}

}  // namespace

bool keeps_frames() {
  static const bool keeps = [] {
    const char* value = std::getenv("LUTRA_TAILCALLS");
    return !value || std::strcmp(value, "keep") != 0;
  }();
  return keeps;
}

void keep_frames(lua_State* L) {
  if (!keeps_frames()) return;
  bool failed;
  {
    const std::string bytes = expanded(L);
    if (bytes.empty()) return;
    failed = luaL_loadbuffer(L, bytes.data(), bytes.size(), "=?") != 0;  // the dump contains the chunk's name
  }
  if (failed) return lua_pop(L, 1);
  lua_getfenv(L, -2);
  lua_setfenv(L, -2);
  lua_remove(L, -2);
}

void remove_loader(lua_State* L) {
  void* ud = nullptr;
  if (lua_getallocf(L, &ud) != watching_allocate) return;
  auto* w = static_cast<Watch*>(ud);
  if (lua_gethook(L) == look) lua_sethook(L, nullptr, 0, 0);
  lua_setallocf(L, w->allocate, w->data);
  std::free(w);
}

void install_loader(lua_State* L) {
  if (!keeps_frames() || !mirror::available(L)) return;
  watch_stacks(L);
  for (const char* name : {"load", "loadstring", "loadfile"}) {
    lua_getglobal(L, name);
    lua_pushcclosure(L, load_and_keep, 1);
    lua_setglobal(L, name);
  }
  lua_getglobal(L, "loadfile");
  lua_pushcclosure(L, do_file, 1);
  lua_setglobal(L, "dofile");
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "loaders");
  lua_rawgeti(L, -1, 2);
  lua_pushcclosure(L, load_and_keep, 1);
  lua_rawseti(L, -2, 2);
  lua_pop(L, 2);
}

}  // namespace lutra
