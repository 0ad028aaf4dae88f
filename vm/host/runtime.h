// The Runtime of a lua_State: everything Lutra keeps for it. Found through the registry.
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
  std::optional<bool> async;  // none: of what lt.auto compiles by itself
  int random_cut = 0;
  std::vector<std::string> passes_off;  // sorted
  std::string isa;
  std::string stress;           // "", "capture", "break", "backward"
  std::string profit = "auto";  // "auto", "always"
};

struct Counters {
  int64_t frames_total = 0, frames_ok = 0;
  int64_t unique_graphs = 0, calls_captured = 0;
  int64_t internal_errors = 0;  // told on stderr; what they met runs its original code, or eagerly
  int64_t cache_hits = 0, cache_misses = 0;
  int64_t lost_sizes = 0;    // runs given up: elements decided on a size that the code was not made for
  int64_t checkpointed = 0;  // runs of compiled code's original, since lt.checkpoint watches
  int64_t kernels = 0;
  int64_t backward_graphs = 0, backward_ops = 0, backward_calls = 0;
  std::map<std::string, int64_t> graph_break, recompiles, eager_backward;
  int64_t background_started = 0, background_ready = 0, background_failed = 0;
  int64_t eager_calls = 0;  // that went eager while their code was made in the background
};

struct Runtime {
  lua_State* L = nullptr;  // the main thread
  Config config;
  Counters counters;
  std::shared_ptr<CaptureState> capture;
  // config.verify as compiled code asks for it, which other threads run, too.
  std::shared_ptr<std::atomic<int>> verify = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  bool sandboxed = false;                 // what runs reaches neither files nor memory by addresses
  int tensors = 0, tensor_metatable = 0;  // references into the registry (vm/bind/tensor_userdata)
};

Runtime& runtime(lua_State* L);
Runtime* find_runtime(lua_State* L);  // null before make_runtime, and once the state closes
// Makes the Runtime of a state (configuration from the environment); false when there is one already.
bool make_runtime(lua_State* L);
// The state that runs C functions of Lutra on this thread just now, or null. For callbacks that ops and jit make.
lua_State* current_lua();
// Goes false when the state closes: what outlives it (hooks held by tensors) must not touch it any more.
std::weak_ptr<bool> runtime_alive(lua_State* L);

// Throws "FN: not available in a sandbox" where this thread runs a state that is one.
void check_not_sandboxed(const char* fn);

// lt.config: pushes the proxy table whose fields are Config's members; names and values are checked.
void push_config(lua_State* L);
// Called after a setting was assigned, where set.
extern void (*on_config_change)(lua_State* L);

// LUTRA_LOGS: whether a stage is wanted, and writing it to standard error. The names are log.cc's and the passes'.
bool log_wanted(const char* stage);
void log_text(const char* stage, const std::string& text);
// Throws for a name that is none; `help` prints the names. Called when a state is opened.
void check_logs();

// Runs fn(L) so that a C++ exception becomes a Lua error with the Lua line in front ("FILE:LINE: message"); every C
// function that Lutra gives to Lua goes through it. Lua's own errors pass.
int guarded(lua_State* L, int (*fn)(lua_State*));

// Opens Lutra in a state: runtime, bindings, stdlib, portals; leaves the module table `lt` on the stack. Idempotent.
// (Defined in vm/capi, which sees all rooms.)
int open_lutra(lua_State* L);

}  // namespace lutra
