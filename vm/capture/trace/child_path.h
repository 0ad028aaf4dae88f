// Where a closure that the trace has made comes from: the real function around it, and which child of that it is.
#pragma once
#include <algorithm>

#include "vm/capture/trace/tracker.h"

namespace lutra {

inline Var* around(Var* closure) {
  while (closure->kind == VarKind::kClosure) closure = closure->closure->env;
  return closure;
}

// For push_child_closure, from the function around it.
inline std::vector<unsigned> path_to(const Var* closure) {
  std::vector<unsigned> path;
  for (; closure->kind == VarKind::kClosure; closure = closure->closure->env)
    path.push_back(closure->closure->constant);
  std::reverse(path.begin(), path.end());
  return path;
}

class Trace;
// Pushes another closure of its prototype; false, and nothing pushed, where there can be none.
bool push_closure_like(Trace& t, Var* made);

}  // namespace lutra
