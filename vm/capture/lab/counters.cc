// lt.counters(): what capture, caches and the background have counted, as a Lua table.
#include <lua.hpp>

#include "jit/cache/segment_cache.h"
#include "jit/repro/repro.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/lab/report.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

void set_count(lua_State* L, const char* key, int64_t n) {
  lua_pushnumber(L, double(n));
  lua_setfield(L, -2, key);
}

void set_map(lua_State* L, const char* key, const std::map<std::string, int64_t>& map) {
  lua_newtable(L);
  for (const auto& [reason, n] : map) set_count(L, reason.c_str(), n);
  lua_setfield(L, -2, key);
}

}  // namespace

int push_counters(lua_State* L) {
  const Counters& c = runtime(L).counters;
  lua_newtable(L);
  lua_newtable(L);
  set_count(L, "total", c.frames_total), set_count(L, "ok", c.frames_ok);
  lua_setfield(L, -2, "frames");
  lua_newtable(L);
  set_count(L, "unique_graphs", c.unique_graphs), set_count(L, "calls_captured", c.calls_captured);
  lua_setfield(L, -2, "stats");
  set_map(L, "graph_break", c.graph_break);
  set_map(L, "recompiles", c.recompiles);
  lua_newtable(L);
  set_count(L, "graphs", c.backward_graphs), set_count(L, "ops", c.backward_ops),
      set_count(L, "calls", c.backward_calls);
  set_map(L, "eager", c.eager_backward);
  lua_setfield(L, -2, "compiled_autograd");
  lua_newtable(L);
  set_count(L, "hits", c.cache_hits), set_count(L, "misses", c.cache_misses);
  set_count(L, "checkpointed", c.checkpointed), set_count(L, "lost_sizes", c.lost_sizes);
  const CaptureState& state = capture_state(L);
  set_count(L, "functions", int64_t(state.protos.size() + state.resume_protos.size()));
  lua_setfield(L, -2, "cache");
  const SegmentCounts kept = segment_counts();
  lua_newtable(L);
  set_count(L, "hits", int64_t(kept.hits)), set_count(L, "misses", int64_t(kept.misses));
  set_count(L, "refused", int64_t(kept.refused));
  lua_setfield(L, -2, "disk_cache");
  lua_newtable(L);
  set_count(L, "compiled", c.kernels);
  lua_setfield(L, -2, "kernels");
  lua_newtable(L);
  set_count(L, "started", c.background_started), set_count(L, "ready", c.background_ready);
  set_count(L, "failed", c.background_failed), set_count(L, "eager_calls", c.eager_calls);
  lua_setfield(L, -2, "async");
  const ShadowCounts shadow = shadow_counts();
  lua_newtable(L);
  set_count(L, "calls", int64_t(shadow.calls)), set_count(L, "mismatches", int64_t(shadow.mismatches));
  set_count(L, "repros", int64_t(shadow.repros));
  lua_setfield(L, -2, "verify");
  return 1;
}

}  // namespace lutra
