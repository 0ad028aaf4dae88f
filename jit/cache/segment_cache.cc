// Makes keys, and stores artifacts as entries of the disk cache.
#include "jit/cache/segment_cache.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "jit/artifact/artifact.h"
#include "jit/device/backend.h"
#include "jit/graph/env_copy.h"
#include "jit/runtime/config.h"
#include "ops/core/build_id.h"
#include "ops/core/disk_cache.h"
#include "ops/core/settings.h"

namespace lutra {
namespace {

constexpr uint64_t kMinEntries = 64;  // the cache has room for at least this many entries, of any size

std::atomic<uint64_t> hits, misses, refused;

// Asks the plan's questions of the env of the graph that it shall run. Returns false if an answer has changed.
bool ask_again(const Plan& plan, SymEnv& env) {
  std::vector<int32_t> ids(plan.exprs.size(), 0);
  for (size_t i = 1; i < ids.size(); i++) {
    const SymExpr& e = plan.exprs[i];
    ids[i] = make_again(env, e, arity(e.op) > 0 ? ids[size_t(e.a)] : 0, arity(e.op) > 1 ? ids[size_t(e.b)] : 0);
  }
  for (const SymGuard& g : plan.guards) {
    if (env.ask(g.cmp, ids[size_t(g.a)], ids[size_t(g.b)]) != g.outcome) return false;
  }
  return true;
}

// Returns the bytes of the constants that the compiler made. An entry would contain them.
uint64_t own_bytes(const std::vector<Tensor>& constants, const std::vector<Tensor>& given) {
  uint64_t bytes = 0;
  for (const Tensor& t : constants) {
    const bool is_given = std::any_of(given.begin(), given.end(), [&](const Tensor& g) { return g.get() == t.get(); });
    if (!is_given) bytes += t->storage->nbytes;
  }
  return bytes;
}

}  // namespace

SegmentCounts segment_counts() { return {hits, misses, refused}; }

bool keeps_segments() {
  return settings().cache != CacheMode::kOff && !build_id().empty() && !cache_directory().empty();
}

SegmentKey segment_key(const Graph& graph, const std::string& text, const std::string& about,
                       const std::vector<std::string>& disabled_passes) {
  const Device device = device_of(graph);
  const std::string target = backend_of(device).target_key(device, current_isa());
  std::string key = str("segment ", about, about.empty() ? "" : ", ", graph.nodes.size(), " ops\nlutra ", build_id(),
                        "\n", target, "\nwithout");
  for (const std::string& pass : disabled_passes) key += " " + pass;
  return {key + "\n" + text, target};
}

std::shared_ptr<Executable> find_segment(const SegmentKey& key, const Graph& graph) {
  std::string bytes;
  if (!read_cached("segment", key.text, bytes)) return misses++, nullptr;
  try {
    Artifact artifact = read_artifact(bytes, key.target);
    check_serves(artifact, graph);
    if (ask_again(artifact.plan, *graph.env)) {
      hits++;
      return Executable::link(std::move(artifact), constants_of(graph));
    }
  } catch (const Error& e) {
    if (e.kind != ErrorKind::kUser) throw;
    std::fprintf(stderr, "lutra: a kept segment is not taken: %s\n", e.what());
  }
  refused++;
  return nullptr;
}

void keep_segment(const SegmentKey& key, const Executable& executable, const std::vector<Tensor>& given) {
  // Writing and reading many bytes takes longer than compiling, and a few such entries would fill the cache.
  if (own_bytes(executable.constants(), given) > settings().cache_bytes / kMinEntries) return;
  const std::vector<Constant> constants = describe_constants(executable.constants(), given);
  write_cached("segment", key.text, write_artifact(executable.plan(), executable.codes(), constants, key.target));
}

}  // namespace lutra
