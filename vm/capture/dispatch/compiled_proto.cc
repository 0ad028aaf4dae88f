// In: functions. Out: compiled prototypes with their points, their patched prototypes, and the functions that follow
// their bytecode.
#include "vm/capture/dispatch/compiled_proto.h"

#include <algorithm>
#include <lua.hpp>
#include <optional>

#include "vm/capture/dispatch/capture_point.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/segment/capture.h"
#include "vm/host/runtime.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/editor.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

bool returns(bc::Op op) { return op == bc::Op::RET || op == bc::Op::RET0 || op == bc::Op::RET1 || op == bc::Op::RETM; }

std::shared_ptr<CompiledProto> make_proto(CaptureState& state, lua_State* L, std::unique_ptr<LuaCode> code,
                                          const CaptureOptions& options) {
  if (state.protos.size() + state.resume_protos.size() >= state.collect_at) {
    collect_protos(state, L, options.backend_function);
    state.collect_at = std::max<size_t>(64, 2 * (state.protos.size() + state.resume_protos.size()));
  }
  auto compiled = std::make_shared<CompiledProto>();
  compiled->serial = state.next_proto++;
  compiled->options = options;
  compiled->name = str(code->file, ":", code->proto().first_line);
  compiled->code = std::move(code);
  push_weak_table(L, "k");
  compiled->functions = luaL_ref(L, LUA_REGISTRYINDEX);
  state.by_serial[compiled->serial] = compiled;
  return compiled;
}

}  // namespace

namespace {

// Reports a graph break if the frame's size is near LuaJIT's limit: it has no room for portal calls. Then it keeps its
// code.
void check_room(lua_State* L, CompiledProto& compiled) {
  const LuaCode& code = *compiled.code;
  if (has_room(code.proto())) return;
  const BreakReason why(Break::many_values, {}, {code.file, int(code.proto().first_line)});
  if (compiled.options.fullgraph) fail("compile: fullgraph=true, but the graph breaks: ", describe(why));
  count_break(L, compiled, why);
}

}  // namespace

std::shared_ptr<CompiledProto> find_proto(CaptureState& state, lua_State* L, int index, const CaptureOptions& options,
                                          uint64_t serial) {
  const ProtoKey key{prototype_identity(L, index), options, serial};
  auto it = state.protos.find(key);
  if (it != state.protos.end()) return it->second;
  auto code = decode_function(L, index);
  if (!code || code->is_builtin()) return nullptr;
  auto compiled = make_proto(state, L, std::move(code), options);
  compiled->key = key;
  check_room(L, *compiled);
  add_point(*compiled, 1);
  compiled->stub_id = alloc_portal_id(L);
  state.portals.add(compiled->stub_id, {{1, 0, true}, compiled});
  state.protos[key] = compiled;
  return compiled;
}

std::shared_ptr<CompiledProto> resume_proto(CaptureState& state, lua_State* L, CompiledProto& parent,
                                            const ResumeRequest& request, const KeptLoops& kept) {
  const LuaCode& code = *request.code;
  const ResumeSpec& spec = request.spec;
  std::string key = str(request.prototype, " ", int(spec.mode), " ", spec.num_args, " ", request.last, request.first);
  for (const Share& s : *spec.shares) {
    key += str("; ", s.result, " ", s.child);
    for (const auto& [own, childs] : s.upvalues) key += str(" ", own, "=", childs);
  }
  CompiledProto& root = parent.root ? *parent.root : parent;
  const auto known = root.resumes.find({spec.pc, key});
  if (known != root.resumes.end()) return known->second;
  ResumeProto resume = build_resume(*code.dump, spec);
  auto dump = std::make_shared<bc::Dump>(resume.patched.dump);
  const auto top = static_cast<uint32_t>(dump->protos.size() - 1);
  CaptureOptions options = parent.options;
  options.dynamic_dims.clear();  // they are for the arguments of the function that the user compiled
  std::shared_ptr<CompiledProto> compiled = make_proto(state, L, make_code(std::move(dump), top), options);
  compiled->root = &root;
  compiled->is_outermost = request.first;
  compiled->automatic = parent.automatic, compiled->callee = parent.callee;
  compiled->for_library = parent.for_library;
  compiled->recompiles = parent.recompiles;
  compiled->log = parent.log;
  compiled->breaks = parent.breaks;
  check_room(L, *compiled);
  const auto moved = [&](bc::Pc old) {
    const auto at = std::find(resume.old_pc.begin() + 1, resume.old_pc.end(), old);
    return at == resume.old_pc.end() ? bc::Pc(0) : bc::Pc(at - resume.old_pc.begin());
  };
  compiled->helpers = resume.patched.sites;
  if (!resume.patched.stands.empty()) {
    const Stand& stand = resume.patched.stands[0];
    compiled->first_call = {stand.return_pc, moved(stand.pc)};
  }
  KeptLoops own;
  for (const auto& [proto, head] : kept) {
    if (proto == &code.proto()) own.insert({&compiled->code->proto(), moved(head)});
  }
  for (bc::Pc next : bc::successors(code.proto(), spec.pc)) add_point(*compiled, moved(next), own);
  state.resume_protos.push_back(compiled);
  root.resumes[{spec.pc, key}] = compiled;
  return compiled;
}

namespace {

// Records the counters of the loop that the comparison at pc decides about, if the point is in it.
void note_counters(ProtoPoint& point, const bc::Proto& proto, bc::Pc pc) {
  const bc::Counters counters = bc::counters(proto, pc);
  if (point.pc < counters.first || point.pc > counters.last) return;
  for (const unsigned slot : point.args) {
    const std::string name = counters.slots[slot] ? bc::expression_text(proto, point.pc, slot) : "";
    if (name.empty()) continue;
    point.changing_values[name].insert("another number");
    point.loop_variables[name] = true;
  }
}

}  // namespace

void note_variables(ProtoPoint& point, const LuaCode& code, const KeptLoops* kept) {
  for (const bc::Loop& l : code.loops()) {
    if (l.kind != bc::Loop::Kind::kFor || !l.contains(point.pc)) continue;
    if (kept && !kept->count({&code.proto(), l.head})) continue;
    const std::string variable = bc::expression_text(code.proto(), point.pc, l.base + 3);
    point.changing_values[variable].insert("another number");
    point.loop_variables[variable] = true;
  }
  if (!kept) return;
  for (const auto& [proto, pc] : *kept) {
    if (proto == &code.proto() && bc::has(proto->code[pc], bc::kCompare)) note_counters(point, *proto, pc);
  }
}

void add_point(CompiledProto& compiled, bc::Pc pc, const KeptLoops& kept, EnteredLoop entered_loop) {
  const bc::Proto& proto = compiled.code->proto();
  if (!has_room(proto)) return;
  for (int tries = 0; tries < 8; tries++) {
    if (pc == 0 || pc >= proto.size() || compiled.points.count(pc) || !entered_loop.contains(pc)) return;
    const bc::Ins i = proto.code[pc];
    if (returns(bc::op(i))) return;
    if (bc::insertable(proto, pc)) break;
    const std::vector<bc::Pc> next = bc::successors(proto, pc);
    if (next.empty()) return;
    for (size_t n = 1; n < next.size(); n++) add_point(compiled, next[n], kept, entered_loop);
    pc = next[0];
  }
  if (!bc::insertable(proto, pc) || !compiled.code->liveness().reached[pc]) return;
  ProtoPoint& point = compiled.points[pc];
  point.pc = pc;
  point.args = compiled.code->liveness().passable(pc);
  point.varargs = proto.vararg();
  point.decisions.kept_loops = kept;
  point.entered_loop = entered_loop;
  note_variables(point, *compiled.code, &kept);
  compiled.changed = true;
}

void add_points_after(CompiledProto& compiled, bc::Pc pc, const KeptLoops& kept, EnteredLoop entered_loop) {
  for (bc::Pc next : bc::successors(compiled.code->proto(), pc)) add_point(compiled, next, kept, entered_loop);
}

namespace {

// Returns whether a frame may switch to newer bytecode at the point. It may if the point has no exits yet: then its
// first capture there is run at once, not only by the next call. A frame that has switched (gone_over) may do so again,
// since it cannot follow (follow_frame).
bool can_switch(lua_State* L, const CompiledProto& compiled, const ProtoPoint& point, bool gone_over) {
  if ((!point.exits.empty() && !gone_over) || point.entered_loop.any() || !mirror::available(L)) return false;
  if (point.pc == 1 && compiled.key.prototype) return false;  // the next call enters the newer bytecode anyway
  const LuaCode& code = *compiled.code;
  for (const bc::Loop& l : code.loops()) {
    // The control value of pairs is not an ordinary value there.
    if (l.kind == bc::Loop::Kind::kIterN && point.pc >= l.head && point.pc <= l.end) return false;
  }
  if (!why_not_resumable(code.proto(), point.pc, ResumeMode::kAt).empty()) return false;
  const size_t slots = resume_slots(code.proto(), point.pc, ResumeMode::kAt).size();
  return slots < 60 && code.proto().framesize + slots < 240;
}

Exit switch_exit(const CompiledProto& compiled, const ProtoPoint& point) {
  Exit e;
  e.code = int(point.exits.size()) + 1;
  e.resume.kind = Resume::Kind::kTailCall;
  e.resume.varargs = point.varargs;
  const size_t n = resume_slots(compiled.code->proto(), point.pc, ResumeMode::kAt).size() + 1;
  for (size_t i = 0; i < n; i++) e.resume.args.push_back(int(i));
  return e;
}

// Builds a patched prototype with the points' portals. Instruction pc stands at moved[pc] in `dump`; an empty `moved`
// means that `dump` is the compiled prototype's own.
Patched build(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, const bc::Dump& dump,
              const std::vector<bc::Pc>& moved) {
  Patch patch;
  patch.newborn_children = compiled->own_children;
  if (moved.empty()) patch.helpers = compiled->helpers;  // they run when the prototype is entered
  std::optional<bc::Liveness> live;
  if (!moved.empty()) live = bc::liveness(dump.top());
  const auto at = [&](bc::Pc pc) { return moved.empty() ? pc : moved[pc]; };
  for (auto& [pc, point] : compiled->points) {
    if (!live) point.id = 0;
    if (point.dead) continue;
    if (live) {
      const std::vector<unsigned> have = live->passable(at(pc));
      if (!live->reached[at(pc)] || !bc::insertable(dump.top(), at(pc)) ||
          !std::includes(have.begin(), have.end(), point.args.begin(), point.args.end())) {
        continue;
      }
    }
    const int id = alloc_portal_id(L);
    compiled->ids.push_back(id);
    const bool switches = can_switch(L, *compiled, point, !moved.empty());
    Point p;
    p.pc = at(pc);
    p.id = id;
    p.args = point.args;
    p.varargs = point.varargs;
    p.exits = point.exits;
    for (size_t e = 0; e < p.exits.size(); e++) {
      p.exits[e].code = int(e) + 1;
      if (p.exits[e].resume.pc) p.exits[e].resume.pc = at(p.exits[e].resume.pc);
    }
    if (switches) p.exits.push_back(switch_exit(*compiled, point));
    const bool packs = packs_results(dump.top(), p);
    if (!live) point.id = id, point.packs = packs;
    state.portals.add(id, {{pc, point.exits.size(), false, packs, switches, compiled->version}, compiled});
    patch.points.push_back(std::move(p));
  }
  Patched patched = apply_patch(dump, patch);
  patched.resumed = !moved.empty() || !compiled->key.prototype;
  return patched;
}

// Builds the newest bytecode. If it is too long, it is the function's original code without portals.
std::shared_ptr<Patched> newest(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled) {
  try {
    return std::make_shared<Patched>(build(state, L, compiled, *compiled->code->dump, {}));
  } catch (const JumpTooFar&) {
    keep_original(L, *compiled, kTooLong);
    for (auto& [pc, point] : compiled->points) point.dead = true;
    return std::make_shared<Patched>(build(state, L, compiled, *compiled->code->dump, {}));
  }
}

void note_iterators(CompiledProto& compiled) {
  const std::vector<bc::Loop>& loops = compiled.code->loops();
  if (std::none_of(loops.begin(), loops.end(), [](const bc::Loop& l) { return l.iter != 0; })) return;
  std::vector<bc::Pc>& places = compiled.iterators[compiled.version];
  for (const bc::Loop& l : loops) places.push_back(l.iter ? compiled.patched->moved[l.iter] : 0);
}

}  // namespace

std::shared_ptr<Patched> body_at(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                                 bc::Pc pc) {
  auto& body = compiled->bodies[pc];
  if (body) return body;
  const ResumeProto resume = build_resume(*compiled->code->dump, {pc, ResumeMode::kAt, 0});
  body = std::make_shared<Patched>(build(state, L, compiled, resume.patched.dump, resume.patched.moved));
  if (log_wanted("bytecode"))
    log_text("bytecode", str(compiled->name, " from ", pc, "\n", bc::print(body->dump.top())));
  return body;
}

void refresh(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled) {
  if (!compiled->changed && compiled->patched) return;
  const double start = thread_cpu_ms();
  compiled->bodies.clear();
  compiled->version = state.next_version++;
  compiled->patched = newest(state, L, compiled);
  compiled->patched->version = compiled->version;
  compiled->versions[compiled->version] = compiled->patched;
  state.by_version[compiled->version] = compiled;
  note_iterators(*compiled);
  compiled->changed = false;
  if (log_wanted("bytecode")) {
    log_text("bytecode", compiled->name + "\n" + bc::print(compiled->patched->dump.top()));
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, compiled->functions);
  const int functions = lua_gettop(L);
  lua_pushnil(L);
  while (lua_next(L, functions)) {
    lua_pop(L, 1);
    make_clone(L, lua_gettop(L), *compiled->patched);
    redirect(L, lua_gettop(L) - 1, lua_gettop(L));
    lua_pop(L, 1);
  }
  lua_settop(L, functions - 1);
  compiled->patch_ms = thread_cpu_ms() - start;
}

void push_clone(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int index,
                bool stub) {
  if (stub && has_room_for_stub(compiled->code->proto())) {
    make_clone(L, index, make_stub(*compiled->code->dump, compiled->stub_id));
    return;
  }
  refresh(state, L, compiled);
  make_clone(L, index, *compiled->patched);
}

void follow(lua_State* L, CompiledProto& compiled, int index) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, compiled.functions);
  lua_pushvalue(L, index);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void unfollow(lua_State* L, CompiledProto& compiled, int index) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, compiled.functions);
  lua_pushvalue(L, index);
  lua_pushnil(L);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

}  // namespace lutra
