// Variables of frames that are shared with closures.
#include "vm/capture/segment/shared.h"

#include <algorithm>

namespace lutra {
namespace {

const std::vector<bc::Upvalue>& upvalues(const Closure& closure) { return closure.code->proto().upvalues; }

// Returns whether an FNEW in the frame would now make a closure with the same local variables.
bool holds(const Frame& frame, const Closure& child) {
  for (size_t i = 0; i < child.cells.size(); i++) {
    const bc::Upvalue up = upvalues(child)[i];
    const unsigned s = up.index();
    if (up.local() && !(s < frame.cells.size() && frame.cells[s] == child.cells[i])) return false;
  }
  return true;
}

}  // namespace

bool may_share(const Frame& frame) {
  return std::any_of(frame.cells.begin(), frame.cells.end(), [](const Cell* c) { return c && c->assigned; });
}

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

std::optional<FrameShares> variables_of_frames(const Trace& t, bool returns, const Closure& closure) {
  FrameShares shares;
  for (unsigned i = 0; i < closure.cells.size(); i++) {
    if (!is_shared(t, returns, closure.cells[i])) continue;
    const Closure* child = &closure;
    unsigned at = i;
    while (!upvalues(*child)[at].local() && child->env->kind == VarKind::kClosure) {
      at = upvalues(*child)[at].index();
      child = child->env->closure;
    }
    if (!upvalues(*child)[at].local()) continue;  // an upvalue of a real function
    const auto makes = [&](const Frame* f) { return child->env == f->function && holds(*f, *child); };
    const auto frame = std::find_if(t.frames.begin(), t.frames.end(), makes);
    if (frame == t.frames.end()) return std::nullopt;
    Share& share = shares[*frame][child->constant];
    share.child = child->constant;
    share.upvalues.emplace_back(i, at);
  }
  constexpr size_t kSlots = 200;  // slots of the frame and of the call that shares; results need the rest
  for (const auto& [frame, by_child] : shares) {
    if (frame->code->proto().framesize + 2 * closure.cells.size() > kSlots) return std::nullopt;
  }
  return shares;
}

namespace {

Cell* cell_at(const Frame& frame, unsigned slot) { return slot < frame.cells.size() ? frame.cells[slot] : nullptr; }

Cell* open_cell(const OpenFrame& open, unsigned slot) {
  const auto met = open.met.find(slot);
  return met != open.met.end() ? met->second : cell_at(*open.frame, slot);
}

bool has(const Closure& closure, const Cell* cell) {
  return cell && std::find(closure.cells.begin(), closure.cells.end(), cell) != closure.cells.end();
}

}  // namespace

std::optional<size_t> left_frame_of(const Trace& t, const Closure& closure) {
  for (size_t level = 0; level < t.open_frames.size(); level++) {
    const OpenFrame& open = t.open_frames[level];
    if (open.frame == t.frames[0]) break;
    for (const unsigned s : open.slots) {
      if (has(closure, open_cell(open, s))) return level;
    }
  }
  return std::nullopt;
}

std::vector<std::pair<int, Var*>> left_variables(const Trace& t) {
  std::vector<std::pair<int, Var*>> assigned;
  for (const OpenFrame& open : t.open_frames) {
    if (open.frame == t.frames[0]) break;
    for (size_t i = 0; i < open.slots.size(); i++) {
      const unsigned s = open.slots[i];
      const Cell* cell = open_cell(open, s);
      Var* now = cell ? cell->value : open.frame->slots[s];
      if (now && now != open.before[i]) assigned.emplace_back(open.base + int(s), now);
    }
  }
  return assigned;
}

std::map<unsigned, Cell*> closed_variables(const Trace& t) {
  std::map<unsigned, Cell*> closed;
  for (const OpenFrame& open : t.open_frames) {
    if (open.frame != t.frames[0]) continue;
    for (const auto& [slot, cell] : open.met) {
      if (cell_at(*open.frame, slot) != cell) closed.emplace(slot, cell);
    }
  }
  return closed;
}

bool has_closed_variable(const Trace& t, const Closure& closure) {
  const std::map<unsigned, Cell*> closed = closed_variables(t);
  return std::any_of(closed.begin(), closed.end(), [&](const auto& c) { return has(closure, c.second); });
}

std::vector<Share> shares_with(const FrameShares& shares, const Frame& frame, int result) {
  std::vector<Share> with;
  const auto found = shares.find(&frame);
  if (found == shares.end()) return with;
  for (const auto& [child, share] : found->second) with.push_back(share), with.back().result = result;
  return with;
}

std::vector<Share> shares_inside(const Frame& frame, size_t before, const std::vector<Recipe>& call,
                                 const std::vector<ResumeFrame>& resumes, const std::vector<FrameShares>& made,
                                 std::vector<Recipe>& closures) {
  std::vector<Share> all;
  const auto add = [&](size_t index, size_t parameter) {
    const std::vector<Share> shares = shares_with(made[index], frame, int(parameter));
    all.insert(all.end(), shares.begin(), shares.end());
    return !shares.empty();
  };
  for (size_t i = 0; i < call.size(); i++) {
    if (call[i].kind != Recipe::kResume) continue;
    const Recipe& function = resumes[size_t(call[i].index)].function;
    if (function.kind == Recipe::kClosure) add(size_t(function.index), before + i);
  }
  for (size_t i = 0; i < made.size(); i++) {
    if (add(i, before + call.size() + closures.size())) closures.push_back({Recipe::kClosure, int(i)});
  }
  return all;
}

}  // namespace lutra
