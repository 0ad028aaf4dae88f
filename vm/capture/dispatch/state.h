// What capture keeps for a Runtime: decoded functions, builtins, compiled functions with their points and entries.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "vm/capture/dispatch/unit.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/code.h"

struct lua_State;

namespace lutra {

// How often lt.auto has found frames of a prototype, and when it looks at one closer.
struct Heat {
  int64_t count = 0, next = 0;
  int times = 0;
};

struct CaptureState {
  std::unordered_map<const void*, std::unique_ptr<LuaCode>> codes;  // by identity of the prototype
  std::unordered_map<const void*, const Builtin*> builtins;         // by address of the function
  std::unordered_map<const void*, std::string> c_names;             // "print", "io.write"
  std::unordered_set<const void*> disabled;                         // lt.disable: Lua functions, by address
  std::map<UnitKey, std::shared_ptr<Unit>> units;
  std::unordered_map<int, Portal> portals;  // by portal id
  std::unordered_map<uint64_t, std::weak_ptr<Unit>> by_serial;
  std::vector<std::shared_ptr<Unit>> resume_units;
  int marks = 0;  // registry reference: [tensor] = {[dim] = dynamic?}; weak keys. 0: none yet
  std::unordered_map<const void*, int> backends;  // registry references of users' backends, by address
  uint64_t next_unit = 1;
  size_t collect_at = 64;  // units
  int auto_threshold = 0;
  unsigned walks = 0;                          // of lt.auto
  std::unordered_map<const void*, Heat> heat;  // by address of the prototype that a frame runs
  bool stress_hook = false, stress_breaks = false;
};

CaptureState& capture_state(lua_State* L);
const Builtin* find_builtin(const CaptureState& state, const void* function);
std::string name_of_function(const CaptureState& state, const void* function);
bool is_disabled(const CaptureState& state, const void* function);
// The decoded Lua function at `index`, null for a C function.
LuaCode* code_of(CaptureState& state, lua_State* L, int index);
void push_weak_table(lua_State* L, const char* mode);
// As lua_pushnumber, which makes every NaN the one that prints as -nan.
void push_number(lua_State* L, double d);
// What mark_dynamic (1) or mark_static (-1) said of dim; 0: nothing.
int mark_of(const CaptureState& state, lua_State* L, const Tensor& t, int dim);
// Remembers that the function at `index` runs the code of unit (lt.guards, lt.unpatch find it).
void remember_compiled(lua_State* L, int index, const Unit& unit);
// Fills in builtins and names from the globals and the module table at the top of the stack.
void learn_builtins(lua_State* L, CaptureState& state);

}  // namespace lutra
