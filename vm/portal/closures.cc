// Makes closures of a function's children, as the FNEW of the original would. Such a closure has upvalues of its own,
// which the caller sets or joins.
//
// Invariants:
// 1. Nothing here keeps a prototype alive: it is looked up from the function when a closure is made.
// 2. Each upvalue of a closure has the same hash, whatever code makes the closure. LuaJIT's JIT assumes that upvalues
//    with different hashes are different, also in traces that later closures of the prototype run.
#include <algorithm>
#include <bit>
#include <lua.hpp>
#include <utility>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"
#include "vm/portal/emit.h"
#include "vm/portal/portal.h"
#include "vm/portal/state.h"

namespace lutra {

namespace {

constexpr uint16_t kLocal = 0x8000;
constexpr unsigned kMaxCaptured = kMaxSlots - 2;  // the most slots that a closure may capture

// Returns a function without parameters that returns a closure of its only child.
bc::Proto maker_proto(unsigned slots, unsigned upvalues) {
  bc::Proto p;
  p.flags = bc::kHasChild;
  p.framesize = static_cast<uint8_t>(slots + 2);
  p.upvalues.assign(upvalues, bc::Upvalue{kLocal});
  p.kgc = {bc::Child{0, {}}};
  p.code = {bc::ins_ad(bc::Op::FUNCF, p.framesize, 0)};
  p.code.push_back(bc::ins_ad(bc::Op::KNIL, 0, slots));
  p.code.push_back(bc::ins_ad(bc::Op::FNEW, slots, 0));
  p.code.push_back(bc::ins_jump(bc::Op::UCLO, 0, 3, 4));
  p.code.push_back(bc::ins_ad(bc::Op::RET1, slots, 2));
  return p;
}

void load_maker(lua_State* L, const mirror::Proto* child) {
  unsigned slots = 1, upvalues = 1;
  for (unsigned i = 0; i < child->sizeuv; ++i) {
    unsigned& count = child->uv[i] & kLocal ? slots : upvalues;
    count = std::max(count, (child->uv[i] & 0xffu) + 1);
  }
  bc::Dump dump;
  dump.flags = 8 | 2;  // FR2, stripped
  bc::Proto& dummy = dump.protos.emplace_back();
  dummy.framesize = 2;
  dummy.code = {bc::ins_ad(bc::Op::FUNCF, 2, 0), bc::ins_ad(bc::Op::RET0, 0, 1)};
  dump.protos.push_back(maker_proto(slots, upvalues));
  const std::string bytes = bc::emit(dump);
  if (luaL_loadbuffer(L, bytes.data(), bytes.size(), "=closure")) fail_internal("patch: ", lua_tostring(L, -1));
  mirror::proto_of(lua_function(L, -1))->k[-1] = std::bit_cast<uint64_t>(child);
  luaJIT_setmode(L, lua_gettop(L), LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);  // no trace contains an FNEW
}

// Pushes the function that makes closures of `child`. It keeps the child alive, so it is held weakly and made again if
// it was collected.
void push_maker(lua_State* L, const mirror::Proto* child) {
  push_table(L, PortalTable::kMakers);
  mirror::push_object(L, mirror::kProto, child);
  lua_pushvalue(L, -1);
  lua_rawget(L, -3);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    load_maker(L, child);
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    lua_rawset(L, -5);
  }
  lua_replace(L, -3);
  lua_pop(L, 1);
}

void push_closure(lua_State* L, const mirror::Proto* child, const mirror::Proto* parent) {
  push_plain_closure(L, child);
  auto* closure = static_cast<mirror::Func*>(mirror::object(L, -1));
  hash_variables(closure, parent);
  adopt_newborn(portal_state(L), closure);
}

const mirror::Proto* child_of(const mirror::Proto* parent, unsigned constant) {
  constexpr uint8_t kIsProto = uint8_t(~mirror::kProto);
  if (constant >= parent->sizekgc) fail_internal("patch: a prototype has no child ", constant);
  const auto* child = std::bit_cast<const mirror::Proto*>(parent->k[-1 - int64_t(constant)]);
  if (child->gct != kIsProto) fail_internal("patch: constant ", constant, " of a prototype is no child");
  return child;
}

// Pushes function(t, ...) that stores the varargs at positions n - 1 and up, as the end of a constructor does.
void push_room_maker(lua_State* L, int n) {
  constexpr double kBiased = 4503599627370496;  // 2^52: LuaJIT reads a double's low 32 bits
  bc::Dump dump;
  dump.flags = 8 | 2;  // FR2, stripped
  bc::Proto& p = dump.protos.emplace_back();
  p.flags = bc::kVararg;
  p.num_params = 1;
  p.framesize = 4;
  p.knum = {kBiased + (n - 1)};
  p.code = {bc::ins_ad(bc::Op::FUNCV, 4, 0), bc::ins_abc(bc::Op::VARG, 1, 0, 1), bc::ins_ad(bc::Op::TSETM, 1, 0),
            bc::ins_ad(bc::Op::RET0, 0, 1)};
  const std::string bytes = bc::emit(dump);
  if (luaL_loadbuffer(L, bytes.data(), bytes.size(), "=room")) fail_internal("patch: ", lua_tostring(L, -1));
  luaJIT_setmode(L, lua_gettop(L), LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);
}

}  // namespace

void push_plain_closure(lua_State* L, const mirror::Proto* p) {
  push_maker(L, p);
  lua_call(L, 0, 1);
}

void hash_variables(mirror::Func* closure, const mirror::Proto* parent) {
  const mirror::Proto* p = mirror::proto_of(closure);
  for (unsigned i = 0; i < closure->nupvalues; ++i) {
    if (p->uv[i] & kLocal) closure->upvalues[i]->dhash = mirror::hash_of_variable(parent, p->uv[i]);
  }
}

// The closure has no frames, and no trace has seen it, so its pc may change. The prototype lives as long as the
// example. The flags that count closures are copied, since LuaJIT's traces depend on whether there are many.
void adopt_newborn(const PortalState& s, mirror::Func* closure) {
  const auto example = s.newborn.find(mirror::proto_of(closure));
  if (example == s.newborn.end()) return;
  closure->pc = example->second->pc;
  mirror::proto_of(closure)->flags |= example->first->flags & mirror::kProtoClosures;
}

void run_newborn(lua_State* L, int index) {
  portal_state(L).newborn[original_proto(L, index)] = lua_function(L, index);
}

void forget_newborn(lua_State* L, int index) {
  std::erase_if(portal_state(L).newborn, [f = lua_function(L, index)](const auto& n) { return n.second == f; });
}

bool push_example(lua_State* L, int index) {
  const auto& newborn = portal_state(L).newborn;
  const auto example = newborn.find(original_proto(L, index));
  if (example == newborn.end()) return false;
  mirror::push_object(L, mirror::kFunc, example->second);
  return true;
}

void push_prototype(lua_State* L, int index) { mirror::push_object(L, mirror::kProto, original_proto(L, index)); }

void push_child_prototype(lua_State* L, int index, unsigned constant) {
  mirror::push_object(L, mirror::kProto, child_of(to_proto(L, index), constant));
}

bool can_make_closures(const bc::Proto& child) {
  return std::all_of(child.upvalues.begin(), child.upvalues.end(),
                     [](const bc::Upvalue& u) { return !u.local() || u.index() < kMaxCaptured; });
}

void push_child_closure(lua_State* L, int index, const ChildPath& path) {
  const mirror::Proto *child = original_proto(L, index), *parent = child;
  for (const unsigned constant : path) parent = std::exchange(child, child_of(child, constant));
  push_closure(L, child, parent);
}

void make_room(lua_State* L, int index, int n) {
  index = absolute(L, index);
  push_table(L, PortalTable::kRooms);
  const int rooms = lua_gettop(L);
  lua_rawgeti(L, rooms, n);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    push_room_maker(L, n);
    lua_pushvalue(L, -1);
    lua_rawseti(L, rooms, n);
  }
  lua_pushvalue(L, index);
  lua_rawgeti(L, index, n - 1);
  lua_call(L, 2, 0);
  lua_settop(L, rooms - 1);
}

void push_table_maker(lua_State* L, int index, unsigned constant) {
  const mirror::Proto* parent = to_proto(L, index);
  if (constant >= parent->sizekgc) fail_internal("patch: a prototype has no template ", constant);
  const uint64_t object = parent->k[-1 - int64_t(constant)];
  bc::Dump dump;
  dump.flags = 8 | 2;  // FR2, stripped
  bc::Proto& p = dump.protos.emplace_back();
  p.framesize = 2;
  p.kgc = {bc::Template{}};
  p.code = {bc::ins_ad(bc::Op::FUNCF, 2, 0), bc::ins_ad(bc::Op::TDUP, 0, 0), bc::ins_ad(bc::Op::RET1, 0, 2)};
  const std::string bytes = bc::emit(dump);
  if (luaL_loadbuffer(L, bytes.data(), bytes.size(), "=table")) fail_internal("patch: ", lua_tostring(L, -1));
  mirror::proto_of(lua_function(L, -1))->k[-1] = object;
  luaJIT_setmode(L, lua_gettop(L), LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);  // its traces would be too short to be worth it
}

}  // namespace lutra
