// lt.counters(): the counters of capture, caches and background compilation, as a Lua table.
#include <lua.hpp>

#include <initializer_list>

#include "jit/cache/segment_cache.h"
#include "jit/repro/repro.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/lab/report.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

struct Count {
  const char* key;
  int64_t n;
};

void set_count(lua_State* L, const char* key, int64_t n) {
  lua_pushnumber(L, double(n));
  lua_setfield(L, -2, key);
}

void set_map(lua_State* L, const char* key, const std::map<std::string, int64_t>& map) {
  lua_newtable(L);
  for (const auto& [reason, n] : map) set_count(L, reason.c_str(), n);
  lua_setfield(L, -2, key);
}

void set_counts(lua_State* L, const char* key, std::initializer_list<Count> counts) {
  lua_newtable(L);
  for (const Count& c : counts) set_count(L, c.key, c.n);
  lua_setfield(L, -2, key);
}

}  // namespace

int push_counters(lua_State* L) {
  const Counters& c = runtime(L).counters;
  const CaptureState& state = capture_state(L);
  const SegmentCounts kept = segment_counts();
  const ShadowCounts shadow = shadow_counts();
  lua_newtable(L);
  set_counts(L, "frames", {{"total", c.frames_total}, {"ok", c.frames_ok}});
  set_counts(L, "stats",
             {{"unique_graphs", c.unique_graphs},
              {"calls_captured", c.calls_captured},
              {"internal_errors", c.internal_errors}});
  set_map(L, "graph_break", c.graph_break);
  set_map(L, "recompiles", c.recompiles);
  set_counts(L, "compiled_autograd",
             {{"graphs", c.backward_graphs}, {"ops", c.backward_ops}, {"calls", c.backward_calls}});
  lua_getfield(L, -1, "compiled_autograd");
  set_map(L, "eager", c.eager_backward);
  lua_pop(L, 1);
  set_counts(L, "cache",
             {{"hits", c.cache_hits},
              {"misses", c.cache_misses},
              {"checkpointed", c.checkpointed},
              {"lost_sizes", c.lost_sizes},
              {"functions", int64_t(state.protos.size() + state.resume_protos.size())}});
  set_counts(L, "disk_cache",
             {{"hits", int64_t(kept.hits)}, {"misses", int64_t(kept.misses)}, {"refused", int64_t(kept.refused)}});
  set_counts(L, "kernels", {{"compiled", c.kernels}});
  set_counts(L, "async",
             {{"started", c.background_started},
              {"ready", c.background_ready},
              {"failed", c.background_failed},
              {"eager_calls", c.eager_calls}});
  set_counts(L, "verify",
             {{"calls", int64_t(shadow.calls)},
              {"mismatches", int64_t(shadow.mismatches)},
              {"repros", int64_t(shadow.repros)}});
  return 1;
}

}  // namespace lutra
