// LUTRA_LOGS: the stages that are logged.
#include "vm/host/log.h"

#include <cstdio>
#include <cstdlib>
#include <lua.hpp>
#include <set>
#include <string>

#include "jit/passes/passes.h"
#include "jit/runtime/config.h"
#include "jit/runtime/kernel_cache.h"
#include "ops/core/closest.h"
#include "ops/core/error.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

const char* const kLoggedStages[][2] = {
    {"graph_breaks", "where and why a graph ended, and what to do about it"},
    {"guards", "the guards of each compiled entry"},
    {"effects", "what each compiled entry leaves behind: results, writes of tables and variables, gradients"},
    {"recompiles", "which guard failed when another entry was made"},
    {"async", "what is compiled in the background, and when it was done"},
    {"graph", "the captured graph"},
    {"joint", "the forward and the backward of a segment that is differentiated outside, before their passes"},
    {"compiled_autograd", "which parts of a backward became a graph, and why others run eagerly"},
    {"mapping", "what the mapping of a GPU's kernels weighed: threads of a row, elements of a thread, blocks"},
    {"loop", "the loop IR of the kernels"},
    {"fusion", "what fusion weighed: what a kernel for two saves and costs, and why others were refused"},
    {"lower", "what each node is lowered to: element functions, orders of reductions, maps of views"},
    {"schedule", "fusion groups, loop order, memory plan"},
    {"asm", "the machine code of the kernels"},
    {"ptx", "the device code of the kernels"},
    {"cudagraphs", "which segments on a GPU are recorded, and why others are not"},
    {"bytecode", "the bytecode before and after patching"},
    {"perf", "how long capture and compilation took, and at the end each kernel"},
};

std::set<std::string> wanted_stages() {
  std::set<std::string> out;
  const char* text = std::getenv("LUTRA_LOGS");
  std::string name;
  for (const char* p = text ? text : "";; ++p) {
    if (*p && *p != ',') {
      if (*p != ' ') name += *p;
      continue;
    }
    if (!name.empty()) out.insert(name);
    name.clear();
    if (!*p) return out;
  }
}

const std::set<std::string>& stages() {
  static const std::set<std::string> wanted = wanted_stages();
  return wanted;
}

const char kWriterKey = 0;
struct Writer {
  LogWriter write;
  void* arg;
};

const Writer* writer_of(lua_State* L) {
  if (!L || !lua_checkstack(L, 2)) return nullptr;
  lua_pushlightuserdata(L, const_cast<char*>(&kWriterKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  const auto* writer = static_cast<const Writer*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return writer;
}

}  // namespace

void set_log_writer(lua_State* L, LogWriter writer, void* arg) {
  lua_pushlightuserdata(L, const_cast<char*>(&kWriterKey));
  *static_cast<Writer*>(lua_newuserdata(L, sizeof(Writer))) = {writer, arg};
  lua_rawset(L, LUA_REGISTRYINDEX);
}

bool log_wanted(const char* stage) { return !stages().empty() && stages().count(stage) != 0; }

void log_text(const char* stage, const std::string& text) {
  const bool ends = !text.empty() && text.back() == '\n';
  if (const Writer* w = writer_of(current_lua())) {
    const std::string line = str("[", stage, "] ", text, ends ? "" : "\n");
    return w->write(w->arg, line.data(), line.size());
  }
  std::fprintf(stderr, "[%s] %s%s", stage, text.c_str(), ends ? "" : "\n");
}

namespace {

void switch_on() {
  RuntimeConfig& config = runtime_config();
  if (log_wanted("cudagraphs")) config.recording_log = [](const std::string& text) { log_text("cudagraphs", text); };
  if (log_wanted("mapping")) config.mapping_log = [](const std::string& text) { log_text("mapping", text); };
  config.perf = log_wanted("perf");
  if (config.perf) std::atexit([] { log_text("perf", "kernels\n" + perf_report()); });
}

}  // namespace

void check_logs() {
  for (const std::string& name : stages()) {
    if (name == "help") {
      std::fprintf(stderr, "LUTRA_LOGS=stage,stage,... writes to standard error:\n");
      for (const auto& row : kLoggedStages) std::fprintf(stderr, "  %-13s %s\n", row[0], row[1]);
      for (size_t i = 0; i < kPassCount; ++i)
        std::fprintf(stderr, "  %-13s the graph after this pass\n", kPasses[i].name);
      continue;
    }
    KnownNames known;
    for (const auto& row : kLoggedStages) known.add(row[0]);
    for (size_t i = 0; i < kPassCount; ++i) known.add(kPasses[i].name);
    known.add("help");
    if (!known.have(name)) fail("LUTRA_LOGS: unknown name '", name, "'", known.known(name));
  }
  // Runs once in the process, since earlier states may be running while another one opens.
  [[maybe_unused]] static const bool once = (switch_on(), true);
}

}  // namespace lutra
