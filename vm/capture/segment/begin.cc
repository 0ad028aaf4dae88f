// Makes the frames in which a segment's trace begins and to which it returns, from the values of a call.
#include "vm/capture/segment/begin.h"

#include <algorithm>
#include <bit>
#include <lua.hpp>

#include "ops/defs/call.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/mirror/mirror.h"

namespace lutra {

std::vector<std::string> argument_names(const bc::Proto& proto, bc::Pc pc, const std::vector<unsigned>& args) {
  std::vector<std::string> names;
  for (const unsigned slot : args) {
    std::string name = bc::expression_text(proto, pc, slot);
    if (name.empty()) name = str("a value of line ", proto.line(pc));
    if (std::find(names.begin(), names.end(), name) != names.end()) name += str(" (slot ", slot, ")");
    names.push_back(std::move(name));
  }
  return names;
}

namespace {

// Records the child prototypes of a function: closures that its frame made before the segment are new ones in the next
// call.
void note_children(Trace& t, int function) {
  const mirror::Proto* p = mirror::proto_of(static_cast<const mirror::Func*>(mirror::object(t.L, function)));
  for (uint32_t i = 0; i < p->sizekgc; i++) {
    const auto* object = std::bit_cast<const mirror::Header*>(p->k[-1 - int64_t(i)]);
    if (object->gct == uint8_t(~mirror::kProto)) t.children.insert(object);
  }
}

void open_frame(Trace& t, const bc::Slots& open, int base) {
  OpenFrame& frame = t.open_frames.emplace_back();
  frame.base = base;
  for (unsigned s = 0; s < open.size(); s++) {
    if (open[s]) frame.slots.push_back(s);
  }
}

// Called when the trace reaches the frame. Functions may have assigned its variables before.
void begin_open(Trace& t, Frame& f, size_t level) {
  OpenFrame& open = t.open_frames[level];
  open.frame = &f;
  for (const unsigned s : open.slots) open.before.push_back(f.slots[s]);
  for (const auto& [slot, cell] : open.met) {
    if (f.cells.size() <= slot) f.cells.resize(slot + 1, nullptr);
    f.cells[slot] = cell;
    cell->assigned = true;
  }
  t.open_slots = open.slots;
}

}  // namespace

Frame& first_frame(Trace& t, const SegmentPlace& place, const CallValues& call) {
  const auto [nslots, nargs, self] = call;
  const bc::Proto& proto = place.code.proto();
  t.frame_store.emplace_back();
  Frame& f = t.frame_store.back();
  f.code = &place.code;
  f.pc = f.began = place.pc;
  f.slots.assign(proto.framesize + 1, nullptr);
  t.frames.push_back(&f);
  t.program.start = {f.code->file, f.line()};
  lua_pushvalue(t.L, self);
  f.function = t.wrap(t.source(SourceKind::kSelf, nullptr, nullptr, 0, "the function"));
  f.function->kind = VarKind::kFunction;
  f.function->identity_guarded = true;
  if (place.varargs) t.check(GuardOp::kArgCountCheck, nullptr, nargs - nslots, str(nargs - nslots, " varargs"));
  const std::vector<std::string> names = argument_names(proto, place.pc, place.args);
  for (int i = 0; i < int(place.args.size()); i++) {
    lua_pushvalue(t.L, i + 1);
    f.slots[place.args[size_t(i)]] = t.wrap(t.source(SourceKind::kArg, nullptr, nullptr, i, names[size_t(i)]));
  }
  for (int n = 0; n < place.fixed_varargs; n++) {
    const int at = int(place.args.size()) + n;
    lua_pushvalue(t.L, at + 1);
    f.varargs.push_back(t.wrap(t.source(SourceKind::kArg, nullptr, nullptr, at, vararg_name(n))));
  }
  for (int i = nslots; i < nargs; i++) {
    lua_pushvalue(t.L, i + 1);
    const int n = i - nslots;
    f.varargs.push_back(t.wrap(t.source(SourceKind::kVararg, nullptr, nullptr, n, vararg_name(n))));
  }
  if (place.pc != 1 && !t.options.automatic && mirror::available(t.L)) {
    note_children(t, self);
    for (const CallerPlace& caller : place.callers) note_children(t, caller.first + 1);
  }
  open_frame(t, place.code.liveness().open[place.pc], 0);
  for (const CallerPlace& c : place.callers) open_frame(t, c.code.liveness().open[c.call + 1], c.base);
  begin_open(t, f, 0);
  return f;
}

namespace {

// Restores the autocast mode of one device. The other device's part stays, and is guarded.
void end_autocast(const Passage& passage) {
  note_autocast_read();
  AutocastMode mode = autocast_mode();
  mode.enabled[passage.cuda] = passage.enabled;
  mode.dtype[passage.cuda] = passage.dtype;
  mode.cache = passage.cache;
  set_autocast_mode(mode);
}

}  // namespace

Frame& enter_caller(Trace& t, const CallerPlace& caller, size_t level, Vars results) {
  const bc::Proto& proto = caller.code.proto();
  t.frame_store.emplace_back();
  Frame& f = t.frame_store.back();
  f.code = &caller.code;
  f.pc = f.began = caller.call;
  f.step = t.steps;
  f.returned_to = true, f.came_round = !caller.enters;
  f.slots.assign(proto.framesize + 1, nullptr);
  const std::string calls = str(" (", level, level == 1 ? " call up)" : " calls up)");
  lua_pushvalue(t.L, caller.first + 1);
  const Source* function = t.source(SourceKind::kArg, nullptr, nullptr, caller.first, "the function" + calls);
  t.remade.insert(function);
  f.function = t.wrap(function);
  f.function->kind = VarKind::kFunction;
  f.function->identity_guarded = true;
  const std::vector<std::string> names = argument_names(proto, caller.call + 1, caller.args);
  for (size_t i = 0; i < caller.args.size(); i++) {
    const int at = caller.first + 1 + int(i);
    lua_pushvalue(t.L, at + 1);
    f.slots[caller.args[i]] = t.wrap(t.source(SourceKind::kArg, nullptr, nullptr, at, names[i] + calls));
  }
  for (int n = 0; n < caller.varargs; n++) {
    const int at = caller.first + 1 + int(caller.args.size()) + n;
    lua_pushvalue(t.L, at + 1);
    f.varargs.push_back(t.wrap(t.source(SourceKind::kArg, nullptr, nullptr, at, vararg_name(n) + calls)));
  }
  begin_open(t, f, level);
  t.last_close = 0;
  t.frames.assign(1, &f);
  for (const Passage& passage : caller.between) {
    switch (passage.kind) {
      case Passage::kProtected: results.insert(results.begin(), t.boolean(true)); break;
      case Passage::kGradMode:
        t.grad_mode_read = true;
        set_grad_enabled(passage.enabled);
        break;
      case Passage::kAutocast: end_autocast(passage); break;
    }
  }
  place_results(t, f, results);
  f.pc = caller.call + 1;
  return f;
}

}  // namespace lutra
