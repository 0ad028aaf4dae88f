// Loads patched prototypes, makes closures of them, and switches functions between prototypes in place. Functions on
// the Lua stack in and out; prototypes stay alive as long as a function or a running frame needs them.
//
// Invariants:
// 1. f.pc points into a prototype that kAnchors[f] holds, or into the function's own first one.
// 2. A prototype that a function leaves is dropped only when no thread's stack holds an address inside it and no trace
//    was compiled from it (all traces are flushed); until then it is in kRetired.
// 3. LuaJIT hangs a trace at its function's present prototype even if its code is in another one: while such frames
//    run, kRetired holds both, and all traces are flushed before either goes.
// 4. LuaJIT takes the extent of a frame from the function's present prototype (hooks, the JIT's recorder and the
//    collector rely on it). While frames run in a retired prototype, the present one has at least its framesize; a
//    sentinel that the next collection finds gives an original its own framesize back.
// 5. Loops of a retired prototype do not count towards the JIT (settle_counting).
#include <algorithm>
#include <lua.hpp>

#include "ops/core/error.h"
#include "vm/portal/state.h"

namespace lutra {

namespace {

char table_keys[static_cast<int>(PortalTable::kCount)];
const char* const kModes[] = {"k", "k", "v", "", "k", "k"};

int absolute(lua_State* L, int index) { return index > 0 ? index : lua_gettop(L) + 1 + index; }

void check_lua_function(lua_State* L, int index) {
  if (!lua_isfunction(L, index) || lua_iscfunction(L, index)) fail("patch: a Lua function is needed");
}

// Only with the mirror.
mirror::Func* lua_function(lua_State* L, int index) {
  check_lua_function(L, index);
  return static_cast<mirror::Func*>(mirror::object(L, index));
}

mirror::Proto* to_proto(lua_State* L, int index) { return static_cast<mirror::Proto*>(mirror::object(L, index)); }

int append(lua_State*, const void* p, size_t n, void* ud) {
  static_cast<std::string*>(ud)->append(static_cast<const char*>(p), n);
  return 0;
}

std::string raw_dump(lua_State* L, int index) {
  std::string bytes;
  lua_pushvalue(L, index);
  lua_dump(L, append, &bytes);
  lua_pop(L, 1);
  return bytes;
}

// The children of the new prototype become the original's own, so that closures it makes are of the same prototypes.
void share_children(const bc::Proto& decoded, const mirror::Proto* original, mirror::Proto* copy) {
  for (size_t i = 0; i < decoded.kgc.size() && i < original->sizekgc; ++i) {
    if (!std::holds_alternative<bc::Child>(decoded.kgc[i])) continue;
    const auto slot = -1 - static_cast<ptrdiff_t>(i);
    copy->k[slot] = original->k[slot];
  }
}

// kAnchors[function at index] or nil.
void push_anchor(lua_State* L, int index) {
  push_table(L, PortalTable::kAnchors);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  lua_remove(L, -2);
}

// False inside a finalizer, where LuaJIT refuses with an error.
bool flush_traces(lua_State* L) {
  const auto flush = [](lua_State* L) {
    if (!luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_FLUSH)) luaL_error(L, "traces cannot be flushed");
    return 0;
  };
  if (!lua_cpcall(L, flush, nullptr)) return true;
  lua_pop(L, 1);
  return false;
}

void set_framesize(mirror::Proto* p, uint8_t size) {
  p->framesize = size;
  p->bytecode()[0] = (p->bytecode()[0] & ~0xff00u) | static_cast<uint32_t>(size) << 8;
}

// Does a frame run in the prototype? A word points to an instruction after its first, or to its constants.
bool runs_in(const std::vector<uint64_t>& words, const mirror::Proto* p) {
  const auto first = reinterpret_cast<uint64_t>(p->bytecode() + 1);
  const auto last = reinterpret_cast<uint64_t>(p->bytecode() + p->sizebc);
  return std::any_of(words.begin(), words.end(),
                     [&](uint64_t w) { return (w >= first && w <= last) || w == reinterpret_cast<uint64_t>(p->k); });
}

// Frames of f and of `next`, wherever they are, must have room for `framesize` slots.
void reserve_frames(const std::vector<lua_State*>& threads, const mirror::Func* f, const mirror::Proto* next,
                    int framesize) {
  const uint64_t word = mirror::make_gc(mirror::kFunc, f).u64;
  for (lua_State* th : threads) {
    const mirror::Thread* t = mirror::thread(th);
    const bool runs = std::any_of(t->stack, t->top, [&](mirror::TValue v) { return v.u64 == word; }) ||
                      runs_in(mirror::running_words({th}), next);
    if (runs && t->status <= LUA_YIELD && !lua_checkstack(th, framesize + 40)) fail("patch: a Lua stack is full");
  }
}

uint8_t true_framesize(PortalState& s, mirror::Proto* p) {
  const auto it = s.true_framesize.find(p);
  return it == s.true_framesize.end() ? p->framesize : it->second;
}

// Gives a prototype the framesize that its function's frames need: its own or a retired prototype's.
void settle_framesize(PortalState& s, mirror::Proto* p) {
  const uint8_t own = true_framesize(s, p);
  uint8_t needed = own;
  for (const PortalState::Retired& r : s.retired) {
    if (r.holder == p && r.running) needed = std::max(needed, r.proto->framesize);
  }
  if (p->framesize != needed) set_framesize(p, needed);
  if (needed == own) {
    s.true_framesize.erase(p);
  } else {
    s.true_framesize[p] = own;
  }
}

// The JIT must not start at a loop of a frame that runs another prototype than its function's present one: it takes the
// present one's bytes for the loop's surroundings, and reads wild memory. So loops of such prototypes do not count.
void settle_counting(const PortalState& s, mirror::Proto* p) {
  const bool counts = std::none_of(s.retired.begin(), s.retired.end(),
                                   [&](const PortalState::Retired& r) { return r.proto == p && r.holder != p; });
  constexpr std::pair<bc::Op, bc::Op> kLoops[] = {
      {bc::Op::FORL, bc::Op::IFORL}, {bc::Op::ITERL, bc::Op::IITERL}, {bc::Op::LOOP, bc::Op::ILOOP}};
  p->flags = static_cast<uint8_t>(counts ? p->flags & ~mirror::kProtoIloop : p->flags | mirror::kProtoIloop);
  for (uint32_t* i = p->bytecode() + 1; i != p->bytecode() + p->sizebc; ++i) {
    for (const auto& [counting, quiet] : kLoops) {
      if (bc::op(*i) == (counts ? quiet : counting))
        *i = (*i & ~0xffu) | static_cast<uint32_t>(counts ? counting : quiet);
    }
  }
}

// Looks which retired prototypes still have frames, and settles framesizes.
void look_at_retired(lua_State* L) {
  PortalState& s = portal_state(L);
  if (s.retired.empty()) return;
  const std::vector<uint64_t> words = mirror::running_words(mirror::all_threads(L));
  for (PortalState::Retired& r : s.retired) r.running = runs_in(words, r.proto);
  for (const PortalState::Retired& r : s.retired) settle_framesize(s, r.holder);
}

void set_sentinel(lua_State* L);

int sentinel_dies(lua_State* L) {
  PortalState& s = portal_state(L);
  s.sentinel = false;
  if (!s.mirror) return 0;  // the state is closing
  look_at_retired(L);
  set_sentinel(L);
  return 0;
}

// While a framesize is raised, an object that nothing refers to makes the next collection look again.
void set_sentinel(lua_State* L) {
  PortalState& s = portal_state(L);
  if (s.sentinel || s.true_framesize.empty()) return;
  s.sentinel = true;
  lua_newuserdata(L, 1);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, sentinel_dies);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}

// Pushes a function that runs the original prototype of the one at `index`, good only for dumping.
void push_original(lua_State* L, int index) {
  // Loops compiled in frames that run another prototype than their function's are hung up at the wrong one: LuaJIT's
  // dump would not undo what the JIT wrote into their bytecode.
  if (!portal_state(L).retired.empty() && !flush_traces(L))
    fail("patch: a finalizer cannot read a function's bytecode");
  const mirror::Proto* original = original_proto(L, index);
  if (luaL_loadstring(L, "")) fail_internal("patch: ", lua_tostring(L, -1));
  lua_function(L, -1)->pc = original->bytecode();
}

// Runs fn while the prototype of the function at `index` shows its own framesize.
template <class F>
auto with_true_framesize(lua_State* L, int index, F fn) {
  struct Restore {
    mirror::Proto* p;
    uint8_t framesize;
    ~Restore() { p->framesize = framesize; }
  };
  mirror::Proto* p = mirror::proto_of(lua_function(L, index));
  Restore restore{p, p->framesize};
  p->framesize = true_framesize(portal_state(L), p);
  return fn();
}

// string.dump: upvalue 1 is the original function.
int dump_original(lua_State* L) {
  const int given = lua_gettop(L);
  const bool lua = lua_isfunction(L, 1) && !lua_iscfunction(L, 1);
  if (lua && !portal_state(L).mirror) {
    push_table(L, PortalTable::kClones);
    lua_pushvalue(L, 1);
    lua_rawget(L, -2);
    if (lua_isstring(L, -1)) return 1;
    lua_settop(L, given);
  }
  if (!lua || !portal_state(L).mirror) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, given, LUA_MULTRET);
    return lua_gettop(L);
  }
  try {
    sweep_retired(L);
    push_original(L, 1);
  } catch (const std::exception& e) {
    lua_pushstring(L, e.what());
    return lua_error(L);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, given + 1);
  for (int i = 2; i <= given; ++i) lua_pushvalue(L, i);
  if (with_true_framesize(L, given + 1, [&] { return lua_pcall(L, given, 1, 0); })) return lua_error(L);
  return 1;
}

// Anchors r.proto and r.holder.
void hold_retired(lua_State* L, const PortalState::Retired& r) {
  push_table(L, PortalTable::kRetired);
  lua_createtable(L, 2, 0);
  mirror::push_object(L, mirror::kProto, r.proto);
  lua_rawseti(L, -2, 1);
  mirror::push_object(L, mirror::kProto, r.holder);
  lua_rawseti(L, -2, 2);
  lua_rawseti(L, -2, r.key);
  lua_pop(L, 1);
}

// The caller holds both prototypes.
void switch_to(lua_State* L, int index, mirror::Proto* next) {
  PortalState& s = portal_state(L);
  mirror::Func* f = lua_function(L, index);
  mirror::Proto* old = mirror::proto_of(f);
  const std::vector<lua_State*> threads = mirror::all_threads(L);
  int framesize = std::max(next->framesize, old->framesize);
  for (const PortalState::Retired& r : s.retired) framesize = std::max<int>(framesize, r.proto->framesize);
  reserve_frames(threads, f, next, framesize);
  const bool flushed = flush_traces(L);
  f->pc = next->bytecode();
  const std::vector<uint64_t> words = mirror::running_words(threads);
  if (!flushed || runs_in(words, old)) s.retired.push_back({old, next, f, s.next_key++, true});
  for (PortalState::Retired& r : s.retired) {
    if (r.function != f) continue;
    r.holder = next;
    hold_retired(L, r);
  }
  settle_framesize(s, old);
  settle_framesize(s, next);
  settle_counting(s, next);
  for (const PortalState::Retired& r : s.retired) settle_counting(s, r.proto);
  set_sentinel(L);
}

}  // namespace

void push_table(lua_State* L, PortalTable table) {
  lua_pushlightuserdata(L, &table_keys[static_cast<int>(table)]);
  lua_rawget(L, LUA_REGISTRYINDEX);
}

void open_tables(lua_State* L) {
  for (int i = 0; i < static_cast<int>(PortalTable::kCount); ++i) {
    lua_pushlightuserdata(L, &table_keys[i]);
    lua_newtable(L);
    lua_createtable(L, 0, 1);
    lua_pushstring(L, kModes[i]);
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
}

void push_proto(lua_State* L, int index) {
  index = absolute(L, index);
  if (portal_state(L).mirror) {
    return mirror::push_object(L, mirror::kProto, mirror::proto_of(lua_function(L, index)));
  }
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, "jit.util");
  if (lua_istable(L, -1)) {
    lua_getfield(L, -1, "funcinfo");
    lua_pushvalue(L, index);
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "proto");
    lua_insert(L, -4);
    lua_pop(L, 3);
  } else {
    lua_pop(L, 2);
    lua_pushvalue(L, index);
  }
}

const mirror::Proto* original_proto(lua_State* L, int index) {
  index = absolute(L, index);
  const mirror::Proto* p = mirror::proto_of(lua_function(L, index));
  push_anchor(L, index);
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, 1);
    p = to_proto(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  push_table(L, PortalTable::kOriginal);
  mirror::push_object(L, mirror::kProto, p);
  lua_rawget(L, -2);
  if (!lua_isnil(L, -1)) p = to_proto(L, -1);
  lua_pop(L, 2);
  return p;
}

// A number, not the address: a prototype made where a collected one lay is another.
const void* prototype_identity(lua_State* L, int index) {
  index = absolute(L, index);
  if (portal_state(L).mirror) {
    mirror::push_object(L, mirror::kProto, original_proto(L, index));
  } else {
    const int top = lua_gettop(L);
    push_table(L, PortalTable::kOriginal);
    push_proto(L, index);
    lua_pushvalue(L, -1);
    lua_rawget(L, top + 1);
    if (lua_isnil(L, -1)) lua_pop(L, 1);
    lua_replace(L, top + 1);
    lua_settop(L, top + 1);
  }
  push_table(L, PortalTable::kIdentity);
  lua_insert(L, -2);
  lua_pushvalue(L, -1);
  lua_rawget(L, -3);
  auto number = static_cast<uintptr_t>(lua_tonumber(L, -1));
  lua_pop(L, 1);
  if (number == 0) {
    number = ++portal_state(L).prototypes;
    lua_pushnumber(L, static_cast<lua_Number>(number));
    lua_rawset(L, -3);
    lua_pop(L, 1);
  } else {
    lua_pop(L, 2);
  }
  return reinterpret_cast<const void*>(number);
}

bc::Dump dump_function(lua_State* L, int index) {
  index = absolute(L, index);
  check_lua_function(L, index);
  if (portal_state(L).mirror) {
    sweep_retired(L);
    push_original(L, index);
    const std::string bytes = with_true_framesize(L, -1, [&] { return raw_dump(L, -1); });
    lua_pop(L, 1);
    return bc::parse(bytes);
  }
  push_table(L, PortalTable::kClones);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  size_t n = 0;
  const char* text = lua_tolstring(L, -1, &n);
  const std::string bytes = text ? std::string(text, n) : raw_dump(L, index);
  lua_pop(L, 2);
  return bc::parse(bytes);
}

namespace {

void forget_record(PortalState& s, const mirror::Proto* p, const PortalState::Record& record) {
  for (const Site& site : record.sites) {
    const uint32_t* ret = reinterpret_cast<const uint32_t*>(p + 1) + site.return_pc;
    if (site.id == 0) {
      s.helper_sites.erase(ret);
      continue;
    }
    PortalState::Id& id = s.ids[site.id];
    auto at = std::find(id.sites.begin(), id.sites.end(), ret);
    if (at != id.sites.end()) id.sites.erase(at);
    if (--id.refs == 0 && !id.used) s.free_ids.push_back(site.id);
  }
}

}  // namespace

void add_record(lua_State* L, int closure, const std::vector<Site>& sites) {
  PortalState& s = portal_state(L);
  if (s.records.size() >= s.sweep_records_at) {
    sweep_records(L);
    s.sweep_records_at = std::max<size_t>(64, 2 * s.records.size());
  }
  const mirror::Proto* p = mirror::proto_of(lua_function(L, closure));
  if (auto it = s.records.find(p); it != s.records.end())
    forget_record(s, p, it->second);  // a dead one had this address
  for (const Site& site : sites) {
    const uint32_t* ret = p->bytecode() + site.return_pc;
    if (site.id == 0) {
      s.helper_sites.insert(ret);
      continue;
    }
    if (static_cast<size_t>(site.id) >= s.ids.size()) s.ids.resize(site.id + 1);
    s.ids[site.id].sites.push_back(ret);
    ++s.ids[site.id].refs;
  }
  s.records[p] = {sites};
  push_table(L, PortalTable::kAlive);
  lua_pushlightuserdata(L, const_cast<mirror::Proto*>(p));
  push_proto(L, closure);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void sweep_records(lua_State* L) {
  PortalState& s = portal_state(L);
  push_table(L, PortalTable::kAlive);
  for (auto it = s.records.begin(); it != s.records.end();) {
    const mirror::Proto* p = it->first;
    lua_pushlightuserdata(L, const_cast<mirror::Proto*>(p));
    lua_rawget(L, -2);
    const bool alive = !lua_isnil(L, -1);
    lua_pop(L, 1);
    if (alive) {
      ++it;
      continue;
    }
    forget_record(s, p, it->second);
    it = s.records.erase(it);
  }
  lua_pop(L, 1);
}

void make_clone(lua_State* L, int index, const Patched& patched) {
  luaL_checkstack(L, 20, "patch");
  index = absolute(L, index);
  PortalState& s = portal_state(L);
  check_lua_function(L, index);
  lua_Debug ar;
  lua_pushvalue(L, index);
  lua_getinfo(L, ">S", &ar);
  const std::string bytes = bc::emit(patched.dump), chunkname = ar.source;
  if (luaL_loadbuffer(L, bytes.data(), bytes.size(), chunkname.c_str())) {
    const std::string message = lua_tostring(L, -1);
    lua_pop(L, 1);
    fail_internal("patch: LuaJIT refuses the prototype: ", message);
  }
  const int clone = lua_gettop(L);
  for (int i = 1; lua_getupvalue(L, index, i); ++i) {
    lua_pop(L, 1);
    lua_upvaluejoin(L, clone, i, index, i);
  }
  lua_getfenv(L, index);
  lua_setfenv(L, clone);
  if (!s.mirror) {
    push_table(L, PortalTable::kClones);
    lua_pushvalue(L, clone);
    const std::string original = raw_dump(L, index);
    lua_pushvalue(L, index);
    lua_rawget(L, -3);
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      lua_pushlstring(L, original.data(), original.size());
    }
    lua_rawset(L, -3);
    push_table(L, PortalTable::kOriginal);
    push_proto(L, clone);
    push_proto(L, index);
    lua_pushvalue(L, -1);
    lua_rawget(L, -4);
    if (lua_isnil(L, -1))
      lua_pop(L, 1);
    else
      lua_remove(L, -2);
    lua_rawset(L, -3);
    lua_settop(L, clone);
    return;
  }
  const mirror::Proto* original = original_proto(L, index);
  mirror::Proto* copy = mirror::proto_of(lua_function(L, clone));
  share_children(patched.dump.top(), original, copy);
  add_record(L, clone, patched.sites);
  push_table(L, PortalTable::kOriginal);
  push_proto(L, clone);
  mirror::push_object(L, mirror::kProto, original);
  lua_rawset(L, -3);
  lua_settop(L, clone);
  if (original->flags & mirror::kProtoNoJit) luaJIT_setmode(L, clone, LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);
}

std::string redirect(lua_State* L, int index, int donor) {
  luaL_checkstack(L, 20, "patch");
  index = absolute(L, index);
  donor = absolute(L, donor);
  if (!portal_state(L).mirror)
    return "cannot patch in place: this LuaJIT's structs are not those Lutra knows (use lt.compile)";
  mirror::Func* f = lua_function(L, index);
  mirror::Func* d = lua_function(L, donor);
  if (f->nupvalues != d->nupvalues) return "cannot patch in place: the prototype has other upvalues";
  if (f == d || f->pc == d->pc) return {};
  sweep_retired(L);
  push_anchor(L, index);
  const bool first = lua_isnil(L, -1);
  if (first) {
    lua_pop(L, 1);
    lua_createtable(L, 2, 0);
    push_proto(L, index);
    lua_rawseti(L, -2, 1);
    push_table(L, PortalTable::kAnchors);
    lua_pushvalue(L, index);
    lua_pushvalue(L, -3);
    lua_rawset(L, -3);
    lua_pop(L, 1);
  }
  push_proto(L, donor);
  const int anchor = lua_gettop(L) - 1;
  mirror::Proto* next = to_proto(L, -1);
  push_proto(L, index);  // keeps the prototype that f leaves
  switch_to(L, index, next);
  lua_pushvalue(L, anchor + 1);
  lua_rawseti(L, anchor, 2);
  lua_settop(L, anchor - 1);
  return {};
}

bool restore(lua_State* L, int index) {
  luaL_checkstack(L, 20, "patch");
  index = absolute(L, index);
  if (!portal_state(L).mirror) return false;
  check_lua_function(L, index);
  sweep_retired(L);
  if (!redirected(L, index)) return false;
  push_anchor(L, index);
  const int anchor = lua_gettop(L);
  push_proto(L, index);  // keeps the prototype that f leaves
  lua_rawgeti(L, anchor, 1);
  mirror::Proto* first = to_proto(L, -1);
  switch_to(L, index, first);
  // The anchor stays: f may be marked already in the collection that runs, its prototype not yet.
  lua_pushnil(L);
  lua_rawseti(L, anchor, 2);
  lua_settop(L, anchor - 1);
  return true;
}

bool redirected(lua_State* L, int index) {
  push_anchor(L, absolute(L, index));
  bool yes = false;
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, 2);
    yes = !lua_isnil(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return yes;
}

bool move_frame(lua_State* L, int index, int id) {
  PortalState& s = portal_state(L);
  if (!s.mirror) return false;
  const mirror::Proto* p = mirror::proto_of(lua_function(L, index));
  const uint32_t* from = mirror::return_pc(L);
  const auto record = s.records.find(p);
  if (!from || record == s.records.end()) return false;
  for (const Site& site : record->second.sites) {
    const uint32_t* to = p->bytecode() + site.return_pc;
    // The call's opcode and base: its results must come to lie where the code behind it expects them.
    if (site.id != id || ((to[-1] ^ from[-1]) & 0xffff) != 0) continue;
    if (to == from) return true;
    if (mirror::called_from_trace(L) && !flush_traces(L)) return false;
    mirror::set_return_pc(L, to);
    return true;
  }
  return false;
}

void sweep_retired(lua_State* L) {
  PortalState& s = portal_state(L);
  if (s.retired.empty()) return;
  look_at_retired(L);
  const auto gone = std::stable_partition(s.retired.begin(), s.retired.end(), [](const auto& r) { return r.running; });
  if (gone == s.retired.end() || !flush_traces(L)) return;
  const std::vector<PortalState::Retired> dropped(gone, s.retired.end());
  s.retired.erase(gone, s.retired.end());
  push_table(L, PortalTable::kRetired);
  for (const PortalState::Retired& r : dropped) {
    settle_counting(s, r.proto);
    lua_pushnil(L);
    lua_rawseti(L, -2, r.key);
  }
  lua_pop(L, 1);
}

int retired_prototypes(lua_State* L) {
  PortalState& s = portal_state(L);
  if (s.mirror) sweep_retired(L);
  return static_cast<int>(s.retired.size());
}

void wrap_string_dump(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  if (lua_istable(L, -1)) {
    lua_getfield(L, -1, "string");
    if (lua_istable(L, -1)) {
      lua_getfield(L, -1, "dump");
      lua_pushcclosure(L, dump_original, 1);
      lua_setfield(L, -2, "dump");
    }
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

}  // namespace lutra
