// Finds the frames above a portal's frame, reads their slots, and returns to them.
#include "vm/capture/dispatch/callers.h"

#include <algorithm>
#include <lua.hpp>
#include <string_view>
#include <utility>

#include "vm/capture/dispatch/compiled.h"
#include "vm/capture/dispatch/state.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

constexpr size_t kMaxCallers = 34, kMaxFrames = 2 * kMaxCallers + 1, kMaxPaths = 8;
constexpr int kMaxVarargs = 32;
constexpr uint64_t kVarargFrame = 3, kProtectedFrame = 6;  // the low bits of these frames' links

uint64_t kind_of(const mirror::TValue* link) { return link->u64 & 7; }

// Returns the link of the call that made the frame. A vararg function has two frames.
const mirror::TValue* link_of_call(lua_State* L, ptrdiff_t frame) {
  const mirror::TValue* own = mirror::thread(L)->stack + frame;
  return kind_of(own) == kVarargFrame ? mirror::previous_frame(own) : own;
}

// Returns whether `above` was called by `below`, directly or through pcall and xpcall, which are added to `between`.
bool is_called_by(const CaptureState& state, lua_State* L, const mirror::LuaFrame& above, const mirror::LuaFrame& below,
                  std::vector<Passage>& between) {
  const mirror::TValue* link = link_of_call(L, above.frame);
  for (; kind_of(link) == kProtectedFrame; between.push_back({})) {
    link = mirror::previous_frame(link);
    const Builtin* by = find_builtin(state.trace, mirror::gc_pointer(link[-1]));
    if (!by || (by != find_builtin_row("pcall") && by != find_builtin_row("xpcall"))) return false;
  }
  return below.link == link - mirror::thread(L)->stack;
}

// Returns whether the frame is one of lt.no_grad and its kin (stdlib/grad_mode.lua), or of lt.autocast
// (stdlib/autocast.lua). Its pcall is the last of `between`. The frame removes the pcall's `true`, and restores the
// mode that it found: `restore` is called with the pcall's results. Its first arguments are the mode to restore; they
// lie on the stack before the pcall.
bool ends_mode(const CaptureState& state, lua_State* L, const mirror::LuaFrame& frame, std::vector<Passage>& between) {
  if (between.empty() || between.back().kind != Passage::kProtected) return false;
  const Builtin* b = find_builtin(state.trace, frame.function);
  const auto is = [b](const char* name) { return b == find_builtin_row(name); };
  const bool grad = b && (is("lutra.no_grad") || is("lutra.inference_mode") || is("lutra.enable_grad"));
  if (!b || !(grad || is("lutra._native.autocast_region"))) return false;
  const mirror::TValue* end = mirror::thread(L)->stack + frame.link - 1;  // the pcall
  const auto text = [](mirror::TValue v) {
    return mirror::tag(v) == mirror::kStr ? static_cast<const mirror::Str*>(mirror::gc_pointer(v))->data() : "";
  };
  const auto is_boolean = [](mirror::TValue v) {
    return mirror::tag(v) == mirror::kTrue || mirror::tag(v) == mirror::kFalse;
  };
  const auto is_true = [](mirror::TValue v) { return mirror::tag(v) == mirror::kTrue; };
  Passage passage{grad ? Passage::kGradMode : Passage::kAutocast};
  if (grad) {
    if (!is_boolean(end[-1])) return false;
    passage.enabled = is_true(end[-1]);
  } else {
    const std::string_view device = text(end[-4]), dtype = text(end[-2]);
    if (!is_boolean(end[-3]) || !is_boolean(end[-1]) || (device != "cpu" && device != "cuda")) return false;
    if (dtype != "bfloat16" && dtype != "float16") return false;
    passage.cuda = device == "cuda";
    passage.enabled = is_true(end[-3]), passage.cache = is_true(end[-1]);
    passage.dtype = dtype_from_name(dtype);
  }
  between.back() = passage;
  return true;
}

CallSite find_call(const CompiledProto& compiled, const Patched& patched, bc::Pc return_pc) {
  const LuaCode& code = *compiled.code;
  const bc::Proto& proto = code.proto();
  CallSite site;
  for (const Stand& s : patched.stands) {
    if (s.return_pc == return_pc) site.call = s.pc;
  }
  const auto at = std::lower_bound(patched.moved.begin() + 1, patched.moved.end(), return_pc - 1);
  if (site.call == 0 && at != patched.moved.end() && *at + 1 == return_pc) {
    site.call = bc::Pc(at - patched.moved.begin());
  }
  site.enters = site.call != 0 && site.call + 1 == compiled.first_call.return_pc;
  if (site.enters) site.call = compiled.first_call.pc;
  if (site.call == 0 || site.call + 1 >= proto.size()) return {};
  const bc::Op op = bc::op(proto.code[site.call]);
  if (op != bc::Op::CALL && op != bc::Op::CALLM) return {};
  const bc::Slots results = bc::effects(proto, site.call).writes;
  for (const unsigned slot : code.liveness().passable(site.call + 1)) {
    if (!results[slot]) site.args.push_back(slot);
  }
  return site;
}

// Returns the point behind a call and behind the instruction that takes its list of results; 0 if there is none.
bc::Pc point_at(const CompiledProto& compiled, bc::Pc pc) {
  const bc::Proto& proto = compiled.code->proto();
  for (int steps = 0; steps < 8; steps++) {
    const auto point = compiled.points.find(pc);
    if (point != compiled.points.end()) return point->second.entered_loop.any() || point->second.dead ? 0 : pc;
    if (bc::op(proto.code[pc]) != bc::Op::JMP && bc::insertable(proto, pc)) return 0;
    const std::vector<bc::Pc> next = bc::successors(proto, pc);
    if (next.size() != 1) return 0;
    pc = next[0];
  }
  return 0;
}

// Finds the varargs, which lie between the two frames of the call. Returns false if there are too many.
bool find_varargs(lua_State* L, const bc::Proto& proto, Caller& c) {
  const mirror::TValue *own = mirror::thread(L)->stack + c.frame, *lower = link_of_call(L, c.frame);
  if (own == lower) return false;
  const ptrdiff_t count = own - lower - 2 - ptrdiff_t(proto.num_params);
  c.vararg = lower + 1 + proto.num_params - mirror::thread(L)->stack;
  c.varargs = int(std::max<ptrdiff_t>(count, 0));
  return count <= kMaxVarargs;
}

bool find_place(CaptureState& state, lua_State* L, const mirror::LuaFrame& frame, Caller& c) {
  const mirror::Proto* runs = mirror::proto_of(frame.function);
  const uint64_t version = version_of(L, runs);
  const auto known = version ? state.by_version.find(version) : state.by_version.end();
  c.compiled = known == state.by_version.end() ? nullptr : known->second.lock();
  if (!c.compiled || c.compiled->failed) return false;
  const auto patched = c.compiled->versions.find(version);
  const bc::Proto& proto = c.compiled->code->proto();
  if (patched == c.compiled->versions.end()) return false;
  const bc::Pc return_pc = bc::Pc(frame.called + 1 - runs->bytecode());
  const auto [site, added] = c.compiled->call_sites.try_emplace({version, return_pc});
  if (added) {
    site->second = std::make_shared<CallSite>(find_call(*c.compiled, *patched->second, return_pc));
  }
  c.site = site->second;
  if (c.site->call == 0) return false;
  c.point = point_at(*c.compiled, c.site->call + 1);
  c.frame = frame.frame;
  return !proto.vararg() || find_varargs(L, proto, c);
}

// Returns whether the open upvalues down to the frame are all in slots that are `known` to be open. Advances `open`
// past them.
bool pass_known(lua_State* L, const mirror::Upval*& open, ptrdiff_t frame, const bc::Slots& known) {
  const mirror::TValue* first = mirror::thread(L)->stack + frame + 1;
  for (; open && open->v >= first; open = mirror::next_open(open)) {
    const auto slot = size_t(open->v - first);
    if (slot >= known.size() || !known[slot]) return false;
  }
  return true;
}

bool is_outermost(const CompiledProto& compiled) { return compiled.key.prototype || compiled.is_outermost; }

}  // namespace

bool may_cross(lua_State* L, const CompiledProto& compiled, const ProtoPoint& point, const PortalPlace& portal) {
  return !is_outermost(compiled) && !point.stays && !portal.packs && !point.entered_loop.any() &&
         mirror::available(L) && lua_gettop(L) - int(point.args.size()) <= kMaxVarargs;
}

std::vector<Caller> find_callers(CaptureState& state, lua_State* L, const CompiledProto& compiled,
                                 const ProtoPoint& point) {
  mirror::LuaFrame frames[kMaxFrames];
  std::vector<Passage> between;
  if (mirror::lua_frames(L, frames, 2) < 2 || !is_called_by(state, L, frames[0], frames[1], between)) return {};
  between.clear();
  const size_t n = mirror::lua_frames(L, frames, 2 * std::min(point.most_callers, kMaxCallers) + 1);
  const mirror::Upval* open = mirror::open_variables(L);
  if (!pass_known(L, open, frames[0].frame, compiled.code->liveness().open[point.pc])) return {};
  std::vector<Caller> callers;
  for (size_t i = 1; i < n && callers.size() < point.most_callers; i++) {
    if (!is_called_by(state, L, frames[i - 1], frames[i], between)) break;
    if (ends_mode(state, L, frames[i], between)) {
      if (!pass_known(L, open, frames[i].frame, {})) break;
      continue;
    }
    Caller c;
    if (!find_place(state, L, frames[i], c)) break;
    // Code that the user compiled is not compiled again for each caller that lt.auto found.
    if (c.compiled->automatic && !compiled.automatic) break;
    if (!pass_known(L, open, c.frame, c.compiled->code->liveness().open[c.site->call + 1])) break;
    if (c.compiled->options < compiled.options || compiled.options < c.compiled->options) break;
    c.called = frames[i].link, c.base = int(c.frame - frames[0].frame);
    c.between = std::exchange(between, {});
    callers.push_back(std::move(c));
    if (is_outermost(*callers.back().compiled)) break;
  }
  while (!callers.empty() && callers.back().point == 0) callers.pop_back();
  return callers;
}

bool push_callers(lua_State* L, std::vector<Caller>& callers) {
  for (Caller& c : callers) {
    if (!lua_checkstack(L, int(c.site->args.size()) + c.varargs + 8)) return false;
    c.first = lua_gettop(L);
    const auto push = [&](ptrdiff_t at) {
      lua_pushnil(L);
      mirror::top(L)[-1] = mirror::thread(L)->stack[at];
    };
    push(c.frame - 1);
    for (const unsigned slot : c.site->args) push(c.frame + 1 + slot);
    for (int i = 0; i < c.varargs; i++) push(c.vararg + i);
  }
  return true;
}

std::vector<CallerPlace> places_of(const std::vector<Caller>& callers) {
  std::vector<CallerPlace> places;
  for (const Caller& c : callers)
    places.push_back({*c.compiled->code, c.site->call, c.site->args, c.first, c.point != 0, c.varargs, c.between,
                      c.base, c.site->enters});
  return places;
}

std::shared_ptr<ProtoPoint> point_under(ProtoPoint& point, const std::vector<Caller>& callers) {
  std::vector<uint64_t> key{uint64_t(callers[0].first)};  // tells the number of the frame's own varargs
  for (const Caller& c : callers) {
    key.insert(key.end(), {c.compiled->serial, c.site->call, uint64_t(c.varargs), uint64_t(-c.base), c.between.size()});
    for (const Passage& passage : c.between) key.push_back(passage.packed());
  }
  const auto known = point.with_callers.find(key);
  if (known != point.with_callers.end()) return known->second;
  if (point.with_callers.size() >= kMaxPaths) return nullptr;
  std::shared_ptr<ProtoPoint>& under = point.with_callers[key];
  under = std::make_shared<ProtoPoint>();
  under->pc = point.pc, under->args = point.args, under->decisions = point.decisions;
  for (const Caller& c : callers) under->firsts.push_back(c.first);
  return under;
}

bool find_landing(CaptureState& state, lua_State* L, const Caller& c, const Entry& entry, Landing* landing) {
  refresh(state, L, c.compiled);
  const auto at = c.compiled->points.find(entry.landing);
  if (at == c.compiled->points.end()) return false;
  const ProtoPoint& point = at->second;
  if (point.dead || point.id == 0 || point.packs || size_t(entry.exit) >= point.exits.size()) return false;
  const std::vector<Site>& sites = c.compiled->patched->sites;
  const auto site = std::find_if(sites.begin(), sites.end(), [&](const Site& s) { return s.id == point.id; });
  if (site == sites.end()) return false;
  lua_pushnil(L);
  mirror::top(L)[-1] = mirror::thread(L)->stack[c.frame - 1];
  push_function_of_frame(L, -1);
  lua_remove(L, -2);
  if (version_of(L, mirror::proto_of(lua_function(L, lua_gettop(L)))) != c.compiled->version) {
    make_clone(L, -1, *c.compiled->patched);
    remember_compiled(L, -1, *c.compiled);
    lua_remove(L, -2);
  }
  landing->function = lua_gettop(L);
  const mirror::Proto* runs = mirror::proto_of(lua_function(L, landing->function));
  landing->pc = runs->bytecode() + site->return_pc;
  return lua_checkstack(L, runs->framesize + 40);
}

void land(lua_State* L, const Caller& c, const Landing& landing, int n) {
  const mirror::Func* f = lua_function(L, landing.function);
  lua_checkstack(L, mirror::proto_of(f)->framesize + 40);
  mirror::close_variables(L, c.called);
  mirror::return_to(L, c.frame, f, landing.pc, n);
}

}  // namespace lutra
