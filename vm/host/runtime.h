// The Runtime of a lua_State: all data that Lutra holds for it. The registry refers to it.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct lua_State;

namespace lutra {

struct CaptureState;  // vm/capture: entries, prototypes, break reasons

struct Config {
  int recompile_limit = 8;
  int capture_budget_ms = 2000;
  double activation_memory_budget = 1;
  std::string cache_dir;
  std::string cache = "on";  // "on", "read", "off"
  int cache_mb = 1024;
  int num_threads = 0;
  int verify = 0;
  bool compiled_autograd = false;
  bool cudagraphs = true;
  std::optional<bool> async;  // none: only for what lt.auto compiles
  int random_cut = 0;
  std::vector<std::string> passes_off;  // sorted
  std::string isa;
  std::string stress;           // "", "capture", "break", "backward", "collect"
  std::string profit = "auto";  // "auto", "always"
};

struct Counters {
  int64_t frames_total = 0, frames_ok = 0;
  int64_t unique_graphs = 0, calls_captured = 0;
  int64_t internal_errors = 0;  // reported on stderr; the function then runs its original code, or the op runs eagerly
  int64_t cache_hits = 0, cache_misses = 0;
  int64_t lost_sizes = 0;    // aborted runs: a size that depends on elements was not one that the code was compiled for
  int64_t checkpointed = 0;  // runs of the original of compiled code, because lt.checkpoint was active
  int64_t kernels = 0;
  int64_t backward_graphs = 0, backward_ops = 0, backward_calls = 0;
  std::map<std::string, int64_t> graph_break, recompiles, eager_backward;
  int64_t background_started = 0, background_ready = 0, background_failed = 0;
  int64_t eager_calls = 0;  // calls that ran eagerly while their code was being compiled in the background
};

struct Runtime {
  lua_State* L = nullptr;  // the main thread
  Config config;
  Counters counters;
  Counters library_counters;  // of functions that stdlib compiles for itself, but for async's
  std::shared_ptr<CaptureState> capture;
  // A copy of config.verify for compiled code, which other threads also run.
  std::shared_ptr<std::atomic<int>> verify = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  bool sandboxed = false;                 // programs can access neither files nor memory by address
  int tensors = 0, tensor_metatable = 0;  // references into the registry (vm/bind/tensor_userdata)
};

Runtime& runtime(lua_State* L);
Runtime* find_runtime(lua_State* L);  // null before make_runtime, and once the state closes
// Creates the Runtime of a state, with settings from the environment. Returns false if there is one already.
bool make_runtime(lua_State* L);
// Returns the state whose C function of Lutra is running on this thread, or null. Callbacks from ops and jit use it.
lua_State* current_lua();
// Returns a flag that becomes false when the state closes. Objects that outlive the state (hooks held by tensors) must
// not use the state after that.
std::weak_ptr<bool> runtime_alive(lua_State* L);

// Throws "FN: not available in a sandbox" if the state that runs on this thread is sandboxed.
void check_not_sandboxed(const char* fn);

// lt.config: pushes the proxy table whose fields are Config's members; names and values are checked.
void push_config(lua_State* L);
// Called after a setting was assigned, if not null.
extern void (*on_config_change)(lua_State* L);

// LUTRA_LOGS: log_wanted returns whether a stage is logged; log_text writes to the state's log writer or to standard
// error. The stage names are those in log.cc and the names of passes.
bool log_wanted(const char* stage);
void log_text(const char* stage, const std::string& text);
// Checks the names in LUTRA_LOGS: throws for an unknown name; `help` prints all names. Called when a state is opened.
void check_logs();

// Runs fn(L) and turns a C++ exception into a Lua error that starts with the Lua line ("FILE:LINE: message"). Every C
// function that Lutra gives to Lua runs through it. Lua's own errors propagate.
int guarded(lua_State* L, int (*fn)(lua_State*));

// Opens Lutra in a state: runtime, bindings, stdlib, portals. Leaves the module table `lt` on the stack. Idempotent.
// (Defined in vm/capi, which may include all folders.)
int open_lutra(lua_State* L);

}  // namespace lutra
