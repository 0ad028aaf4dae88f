// Loads patched prototypes, makes closures of them, and switches functions between prototypes in place. Prototypes stay
// alive as long as a function or a running frame needs them.
//
// Invariants:
// 1. A function's frames run its current prototype: LuaJIT gets constants, the frame size, lines, and the place of
//    traces from the function. So frames that run when f.pc changes become frames of a copy of f with the old
//    prototype.
// 2. kAnchors[f] holds f's original and its current prototype, since changing f.pc runs no write barrier.
// 3. All traces are flushed before f.pc changes: they may hold frames of f.
#include <algorithm>
#include <iterator>
#include <lua.hpp>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"
#include "vm/portal/state.h"

namespace lutra {

namespace {

char table_keys[static_cast<int>(PortalTable::kCount)];
const char* const kModes[] = {"k", "k", "k", "k", "kv", "v", "v", "v", "v", "k"};
static_assert(std::size(kModes) == static_cast<size_t>(PortalTable::kCount));

// Replaces the new prototype's constants, except strings, by the original's: the children, 64-bit numbers, and
// templates, for which a dump loses the order of keys and keys whose value is nil.
void share_constants(const bc::Proto& decoded, const mirror::Proto* original, mirror::Proto* copy) {
  for (size_t i = 0; i < decoded.kgc.size() && i < original->sizekgc; ++i) {
    const bc::KGC& k = decoded.kgc[i];
    if (std::holds_alternative<std::string>(k)) continue;
    const auto slot = -1 - static_cast<ptrdiff_t>(i);
    copy->k[slot] = original->k[slot];
  }
}

// Flushes all traces. Returns false inside a finalizer, where LuaJIT raises an error instead.
bool flush_traces(lua_State* L) {
  const auto flush = [](lua_State* L) {
    if (!luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_FLUSH)) luaL_error(L, "traces cannot be flushed");
    return 0;
  };
  if (!lua_cpcall(L, flush, nullptr)) return true;
  lua_pop(L, 1);
  return false;
}

// Pushes a closure with the prototype, upvalues and environment of the function at `index`.
void push_copy(lua_State* L, int index) {
  const mirror::Func* f = lua_function(L, index);
  bc::Dump dump;
  dump.flags = 8 | 2;  // FR2, stripped
  bc::Proto& p = dump.protos.emplace_back();
  p.framesize = 2;
  p.code = {bc::ins_ad(bc::Op::FUNCF, 2, 0), bc::ins_ad(bc::Op::RET0, 0, 1)};
  p.upvalues.resize(f->nupvalues);
  const std::string bytes = bc::emit(dump);
  if (luaL_loadbuffer(L, bytes.data(), bytes.size(), "=copy")) fail_internal("patch: ", lua_tostring(L, -1));
  const int copy = lua_gettop(L);
  for (int i = 1; i <= f->nupvalues; ++i) lua_upvaluejoin(L, copy, i, index, i);
  lua_function(L, copy)->pc = f->pc;
  lua_getfenv(L, index);
  lua_setfenv(L, copy);
}

// Sets table[function at the top] = function at `index`.
void remember(lua_State* L, PortalTable table, int index) {
  const int key = lua_gettop(L);
  push_table(L, PortalTable::kSources);
  lua_pushvalue(L, index);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  push_table(L, table);
  lua_pushvalue(L, key);
  lua_pushvalue(L, index);
  lua_rawset(L, -3);
  lua_settop(L, key);
}

// Makes the function at `index` run the prototype `next`. Returns false and changes nothing inside a finalizer. The
// caller keeps both prototypes alive.
bool switch_to(lua_State* L, int index, const mirror::Proto* next) {
  push_copy(L, index);
  const bool flushed = flush_traces(L);
  if (flushed) {
    mirror::Func* f = lua_function(L, index);
    const auto& records = portal_state(L).records;
    const auto record = records.find(mirror::proto_of(f));
    const bool portals_only = record != records.end() && record->second.entered_by_portal;
    if (mirror::replace_frames(threads_with_frames(L, portals_only), f, lua_function(L, -1)))
      remember(L, PortalTable::kCopies, index);
    f->pc = next->bytecode();
  }
  lua_pop(L, 1);
  return flushed;
}

// Pushes the dump at the top of the stack with its expanded tail calls turned into tail calls again, as in the source.
void push_with_tail_calls(lua_State* L) {
  size_t n;
  const char* bytes = lua_tolstring(L, -1, &n);
  try {
    bc::Dump dump = bc::parse({bytes, n});
    if (!bc::restore_tail_calls(dump)) return;
    const std::string restored = bc::emit(dump);
    lua_pushlstring(L, restored.data(), restored.size());
  } catch (const std::exception&) {
    return;  // not a dump that Lutra has made
  }
}

// Implements string.dump; upvalue 1 is the original function.
int dump_original(lua_State* L) {
  const int given = lua_gettop(L);
  const bool lua = lua_isfunction(L, 1) && !lua_iscfunction(L, 1);
  if (lua && !portal_state(L).mirror) {
    push_table(L, PrototypeTable::kClones);
    lua_pushvalue(L, 1);
    lua_rawget(L, -2);
    if (lua_isstring(L, -1)) return 1;
    lua_settop(L, given);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  if (lua && portal_state(L).mirror) {
    try {
      push_original(L, 1);
    } catch (const std::exception& e) {
      lua_pushstring(L, e.what());
      return lua_error(L);
    }
  } else if (given) {
    lua_pushvalue(L, 1);
  }
  for (int i = 2; i <= given; ++i) lua_pushvalue(L, i);
  lua_call(L, given, 1);
  push_with_tail_calls(L);
  return 1;
}

}  // namespace

// Creates the table at its first use, so that a state that compiles nothing has none.
void push_table(lua_State* L, PortalTable table) {
  char* key = &table_keys[static_cast<int>(table)];
  lua_pushlightuserdata(L, key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  push_weak_table(L, kModes[static_cast<int>(table)]);
  lua_pushlightuserdata(L, key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

bool portal_id_named(lua_State* L, int id) { return portal_state(L).ids.at(size_t(id)).refs > 0; }

namespace {

// Returns whether p is alive. If not, its record belongs to a collected prototype that had this address.
bool is_alive(const PortalState& s, const mirror::Proto* p) {
  return s.alive && mirror::raw_get(s.alive, mirror::make_gc(mirror::kProto, p)).u64 != mirror::kNilValue;
}

void forget_record(PortalState& s, const mirror::Proto* p, const PortalState::Record& record) {
  for (const Site& site : record.sites) {
    const uint32_t* ret = reinterpret_cast<const uint32_t*>(p + 1) + site.return_pc;
    if (site.id == 0) {
      if (const auto at = s.helper_sites.find(ret); at != s.helper_sites.end()) s.helper_sites.erase(at);
      continue;
    }
    PortalState::Id& id = s.ids[site.id];
    auto at = std::find(id.sites.begin(), id.sites.end(), ret);
    if (at != id.sites.end()) id.sites.erase(at);
    if (--id.refs == 0 && !id.used) s.free_ids.push_back(site.id);
  }
}

}  // namespace

void add_record(lua_State* L, int closure, const Patched& patched) {
  PortalState& s = portal_state(L);
  if (s.records.size() >= s.sweep_records_at) {
    sweep_records(L);
    s.sweep_records_at = std::max<size_t>(64, 2 * s.records.size());
  }
  const mirror::Proto* p = mirror::proto_of(lua_function(L, closure));
  if (auto it = s.records.find(p); it != s.records.end())
    forget_record(s, p, it->second);  // a collected prototype had this address
  PortalState::Record& record = s.records[p];
  record = {patched.sites, false, patched.version};
  for (const Site& site : patched.sites) {
    record.entered_by_portal |= site.id > 0 && patched.moved.size() > 1 && site.return_pc <= patched.moved[1];
    const uint32_t* ret = p->bytecode() + site.return_pc;
    if (site.id == 0) {
      s.helper_sites.insert(ret);
      continue;
    }
    if (static_cast<size_t>(site.id) >= s.ids.size()) s.ids.resize(site.id + 1);
    s.ids[site.id].sites.push_back(ret);
    ++s.ids[site.id].refs;
  }
  push_table(L, PortalTable::kAlive);
  s.alive = static_cast<const mirror::Tab*>(lua_topointer(L, -1));
  push_proto(L, closure);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void sweep_records(lua_State* L) {
  PortalState& s = portal_state(L);
  for (auto it = s.records.begin(); it != s.records.end();) {
    if (is_alive(s, it->first)) {
      ++it;
      continue;
    }
    forget_record(s, it->first, it->second);
    it = s.records.erase(it);
  }
}

namespace {

// Loads the patched prototype and pushes a function of it.
void load_patched(lua_State* L, int index, const Patched& patched) {
  lua_Debug ar;
  lua_pushvalue(L, index);
  lua_getinfo(L, ">S", &ar);
  const std::string bytes = bc::emit(patched.dump), chunkname = ar.source;
  if (luaL_loadbuffer(L, bytes.data(), bytes.size(), chunkname.c_str())) {
    const std::string message = lua_tostring(L, -1);
    lua_pop(L, 1);
    fail_internal("patch: LuaJIT refuses the prototype: ", message);
  }
}

// Returns whether the prototype was loaded from `patched` and its code has not changed. Then its frames look like those
// of a new one.
bool is_as_loaded(lua_State* L, const mirror::Proto* p, const Patched& patched) {
  const auto& records = portal_state(L).records;
  const auto record = records.find(p);
  if (record == records.end() || record->second.version != patched.version) return false;
  push_table(L, PrototypeTable::kChanged);
  mirror::push_object(L, mirror::kProto, p);
  lua_rawget(L, -2);
  const bool is = lua_isnil(L, -1);
  lua_pop(L, 2);
  return is;
}

// Pushes a function of the prototype that was already loaded for an earlier function, so that a frame that is rebuilt
// at each call does not load it each time. Returns false and pushes nothing if that prototype was collected or its code
// has changed.
bool push_loaded(lua_State* L, const Patched& patched, const mirror::Proto* original) {
  if (patched.version == 0 || !can_make_closures(patched.dump.top())) return false;
  const int top = lua_gettop(L);
  push_table(L, PortalTable::kLoaded);
  lua_rawgeti(L, -1, int(patched.version));
  const mirror::Proto* copy = lua_isnil(L, -1) ? nullptr : to_proto(L, -1);
  push_table(L, PrototypeTable::kOriginal);
  lua_pushvalue(L, -2);
  if (copy) lua_rawget(L, -2);
  const bool known = copy && mirror::object(L, -1) == original && is_as_loaded(L, copy, patched);
  if (known) {
    push_plain_closure(L, copy);  // the stack keeps the prototype alive meanwhile
    lua_insert(L, top + 1);
  }
  lua_settop(L, top + int(known));
  return known;
}

// Records the prototype of the function at the top, which has just been loaded.
void note_loaded(lua_State* L, const Patched& patched, const mirror::Proto* original) {
  const int clone = lua_gettop(L);
  share_constants(patched.dump.top(), original, mirror::proto_of(lua_function(L, clone)));
  add_record(L, clone, patched);
  push_table(L, PrototypeTable::kOriginal);
  push_proto(L, clone);
  mirror::push_object(L, mirror::kProto, original);
  lua_rawset(L, -3);
  if (patched.version != 0) {
    push_table(L, PortalTable::kLoaded);
    push_proto(L, clone);
    lua_rawseti(L, -2, int(patched.version));
  }
  lua_settop(L, clone);
}

// Gives the function at the top the upvalues and the environment of the one at `index`.
void take_variables(lua_State* L, int index) {
  const int clone = lua_gettop(L);
  for (int i = 1; lua_getupvalue(L, index, i); ++i) {
    lua_pop(L, 1);
    lua_upvaluejoin(L, clone, i, index, i);
  }
  lua_getfenv(L, index);
  lua_setfenv(L, clone);
}

// Records the function from which the one at the top was made: the frame's own function for a rest, else the cloned
// function.
void remember_source(lua_State* L, int index, bool rest) {
  const int made = lua_gettop(L);
  if (rest) {
    push_table(L, PrototypeTable::kResumed);
    push_proto(L, made);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    lua_settop(L, made);
  }
  push_function_of(L, index);
  lua_pushvalue(L, made);
  remember(L, rest ? PortalTable::kRests : PortalTable::kClones, made + 1);
  lua_settop(L, made);
}

// Without LuaJIT's structs: records in tables from which function the clone at the top was made.
void remember_original(lua_State* L, int index) {
  const int clone = lua_gettop(L);
  push_table(L, PrototypeTable::kClones);
  lua_pushvalue(L, clone);
  const std::string original = raw_dump(L, index);
  lua_pushvalue(L, index);
  lua_rawget(L, -3);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushlstring(L, original.data(), original.size());
  }
  lua_rawset(L, -3);
  push_table(L, PrototypeTable::kOriginal);
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
}

}  // namespace

void make_clone(lua_State* L, int index, const Patched& patched) {
  luaL_checkstack(L, 20, "patch");
  index = absolute(L, index);
  check_lua_function(L, index);
  const bool mirror = portal_state(L).mirror;
  const mirror::Proto* original = mirror ? original_proto(L, index) : nullptr;
  const bool loaded = mirror && push_loaded(L, patched, original);
  if (!loaded) load_patched(L, index, patched);
  const int clone = lua_gettop(L);
  take_variables(L, index);
  remember_source(L, index, patched.resumed);
  if (!mirror) return remember_original(L, index);
  if (!loaded) note_loaded(L, patched, original);
  if (original->flags & mirror::kProtoNoJit) luaJIT_setmode(L, clone, LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);
}

namespace {

// Returns whether a clone of the function equals one that would be made now. A prototype whose JIT is off is shared and
// stays off, since nothing switches it on again.
bool would_be_alike(const mirror::Func* clone, const mirror::Func* f) {
  const auto is_off = [](const mirror::Func* g) { return mirror::proto_of(g)->flags & mirror::kProtoNoJit; };
  return clone->nupvalues == f->nupvalues && clone->env == f->env && (!is_off(f) || is_off(clone)) &&
         std::equal(f->upvalues, f->upvalues + f->nupvalues, clone->upvalues);
}

// Pushes the last function that make_rest made from it, if that is alive and a new one would be the same.
bool push_made(lua_State* L, int index, const Patched& patched) {
  const int top = lua_gettop(L), clone = top + 1, of = top + 2;
  push_table(L, PortalTable::kMade);
  lua_rawgeti(L, -1, int(patched.version));
  lua_remove(L, clone);
  push_table(L, PortalTable::kRests);
  lua_pushvalue(L, clone);
  lua_rawget(L, -2);
  lua_remove(L, of);
  bool known = lua_isfunction(L, clone) && would_be_alike(lua_function(L, clone), lua_function(L, index));
  if (known && !lua_rawequal(L, of, index)) {
    push_function_of(L, index);
    known = lua_rawequal(L, of, -1);
  }
  known = known && is_as_loaded(L, mirror::proto_of(lua_function(L, clone)), patched);
  lua_settop(L, top + int(known));
  return known;
}

}  // namespace

void make_rest(lua_State* L, int index, const Patched& patched) {
  luaL_checkstack(L, 20, "patch");
  index = absolute(L, index);
  check_lua_function(L, index);
  if (!portal_state(L).mirror || patched.version == 0) return make_clone(L, index, patched);
  if (push_made(L, index, patched)) return;
  make_clone(L, index, patched);
  push_table(L, PortalTable::kMade);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, int(patched.version));
  lua_pop(L, 1);
}

std::string redirect(lua_State* L, int index, int donor) {
  luaL_checkstack(L, 20, "patch");
  index = absolute(L, index);
  donor = absolute(L, donor);
  if (!portal_state(L).mirror) {
    return "cannot patch in place: this LuaJIT's structs are not those Lutra knows (use lt.compile)";
  }
  const mirror::Func* f = lua_function(L, index);
  const mirror::Func* d = lua_function(L, donor);
  if (f->nupvalues != d->nupvalues) return "cannot patch in place: the prototype has other upvalues";
  if (f == d || f->pc == d->pc) return {};
  push_anchor(L, index);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_createtable(L, 2, 0);
    mirror::push_object(L, mirror::kProto, original_proto(L, index));
    lua_rawseti(L, -2, 1);
    push_table(L, PrototypeTable::kAnchors);
    lua_pushvalue(L, index);
    lua_pushvalue(L, -3);
    lua_rawset(L, -3);
    lua_pop(L, 1);
  }
  const int anchor = lua_gettop(L);
  push_proto(L, index);  // keeps the prototype that f leaves alive
  push_proto(L, donor);
  const bool done = switch_to(L, index, to_proto(L, -1));
  if (done) lua_rawseti(L, anchor, 2);
  lua_settop(L, anchor - 1);
  return done ? "" : "cannot patch in place: a finalizer runs";
}

bool restore(lua_State* L, int index) {
  luaL_checkstack(L, 20, "patch");
  index = absolute(L, index);
  if (!portal_state(L).mirror) return false;
  check_lua_function(L, index);
  if (!redirected(L, index)) return false;
  push_anchor(L, index);
  const int anchor = lua_gettop(L);
  push_proto(L, index);  // keeps the prototype that f leaves alive
  lua_rawgeti(L, anchor, 1);
  if (!switch_to(L, index, to_proto(L, -1))) fail("unpatch: not inside a finalizer");
  // The anchor stays: in the current collector cycle f may already be marked, but its prototype not yet.
  lua_pushnil(L);
  lua_rawseti(L, anchor, 2);
  lua_settop(L, anchor - 1);
  return true;
}

bool in_finalizer(lua_State* L) {
  const auto ask = [](lua_State* l) {
    luaJIT_setmode(l, 0, LUAJIT_MODE_DEBUG);  // does nothing, but raises an error in a finalizer
    return 0;
  };
  if (lua_cpcall(L, ask, nullptr) == 0) return false;
  lua_pop(L, 1);
  return true;
}

bool restore_newborn(lua_State* L, int index) {
  if (!portal_state(L).mirror || lua_iscfunction(L, index) || redirected(L, index)) return false;
  const mirror::Proto* original = original_proto(L, index);
  return original != mirror::proto_of(lua_function(L, index)) && switch_to(L, absolute(L, index), original);
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

bool was_patched(lua_State* L, int index) {
  index = absolute(L, index);
  const int top = lua_gettop(L);
  push_anchor(L, index);
  push_table(L, PortalTable::kCopies);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  push_table(L, PrototypeTable::kOriginal);
  push_proto(L, index);
  lua_rawget(L, -2);
  const bool yes = !lua_isnil(L, top + 1) || !lua_isnil(L, top + 3) || !lua_isnil(L, top + 5);
  lua_settop(L, top);
  return yes;
}

void push_function_of(lua_State* L, int index) {
  lua_pushvalue(L, index);
  for (const PortalTable table : {PortalTable::kCopies, PortalTable::kRests, PortalTable::kCopies}) {
    push_table(L, table);
    lua_pushvalue(L, -2);
    lua_rawget(L, -2);
    lua_remove(L, -2);
    lua_remove(L, lua_isnil(L, -1) ? -1 : -2);
  }
}

uint64_t version_of(lua_State* L, const mirror::Proto* p) {
  const PortalState& s = portal_state(L);
  const auto record = s.records.find(p);
  return record != s.records.end() && is_alive(s, p) ? record->second.version : 0;
}

void push_function_of_frame(lua_State* L, int index) {
  index = absolute(L, index);
  push_table(L, PortalTable::kCopies);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_pushvalue(L, index);
}

bool move_frame(lua_State* L, const mirror::LuaFrame& frame, int index, bc::Pc pc) {
  index = absolute(L, index);
  const mirror::Func* f = lua_function(L, index);
  const mirror::Proto* p = mirror::proto_of(f);
  const uint32_t* to = p->bytecode() + pc;
  // The calls must have the same opcode and operand A, so that the results are where the code after the call expects
  // them.
  if (!frame.called || ((*to ^ *frame.called) & 0xffff) != 0) return false;
  if (!flush_traces(L) || !lua_checkstack(L, p->framesize + 40)) return false;
  mirror::move_frame(L, frame, f, to + 1);
  return true;
}

bool move_frame(lua_State* L, int index, int id) {
  PortalState& s = portal_state(L);
  if (!s.mirror) return false;
  push_function_of_frame(L, index);
  const mirror::Func* f = lua_function(L, -1);
  const mirror::Proto* p = mirror::proto_of(f);
  lua_pop(L, 1);
  const uint32_t* from = mirror::return_pc(L);
  const auto record = s.records.find(p);
  if (!from || record == s.records.end()) return false;
  for (const Site& site : record->second.sites) {
    const uint32_t* to = p->bytecode() + site.return_pc;
    // The calls must have the same opcode and base, so that the results are where the code after the call expects
    // them.
    if (site.id != id || ((to[-1] ^ from[-1]) & 0xffff) != 0) continue;
    if (to == from) return true;
    if (mirror::called_from_trace(L) && !flush_traces(L)) return false;
    if (!lua_checkstack(L, p->framesize + 40)) return false;
    mirror::move_caller(L, f, to);
    return true;
  }
  return false;
}

void wrap_string_dump(lua_State* L) {
  if (!push_library(L, "string")) return;
  lua_getfield(L, -1, "dump");
  lua_pushcclosure(L, dump_original, 1);
  lua_setfield(L, -2, "dump");
  lua_pop(L, 1);
}

}  // namespace lutra
