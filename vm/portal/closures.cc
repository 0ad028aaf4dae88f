// Functions that make closures of a prototype, as the FNEW of its original parent would: two prototypes in, a maker
// out. The closures have variables of their own, which whoever makes them fills or joins.
//
// Invariant: whatever makes a closure, LuaJIT has the same hash for each of its variables. Its JIT takes variables of
// different hashes for different ones, in traces that later closures of the prototype run, too.
#include <algorithm>
#include <bit>
#include <lua.hpp>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"
#include "vm/portal/emit.h"
#include "vm/portal/portal.h"
#include "vm/portal/state.h"

namespace lutra {

namespace {

constexpr uint16_t kLocal = 0x8000;

// A function without parameters that returns a closure of its only child.
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

// Upvalues: a function that maker_proto describes, the prototype whose FNEW it stands for.
int make_closure(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_call(L, 0, 1);
  lua_pushvalue(L, lua_upvalueindex(2));
  auto* closure = static_cast<mirror::Func*>(mirror::object(L, -2));
  hash_variables(closure, to_proto(L, -1));
  adopt_newborn(portal_state(L), closure);
  lua_pop(L, 1);
  return 1;
}

// Pushes function(t, ...) that sets position n - 1 and those behind it as the end of a constructor does.
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

void hash_variables(mirror::Func* closure, const mirror::Proto* parent) {
  const mirror::Proto* p = mirror::proto_of(closure);
  for (unsigned i = 0; i < closure->nupvalues; ++i) {
    if (p->uv[i] & kLocal) closure->upvalues[i]->dhash = mirror::hash_of_variable(parent, p->uv[i]);
  }
}

// It has no frames, and no trace has seen it: its pc may change. The prototype lives as long as the example. Whether
// there are many closures decides what LuaJIT's traces are made for.
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
  const mirror::Proto* parent = to_proto(L, index);
  if (constant >= parent->sizekgc) fail_internal("patch: a prototype has no child ", constant);
  mirror::push_object(L, mirror::kProto, std::bit_cast<const void*>(parent->k[-1 - int64_t(constant)]));
}

bool push_maker(lua_State* L, int index, int parent) {
  const mirror::Proto* child = to_proto(L, index);
  unsigned slots = 1, upvalues = 1;
  for (unsigned i = 0; i < child->sizeuv; ++i) {
    unsigned& count = child->uv[i] & kLocal ? slots : upvalues;
    count = std::max(count, (child->uv[i] & 0xffu) + 1);
  }
  if (slots + 2 > kMaxSlots) return false;
  bc::Dump dump;
  dump.flags = 8 | 2;  // FR2, stripped
  bc::Proto& dummy = dump.protos.emplace_back();
  dummy.framesize = 2;
  dummy.code = {bc::ins_ad(bc::Op::FUNCF, 2, 0), bc::ins_ad(bc::Op::RET0, 0, 1)};
  dump.protos.push_back(maker_proto(slots, upvalues));
  const std::string bytes = bc::emit(dump);
  index = absolute(L, index);
  parent = absolute(L, parent);
  if (luaL_loadbuffer(L, bytes.data(), bytes.size(), "=closure")) fail_internal("patch: ", lua_tostring(L, -1));
  mirror::Proto* p = mirror::proto_of(lua_function(L, -1));
  p->k[-1] = std::bit_cast<uint64_t>(child);
  luaJIT_setmode(L, lua_gettop(L), LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);  // no trace has an FNEW
  lua_pushvalue(L, parent);
  lua_pushcclosure(L, make_closure, 2);
  return true;
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
  luaJIT_setmode(L, lua_gettop(L), LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);  // its traces would be too short to pay
}

}  // namespace lutra
