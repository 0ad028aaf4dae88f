// The tracer's data for a Lua state, shared by all traces: decoded functions, models of Lua's library, marks.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "ops/core/tensor.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/code.h"

struct lua_State;

namespace lutra {

struct SizeBounds {
  int64_t min = 0, max = int64_t(1) << 40;
};

// The mark of a dimension by lt.mark_dynamic (1) or lt.mark_static (-1); 0: none.
struct Mark {
  int said = 0;
  SizeBounds bounds{};
};

struct TraceState {
  std::unordered_map<const void*, std::unique_ptr<LuaCode>> codes;  // by identity of the prototype
  std::unordered_map<const void*, const Builtin*> builtins;         // by address of the function
  std::unordered_map<const void*, std::string> c_names;             // "print", "io.write"
  std::unordered_map<const void*, std::string> disabled;  // lt.disable: reasons, by address of the Lua function
  int marks = 0;               // registry reference: [tensor] = {[dim] = mark}; weak keys. 0: none yet
  bool stress_breaks = false;  // lt.config.stress = "break": a break before each instruction that can have one
};

const Builtin* find_builtin(const TraceState& state, const void* function);
std::string name_of_function(const TraceState& state, const void* function);
const std::string* disabled_because(const TraceState& state, const void* function);  // null if it is not disabled
// Returns the decoded Lua function at `index`, null for a C function.
LuaCode* code_of(TraceState& state, lua_State* L, int index);
// Pushes a number like lua_pushnumber, but makes every NaN the one that prints as -nan.
void push_number(lua_State* L, double d);
Mark mark_of(const TraceState& state, lua_State* L, const Tensor& t, int dim);
void set_mark(TraceState& state, lua_State* L, const Tensor& t, int dim, const Mark& mark);
// Fills in builtins and names from the globals and the module table at the top of the stack.
void learn_builtins(lua_State* L, TraceState& state);

}  // namespace lutra
