// Tests compiled graphs from the disk: they give eager's bits, guard the facts that compilation relied on, and their
// key contains everything that a compilation depends on.
#include <stdlib.h>

#include <filesystem>

#include <catch2/catch.hpp>

#include "jit/cache/segment_cache.h"
#include "jit/compile.h"
#include "ops/core/disk_cache.h"
#include "ops/core/settings.h"
#include "ops/defs/call.h"
#include "tests/schedule/graphs.h"
#include "tests/seeds.h"

namespace lutra {
namespace {

// LUTRA_TEST_CACHE names one that stays: a second process then takes what the first one kept.
struct Folder {
  Folder() {
    const char* named = std::getenv("LUTRA_TEST_CACHE");
    stays = named != nullptr;
    path = stays ? named : (std::filesystem::temp_directory_path() / "lutra-segments-XXXXXX").string();
    if (!stays) REQUIRE(mkdtemp(path.data()));
    set_cache_directory(path);
  }
  ~Folder() {
    set_cache_directory("");
    if (!stays) std::filesystem::remove_all(path);
  }
  std::string path;
  bool stays;
};

CompileOptions kept() {
  CompileOptions o;
  o.kept = true;
  return o;
}

const std::string kRefused = "refused";

std::vector<std::string> bits(const std::vector<Value>& outputs, const std::vector<Tensor>& inputs) {
  std::vector<std::string> out;
  for (const Value& v : outputs) {
    if (v.is<Tensor>()) out.push_back(bytes_of(v.tensor()));
  }
  for (const Tensor& t : inputs) out.push_back(bytes_of(t));
  return out;
}

template <class F>
std::vector<std::string> run(const Graph& graph, uint32_t seed, const F& f) {
  const std::vector<Tensor> inputs = real_inputs(graph, seed);
  default_generator().seed = 7;
  default_generator().next_call = 0;
  try {
    return bits(f(inputs, real_scalars(graph)), inputs);
  } catch (const Error& e) {
    if (e.kind == ErrorKind::kInternal) throw;
    return {e.kind == ErrorKind::kUser ? kRefused : "an error of data"};  // the witness names ops that others made
  }
}

std::string guards_text(const SymEnv& env) {
  std::string text;
  for (const SymGuard& g : env.guards()) {
    text += str(name(g.cmp), " ", env.print(g.a), " ", arity(g.cmp) == 2 ? env.print(g.b) : "", " ", g.outcome, "\n");
  }
  return text;
}

}  // namespace

TEST_CASE("random graphs from the disk give eager's bits", "[runtime]") {
  Folder folder;
  const auto [first, last] = seeds(150);
  uint64_t compared = 0;
  const SegmentCounts before = segment_counts();
  for (uint64_t seed = first; seed <= last; seed++) {
    INFO("seed " << seed);
    const auto eager_graph = random_graph(uint32_t(seed));
    const auto eager = run(*eager_graph, uint32_t(seed), [&](const auto& inputs, const auto& scalars) {
      return interpret(*eager_graph, inputs, scalars);
    });
    if (eager == std::vector{kRefused}) continue;  // it asks its meta rules again at these sizes
    std::string guards;
    for (int i = 0; i < 2; i++) {
      auto graph = random_graph(uint32_t(seed));
      const std::shared_ptr<SymEnv> env = graph->env;
      Compiled compiled;
      try {
        compiled = compile_graph(std::move(graph), kept());
      } catch (const Error& e) {  // an argument that only the decomposition refuses
        if (e.kind != ErrorKind::kUser) throw;
        break;
      }
      const auto got = run(*eager_graph, uint32_t(seed),
                           [&](const auto& inputs, const auto& scalars) { return compiled.run(inputs, scalars); });
      REQUIRE(got == eager);
      // The second time nothing is compiled, and the same is guarded.
      if (i == 1) CHECK(guards_text(*env) == guards);
      guards = guards_text(*env);
      compared++;
    }
  }
  const SegmentCounts now = segment_counts();
  CHECK(now.refused == before.refused);
  CHECK(2 * (now.hits - before.hits) >= compared);
  CHECK(compared > last - first);
}

TEST_CASE("what a segment is found by", "[runtime]") {
  Folder folder;
  const auto key = [](const Graph& g, const std::vector<std::string>& off = {}) {
    return segment_key(g, print(g), "here", off).text;
  };
  const auto graph = random_graph(11);
  const std::string plain = key(*graph);
  CHECK(plain.find("segment here, ") == 0);
  CHECK(key(*random_graph(11)) == plain);
  CHECK(key(*random_graph(12)) != plain);
  CHECK(key(*graph, {"cse"}) != plain);
  graph->nodes[0]->origin = OpId::gelu;
  CHECK(key(*graph) != plain);
  graph->nodes[0]->origin = OpId::kCount;
  graph->nodes[0]->file = "elsewhere.lua";
  CHECK(key(*graph) != plain);
  const auto again = random_graph(11);
  const std::string saved = settings().isa;
  settings().isa = "interp";
  CHECK(key(*again) != plain);
  settings().isa = saved;
  CHECK(keeps_segments());
  settings().cache = CacheMode::kOff;
  CHECK_FALSE(keeps_segments());
  settings().cache = CacheMode::kOn;
}

}  // namespace lutra
