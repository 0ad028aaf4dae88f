// Variables of frames that closures share.
#include "vm/capture/segment/shared.h"

#include <algorithm>

namespace lutra {
namespace {

const std::vector<bc::Upvalue>& upvalues(const Closure& closure) { return closure.code->proto().upvalues; }

// Whether an FNEW in the frame would now make the closure.
bool holds(const Frame& frame, const Closure& child) {
  for (size_t i = 0; i < child.cells.size(); i++) {
    const bc::Upvalue up = upvalues(child)[i];
    const unsigned s = up.index();
    if (up.local() && !(s < frame.cells.size() && frame.cells[s] == child.cells[i])) return false;
  }
  return true;
}

}  // namespace

bool is_shared(const Trace& t, bool returns, const Cell* cell) {
  if (!cell->assigned) return false;
  for (const Frame* f : t.frames) {
    for (unsigned s = 0; s < f->cells.size(); s++) {
      if (f->cells[s] != cell) continue;
      return !returns || std::find(t.open_slots.begin(), t.open_slots.end(), s) != t.open_slots.end();
    }
  }
  return false;
}

std::optional<std::map<unsigned, Share>> variables_of_frame(const Trace& t, bool returns, const Closure& closure) {
  std::map<unsigned, Share> shares;
  const Frame& frame = *t.frames[0];
  for (unsigned i = 0; i < closure.cells.size(); i++) {
    if (!is_shared(t, returns, closure.cells[i])) continue;
    const Closure* child = &closure;
    unsigned at = i;
    while (!upvalues(*child)[at].local() && child->env->kind == VarKind::kClosure) {
      at = upvalues(*child)[at].index();
      child = child->env->closure;
    }
    if (!upvalues(*child)[at].local()) continue;  // a variable of a real function
    if (child->env != frame.function || !holds(frame, *child)) return std::nullopt;
    Share& share = shares[child->constant];
    share.child = child->constant;
    share.upvalues.emplace_back(i, at);
  }
  constexpr size_t kSlots = 200;  // of the frame and the call that shares; results have room beside them
  if (!shares.empty() && frame.code->proto().framesize + 2 * closure.cells.size() > kSlots) return std::nullopt;
  return shares;
}

}  // namespace lutra
