// Reads the instructions of LuaJIT's traces. See traces.h.
#include "vm/mirror/traces.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <lua.hpp>

namespace lutra::mirror {

namespace {

struct Instruction {
  uint16_t op1, op2;
  uint8_t type, op;
  uint16_t prev;
};

// The head of a trace.
struct Trace {
  uint64_t nextgc;
  uint8_t marked, gct;
  uint16_t snapshots;
  uint32_t end;  // behind the last instruction
  uint64_t unused, gclist;
  const Instruction* code;  // constants lie below kBias, instructions from there on
  uint32_t first, snapmap;
  uint64_t snap, snapentries;
  const Proto* start;
  uint64_t startpc;
  uint32_t startins, bytes;
  uint64_t mcode;
  uint32_t loop;
  uint16_t children, spadjust, number;
};
static_assert(offsetof(Trace, start) == 64 && offsetof(Trace, number) == 104);

constexpr uint32_t kBias = 0x8000;
constexpr uint8_t kTraceObject = 9, kTypes = 31, kFunction = 8, kTable = 11;

// A store to a variable, the address of one that was open, a constant object.
struct Opcodes {
  uint8_t store, open, constant, known;
};
std::atomic<Opcodes> opcodes{Opcodes()};
std::atomic<bool> guarded_opens{false};

// Of the types of stored values: what can lead to a userdata.
bool leads_on(uint8_t type) {
  constexpr uint8_t kThreadType = 6, kUserdataType = 12;
  type &= kTypes;
  return type == kThreadType || type == kFunction || type == kTable || type == kUserdataType;
}

const void* constant_at(const Trace& t, uint32_t ref) {
  const void* p;
  std::memcpy(&p, &t.code[ref + 1], sizeof p);
  return p;
}

void look_at(UnbarredStores& s, const Trace& t) {
  const Opcodes ops = opcodes.load(std::memory_order_relaxed);
  if (!ops.known) {
    s.unknown = true;
    return;
  }
  for (uint32_t i = kBias + 1; i < t.end; ++i) {
    const Instruction& store = t.code[i];
    if (store.op != ops.store || !leads_on(store.type)) continue;
    if (t.code[store.op1].op == ops.open) s.found = true;
  }
}

struct Probe {
  void (*list)(lua_State*, const Header**, const Header**);
  int util;  // jit.util, a reference into the registry
  Opcodes found;
};

// Calls jit.util.<name>(number, argument): results behind `top`, of which there is at least one.
bool ask(lua_State* L, int top, const Probe& probe, const char* name, int number, int argument) {
  lua_settop(L, top);
  lua_rawgeti(L, LUA_REGISTRYINDEX, probe.util);
  lua_getfield(L, -1, name);
  lua_remove(L, -2);
  if (!lua_isfunction(L, -1)) return false;
  lua_pushinteger(L, number);
  lua_pushinteger(L, argument);
  lua_call(L, 2, LUA_MULTRET);
  return lua_gettop(L) > top;
}

int field(lua_State* L, const char* name) {
  lua_getfield(L, -1, name);
  const int value = int(lua_tointeger(L, -1));
  lua_pop(L, 1);
  return value;
}

bool is_operand(int told, uint16_t raw) { return told == raw || told == int(raw) - int(kBias); }

// Does jit.util say the same of the trace?
bool is_as_told(lua_State* L, int top, const Probe& probe, const Trace& t) {
  if (!t.number || !ask(L, top, probe, "traceinfo", t.number, 0) || !lua_istable(L, -1)) return false;
  if (field(L, "nins") != int(t.end) - int(kBias) - 1 || field(L, "nk") != int(kBias) - int(t.first)) return false;
  if (field(L, "nexit") != t.snapshots) return false;
  for (uint32_t i = kBias + 1; i < t.end; ++i) {
    if (!ask(L, top, probe, "traceir", t.number, int(i - kBias)) || lua_gettop(L) < top + 4) return false;
    const Instruction& ins = t.code[i];
    if (lua_tointeger(L, top + 2) != (ins.type | ins.op << 8)) return false;
    if (!is_operand(int(lua_tointeger(L, top + 3)), ins.op1)) return false;
    if (!is_operand(int(lua_tointeger(L, top + 4)), ins.op2)) return false;
  }
  return true;
}

// The function `set` is a constant, its variable's address an instruction on that, the store of a table one on this.
Opcodes find_opcodes(const Trace& t, const void* set) {
  uint32_t constant = t.first;
  while (constant + 2 < kBias && ((t.code[constant].type & kTypes) != kFunction || constant_at(t, constant) != set)) {
    ++constant;
  }
  if (constant + 2 >= kBias) return {};
  Opcodes found = {};
  for (uint32_t i = kBias + 1; i < t.end; ++i) {
    const Instruction& store = t.code[i];
    if ((store.type & kTypes) != kTable || store.op1 <= kBias || store.op1 >= i) continue;
    const Instruction& address = t.code[store.op1];
    if (address.op1 != constant || address.op2 >> 8) continue;
    if (found.known && (found.store != store.op || found.open != address.op)) return {};
    found = {store.op, address.op, t.code[constant].op, 1};
  }
  return found;
}

// check(run, set), once the loop in `run` has been compiled.
int look_at_probe(lua_State* L) {
  constexpr size_t kObjects = 4096;
  auto& probe = *static_cast<Probe*>(lua_touserdata(L, lua_upvalueindex(1)));
  const auto* run = static_cast<const Func*>(lua_topointer(L, 1));
  const void* set = lua_topointer(L, 2);
  const Header *o, *oldest;
  probe.list(L, &o, &oldest);
  const Trace* found = nullptr;
  for (size_t i = 0; o && o != oldest && i < kObjects && !found; ++i) {
    const auto* t = std::bit_cast<const Trace*>(o);
    if (o->gct == kTraceObject && t->start == proto_of(run)) found = t;
    o = std::bit_cast<const Header*>(o->nextgc);
  }
  if (found && is_as_told(L, 2, probe, *found)) probe.found = find_opcodes(*found, set);
  return 0;
}

constexpr char kProbe[] =
    "local check = ...\n"
    "local kept = {}\n"
    "local function set(v) kept = v end\n"
    "local function run(f, v) for _ = 1, 200 do f(v) end end\n"
    "run(set, {})\n"
    "check(run, set)\n"
    "return kept";

int run_probe(lua_State* L) {
  auto& probe = *static_cast<Probe*>(lua_touserdata(L, 1));
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, "jit.util");
  if (!lua_istable(L, -1)) {
    lua_getfield(L, LUA_GLOBALSINDEX, "require");
    lua_pushliteral(L, "jit.util");
    lua_call(L, 1, 1);
  }
  probe.util = luaL_ref(L, LUA_REGISTRYINDEX);
  if (luaL_loadbuffer(L, kProbe, sizeof kProbe - 1, "=lutra traces")) return lua_error(L);
  lua_pushlightuserdata(L, &probe);
  lua_pushcclosure(L, look_at_probe, 1);
  lua_call(L, 1, 0);
  return 0;
}

}  // namespace

bool look_at_traces(UnbarredStores& s, const Header* newest, const Header* oldest) {
  if (guarded_opens.load(std::memory_order_relaxed)) return true;
  for (const Header* o = newest; o && o != s.newest && o != oldest; o = std::bit_cast<const Header*>(o->nextgc)) {
    if (o->gct == kTraceObject) look_at(s, *std::bit_cast<const Trace*>(o));
  }
  s.newest = newest;
  return !s.found && !s.unknown;
}

bool guards_open_variables(lua_State* L) {
  constexpr char kRolling[] = "LuaJIT 2.1.";
  constexpr long kGuards = 1699198486;  // "Check for upvalue state transition in IR_UREFO"
  const int top = lua_gettop(L);
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, "jit");
  if (lua_istable(L, -1)) lua_getfield(L, -1, "version");
  const char* version = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  const bool rolling = std::strncmp(version, kRolling, sizeof kRolling - 1) == 0;
  if (rolling && std::strtol(version + sizeof kRolling - 1, nullptr, 10) >= kGuards) guarded_opens.store(true);
  lua_settop(L, top);
  return guarded_opens.load();
}

bool learn_traces(lua_State* L, void (*list)(lua_State*, const Header**, const Header**)) {
  if (opcodes.load().known) return true;
  Probe probe = {list, LUA_NOREF, {}};
  const int top = lua_gettop(L);
  const bool ran = lua_checkstack(L, 40) && lua_cpcall(L, run_probe, &probe) == 0;
  luaL_unref(L, LUA_REGISTRYINDEX, probe.util);
  lua_settop(L, top);
  if (ran && probe.found.known) opcodes.store(probe.found);
  return opcodes.load().known;
}

}  // namespace lutra::mirror
