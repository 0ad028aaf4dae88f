// In: compiled prototypes that nothing can enter any more. Out: their entries, registry references, portal ids and
// decoded code are freed.
//
// Invariants:
// 1. A compiled prototype lives while a Lua prototype contains a call of one of its portal ids (a function or a frame
//    runs it), or of those of its resume prototypes. One that later calls may find again by its prototype also lives
//    while that prototype does, unless it has a backend of its own: it would keep the backend's function alive as well.
// 2. Ids of superseded bytecode are freed once no prototype contains a call of them.
// 3. A backend is held while a compiled prototype has it.
#include <algorithm>
#include <lua.hpp>

#include "vm/capture/dispatch/callees.h"
#include "vm/capture/dispatch/compiled_proto.h"
#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/state.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

bool entered(lua_State* L, const CompiledProto& compiled) {
  if (compiled.stub_id && portal_id_named(L, compiled.stub_id)) return true;
  for (int id : compiled.ids) {
    if (portal_id_named(L, id)) return true;
  }
  for (const auto& [where, resume] : compiled.resumes) {
    if (entered(L, *resume)) return true;
  }
  return false;
}

void free_id(CaptureState& state, lua_State* L, int id) {
  state.portals.erase(id);
  free_portal_id(L, id);
}

void drop(CaptureState& state, lua_State* L, CompiledProto& compiled) {
  for (auto& [where, resume] : compiled.resumes) drop(state, L, *resume);
  release_examples(L, compiled);
  each_point(compiled, [L](ProtoPoint& point) { forget_entries(L, point); });
  if (compiled.stub_id) free_id(state, L, compiled.stub_id);
  for (int id : compiled.ids) free_id(state, L, id);
  luaL_unref(L, LUA_REGISTRYINDEX, compiled.functions);
  state.by_serial.erase(compiled.serial);
  for (const auto& [version, patched] : compiled.versions) state.by_version.erase(version);
  const auto same = [&](const std::shared_ptr<CompiledProto>& u) { return u.get() == &compiled; };
  state.resume_protos.erase(std::remove_if(state.resume_protos.begin(), state.resume_protos.end(), same),
                            state.resume_protos.end());
}

void free_old_ids(CaptureState& state, lua_State* L, CompiledProto& compiled) {
  const auto old = [&](int id) {
    const Portal* portal = state.portals.find(id);
    if (portal_id_named(L, id) || (portal && portal->version == compiled.version)) return false;
    free_id(state, L, id);
    return true;
  };
  compiled.ids.erase(std::remove_if(compiled.ids.begin(), compiled.ids.end(), old), compiled.ids.end());
  const auto gone = [&](const auto& version) {
    return version.first != compiled.version && std::none_of(compiled.ids.begin(), compiled.ids.end(), [&](int id) {
             const Portal* portal = state.portals.find(id);
             return portal && portal->version == version.first;
           });
  };
  std::erase_if(compiled.iterators, gone);
  std::erase_if(compiled.versions, gone);
  std::erase_if(compiled.call_sites, [&](const auto& site) { return !compiled.versions.count(site.first.first); });
  std::erase_if(state.by_version, [](const auto& version) {
    const auto held = version.second.lock();
    return !held || !held->versions.count(version.first);
  });
}

void free_backends(CaptureState& state, lua_State* L, int wanted) {
  std::unordered_set<int> held{wanted};
  for (const auto& [key, compiled] : state.protos) held.insert(compiled->options.backend_function);
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

void collect_protos(CaptureState& state, lua_State* L, int backend_function) {
  if (!mirror::available(L)) return;  // without the mirror it is unknown which prototypes live
  sweep_records(L);
  const std::unordered_set<const void*> prototypes = live_prototypes(L);
  for (auto it = state.protos.begin(); it != state.protos.end();) {
    CompiledProto& compiled = *it->second;
    const bool found_again =
        it->first.serial == 0 && !compiled.options.backend_function && prototypes.count(it->first.prototype);
    if (found_again || entered(L, compiled)) {
      ++it;
      continue;
    }
    drop(state, L, compiled);
    state.running.keep(std::move(it->second));
    it = state.protos.erase(it);
  }
  free_backends(state, L, backend_function);
  for (auto& [key, compiled] : state.protos) free_old_ids(state, L, *compiled);
  for (auto& compiled : state.resume_protos) free_old_ids(state, L, *compiled);
  for (auto it = state.trace.codes.begin(); it != state.trace.codes.end();) {
    it = prototypes.count(it->first) ? std::next(it) : state.trace.codes.erase(it);
  }
}

}  // namespace lutra
