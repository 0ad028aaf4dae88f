// Units that nothing can enter any more in; their entries, registry references, portal ids and decoded code freed.
//
// Invariants:
// 1. A unit lives while a prototype that names one of its portal ids does (a function or a frame runs it), or one of
//    its resume units'. One that other calls may find again, by prototype, also lives while that prototype does; not
//    one with a backend of its own, which would keep that function alive as well.
// 2. Ids of superseded bytecode are given back as soon as no prototype names them.
// 3. A backend is held while a unit has it.
#include <algorithm>
#include <lua.hpp>

#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/dispatch/unit.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

bool entered(lua_State* L, const Unit& unit) {
  if (unit.stub_id && portal_id_named(L, unit.stub_id)) return true;
  for (int id : unit.ids) {
    if (portal_id_named(L, id)) return true;
  }
  for (const auto& [where, resume] : unit.resumes) {
    if (entered(L, *resume)) return true;
  }
  return false;
}

void free_id(CaptureState& state, lua_State* L, int id) {
  state.portals.erase(id);
  free_portal_id(L, id);
}

void drop(CaptureState& state, lua_State* L, Unit& unit) {
  for (auto& [where, resume] : unit.resumes) drop(state, L, *resume);
  for (auto& [pc, point] : unit.points) {
    forget_entries(L, point);
  }
  if (unit.stub_id) free_id(state, L, unit.stub_id);
  for (int id : unit.ids) free_id(state, L, id);
  luaL_unref(L, LUA_REGISTRYINDEX, unit.functions);
  state.by_serial.erase(unit.serial);
  const auto same = [&](const std::shared_ptr<Unit>& u) { return u.get() == &unit; };
  state.resume_units.erase(std::remove_if(state.resume_units.begin(), state.resume_units.end(), same),
                           state.resume_units.end());
}

void free_old_ids(CaptureState& state, lua_State* L, Unit& unit) {
  const auto old = [&](int id) {
    if (portal_id_named(L, id) || state.portals.at(id).version == unit.version) return false;
    free_id(state, L, id);
    return true;
  };
  unit.ids.erase(std::remove_if(unit.ids.begin(), unit.ids.end(), old), unit.ids.end());
}

void free_backends(CaptureState& state, lua_State* L, int wanted) {
  std::unordered_set<int> held{wanted};
  for (const auto& [key, unit] : state.units) held.insert(unit->options.backend_function);
  for (auto it = state.backends.begin(); it != state.backends.end();) {
    if (held.count(it->second)) {
      ++it;
      continue;
    }
    luaL_unref(L, LUA_REGISTRYINDEX, it->second);
    it = state.backends.erase(it);
  }
}

}  // namespace

void collect_units(CaptureState& state, lua_State* L, int backend_function) {
  if (!mirror::available(L)) return;  // then nobody knows which prototypes live
  sweep_records(L);
  const std::unordered_set<const void*> prototypes = live_prototypes(L);
  for (auto it = state.units.begin(); it != state.units.end();) {
    Unit& unit = *it->second;
    const bool found_again =
        it->first.serial == 0 && !unit.options.backend_function && prototypes.count(it->first.prototype);
    if (found_again || entered(L, unit)) {
      ++it;
      continue;
    }
    drop(state, L, unit);
    it = state.units.erase(it);
  }
  free_backends(state, L, backend_function);
  for (auto& [key, unit] : state.units) free_old_ids(state, L, *unit);
  for (auto& unit : state.resume_units) free_old_ids(state, L, *unit);
  for (auto it = state.trace.codes.begin(); it != state.trace.codes.end();) {
    it = prototypes.count(it->first) ? std::next(it) : state.trace.codes.erase(it);
  }
}

}  // namespace lutra
