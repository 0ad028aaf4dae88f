// Units: functions in, patched prototypes out; which points they have and which functions follow their bytecode.
#include "vm/capture/dispatch/unit.h"

#include <algorithm>
#include <lua.hpp>
#include <optional>

#include "vm/capture/dispatch/state.h"
#include "vm/host/runtime.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

bool returns(bc::Op op) { return op == bc::Op::RET || op == bc::Op::RET0 || op == bc::Op::RET1 || op == bc::Op::RETM; }

std::shared_ptr<Unit> make_unit(CaptureState& state, lua_State* L, std::unique_ptr<LuaCode> code,
                                const CaptureOptions& options) {
  if (state.units.size() + state.resume_units.size() >= state.collect_at) {
    collect_units(state, L, options.backend_function);
    state.collect_at = std::max<size_t>(64, 2 * (state.units.size() + state.resume_units.size()));
  }
  auto unit = std::make_shared<Unit>();
  unit->serial = state.next_unit++;
  unit->options = options;
  unit->name = str(code->file, ":", code->proto().first_line);
  unit->code = std::move(code);
  push_weak_table(L, "k");
  unit->functions = luaL_ref(L, LUA_REGISTRYINDEX);
  state.by_serial[unit->serial] = unit;
  return unit;
}

}  // namespace

std::shared_ptr<Unit> find_unit(CaptureState& state, lua_State* L, int index, const CaptureOptions& options,
                                uint64_t serial) {
  const UnitKey key{prototype_identity(L, index), options, serial};
  auto it = state.units.find(key);
  if (it != state.units.end()) return it->second;
  auto code = decode_function(L, index);
  if (!code) return nullptr;
  auto unit = make_unit(state, L, std::move(code), options);
  unit->key = key;
  add_point(*unit, 1);
  unit->stub_id = alloc_portal_id(L);
  state.portals[unit->stub_id] = {{1, 0, true}, unit};
  state.units[key] = unit;
  return unit;
}

std::shared_ptr<Unit> resume_unit(CaptureState& state, lua_State* L, Unit& parent, const ResumeRequest& request) {
  const LuaCode& code = *request.code;
  const ResumeSpec& spec = request.spec;
  const std::string key = str(request.prototype, " ", int(spec.mode), " ", spec.num_args, " ", request.last);
  auto& unit = parent.resumes[{spec.pc, key}];
  if (unit) return unit;
  ResumeProto resume = build_resume(*code.dump, spec);
  auto dump = std::make_shared<bc::Dump>(resume.patched.dump);
  const auto top = static_cast<uint32_t>(dump->protos.size() - 1);
  unit = make_unit(state, L, make_code(std::move(dump), top), parent.options);
  unit->automatic = parent.automatic;
  unit->recompiles = parent.recompiles;
  unit->log = parent.log;
  unit->breaks = parent.breaks;
  LUTRA_CHECK(resume.patched.sites.empty(), "a resume prototype with too many parameters");
  for (bc::Pc next : bc::successors(code.proto(), spec.pc)) {
    for (bc::Pc pc = 1; pc < resume.old_pc.size(); pc++) {
      if (resume.old_pc[pc] != next) continue;
      add_point(*unit, pc);
      break;
    }
  }
  state.resume_units.push_back(unit);
  return unit;
}

void add_point(Unit& unit, bc::Pc pc, const KeptLoops& kept, Within within) {
  const bc::Proto& proto = unit.code->proto();
  for (int tries = 0; tries < 8; tries++) {
    if (pc == 0 || pc >= proto.size() || unit.points.count(pc) || !within.contains(pc)) return;
    const bc::Ins i = proto.code[pc];
    if (returns(bc::op(i))) return;
    if (bc::insertable(proto, pc)) break;
    const std::vector<bc::Pc> next = bc::successors(proto, pc);
    if (next.empty()) return;
    for (size_t n = 1; n < next.size(); n++) add_point(unit, next[n], kept, within);
    pc = next[0];
  }
  if (!bc::insertable(proto, pc)) return;
  UnitPoint& point = unit.points[pc];
  point.pc = pc;
  point.args = unit.code->liveness().passable(pc);
  point.varargs = proto.vararg();
  point.decisions.kept_loops = kept;
  point.within = within;
  unit.changed = true;
}

void add_points_after(Unit& unit, bc::Pc pc, const KeptLoops& kept, Within within) {
  for (bc::Pc next : bc::successors(unit.code->proto(), pc)) add_point(unit, next, kept, within);
}

namespace {

// A frame may go over to newer bytecode at a point that has no exits yet: what it captures there first is then run at
// once, not only by the next call. One that has gone over may do so again, since it cannot follow (follow_frame).
bool can_switch(lua_State* L, const Unit& unit, const UnitPoint& point, bool gone_over) {
  if ((!point.exits.empty() && !gone_over) || point.within.any() || !mirror::available(L)) return false;
  if (point.pc == 1 && unit.key.prototype) return false;  // the next call enters newer bytecode anyway
  const LuaCode& code = *unit.code;
  for (const bc::Loop& l : code.loops()) {
    // The control value of pairs is not an ordinary value there.
    if (l.kind == bc::Loop::Kind::kIterN && point.pc >= l.head && point.pc <= l.end) return false;
  }
  if (!why_not_resumable(code.proto(), point.pc, ResumeMode::kAt).empty()) return false;
  return resume_slots(code.proto(), point.pc, ResumeMode::kAt).size() < 60;
}

Exit switch_exit(const Unit& unit, const UnitPoint& point) {
  Exit e;
  e.code = int(point.exits.size()) + 1;
  e.resume.kind = Resume::Kind::kTailCall;
  e.resume.varargs = point.varargs;
  const size_t n = resume_slots(unit.code->proto(), point.pc, ResumeMode::kAt).size() + 1;
  for (size_t i = 0; i < n; i++) e.resume.args.push_back(int(i));
  return e;
}

// The points as portals of a prototype in which instruction pc stands at moved[pc] (the unit's own where empty).
Patched build(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit, const bc::Dump& dump,
              const std::vector<bc::Pc>& moved) {
  Patch patch;
  std::optional<bc::Liveness> live;
  if (!moved.empty()) live = bc::liveness(dump.top());
  const auto at = [&](bc::Pc pc) { return moved.empty() ? pc : moved[pc]; };
  for (auto& [pc, point] : unit->points) {
    if (point.dead) continue;
    if (live) {
      const std::vector<unsigned> have = live->passable(at(pc));
      if (!live->reached[at(pc)] || !bc::insertable(dump.top(), at(pc)) ||
          !std::includes(have.begin(), have.end(), point.args.begin(), point.args.end())) {
        continue;
      }
    }
    const int id = alloc_portal_id(L);
    unit->ids.push_back(id);
    const bool switches = can_switch(L, *unit, point, !moved.empty());
    state.portals[id] = {{pc, point.exits.size(), false, switches, unit->version}, unit};
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
    if (switches) p.exits.push_back(switch_exit(*unit, point));
    patch.points.push_back(std::move(p));
  }
  Patched patched = apply_patch(dump, patch);
  patched.resumed = !moved.empty() || !unit->key.prototype;
  return patched;
}

}  // namespace

std::shared_ptr<Patched> body_at(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit, bc::Pc pc) {
  auto& body = unit->bodies[pc];
  if (body) return body;
  const ResumeProto resume = build_resume(*unit->code->dump, {pc, ResumeMode::kAt, 0});
  if (!resume.patched.sites.empty()) return nullptr;
  body = std::make_shared<Patched>(build(state, L, unit, resume.patched.dump, resume.patched.moved));
  if (log_wanted("bytecode")) log_text("bytecode", str(unit->name, " from ", pc, "\n", bc::print(body->dump.top())));
  return body;
}

void refresh(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit) {
  if (!unit->changed && unit->patched) return;
  unit->bodies.clear();
  unit->version++;
  unit->patched = std::make_shared<Patched>(build(state, L, unit, *unit->code->dump, {}));
  unit->changed = false;
  if (log_wanted("bytecode")) {
    log_text("bytecode", unit->name + "\n" + bc::print(unit->patched->dump.top()));
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, unit->functions);
  const int functions = lua_gettop(L);
  lua_pushnil(L);
  while (lua_next(L, functions)) {
    lua_pop(L, 1);
    make_clone(L, lua_gettop(L), *unit->patched);
    redirect(L, lua_gettop(L) - 1, lua_gettop(L));
    lua_pop(L, 1);
  }
  lua_settop(L, functions - 1);
}

void push_clone(CaptureState& state, lua_State* L, const std::shared_ptr<Unit>& unit, int index, bool stub) {
  if (stub) {
    make_clone(L, index, make_stub(*unit->code->dump, unit->stub_id));
    return;
  }
  refresh(state, L, unit);
  make_clone(L, index, *unit->patched);
}

void follow(lua_State* L, Unit& unit, int index) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, unit.functions);
  lua_pushvalue(L, index);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void unfollow(lua_State* L, Unit& unit, int index) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, unit.functions);
  lua_pushvalue(L, index);
  lua_pushnil(L);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

}  // namespace lutra
