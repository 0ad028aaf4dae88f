// Functions that capture knows how to interpret without running them (or by running them on constants).
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "vm/capture/trace/tracker.h"

struct lua_State;

namespace lutra {

class Trace;

struct Builtin {
  const char* name;
  Vars (*run)(Trace& trace, Var* self, const Vars& args);
};

// Finds a model by name: "select", "table.insert"; null if the name has none.
const Builtin* find_builtin_row(const std::string& name);
// Finds the model of a binding by name: no_grad, set_grad_enabled ...
const Builtin* find_binding_builtin(const std::string& name);

}  // namespace lutra
