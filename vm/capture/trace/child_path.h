// The origin of a closure that the trace has made: the real function around it, and the path to the child of that.
#pragma once
#include <algorithm>

#include "vm/capture/trace/tracker.h"

namespace lutra {

inline Var* around(Var* closure) {
  while (closure->kind == VarKind::kClosure) closure = closure->closure->env;
  return closure;
}

// Returns the path from the function around it, for push_child_closure.
inline std::vector<unsigned> path_to(const Var* closure) {
  std::vector<unsigned> path;
  for (; closure->kind == VarKind::kClosure; closure = closure->closure->env)
    path.push_back(closure->closure->constant);
  std::reverse(path.begin(), path.end());
  return path;
}

class Trace;
// Pushes another closure of its prototype. Returns false and pushes nothing if that is impossible.
bool push_closure_like(Trace& t, Var* made);

}  // namespace lutra
