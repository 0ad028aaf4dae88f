// The Runtime of a lua_State and the boundary between C++ errors and Lua errors.
#include "vm/host/runtime.h"

#include <atomic>
#include <cstring>
#include <lua.hpp>
#include <memory>
#include <new>

#include "ops/core/error.h"
#include "vm/host/modes.h"

namespace lutra {
namespace {

const char kRuntimeKey = 0, kThreadKey = 0;
thread_local lua_State* current = nullptr;

struct Box {
  std::unique_ptr<Runtime> runtime;
  std::shared_ptr<Modes> modes;
};

// The last box that this thread has found, with the addresses of its state's main thread and registry. It is valid
// while no state has closed since. The main thread is null for a coroutine, whose address another state may reuse.
std::atomic<uint64_t> closed_states{0};
struct Found {
  lua_State* main = nullptr;
  const void* registry = nullptr;
  uint64_t closed = 0;
  Box* box = nullptr;
};
constinit thread_local Found found;

int collect_runtime(lua_State* L) {
  auto* box = static_cast<Box*>(lua_touserdata(L, 1));
  if (box->runtime) *box->runtime->alive = false;
  closed_states++;
  if (installed_modes == box->modes.get()) ModesScope::install(nullptr);
  box->runtime.reset();
  box->modes.reset();
  return 0;
}

bool is_main(lua_State* L) {
  const bool yes = lua_pushthread(L);
  lua_pop(L, 1);
  return yes;
}

// Returns the box of a state that is not the last one this thread ran, or of a coroutine. Null before make_runtime.
[[gnu::noinline]] Box* find_other_box(lua_State* L) {
  const uint64_t closed = closed_states.load(std::memory_order_relaxed);
  const void* registry = lua_topointer(L, LUA_REGISTRYINDEX);
  if (registry == found.registry && closed == found.closed) return found.box;
  if (!lua_checkstack(L, 2)) return nullptr;
  lua_pushlightuserdata(L, const_cast<char*>(&kRuntimeKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  auto* box = static_cast<Box*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  if (box && box->runtime) found = {is_main(L) ? L : nullptr, registry, closed, box};
  return box;
}

inline Box* find_box(lua_State* L) {
  const bool same = L == found.main && closed_states.load(std::memory_order_relaxed) == found.closed;
  return same ? found.box : find_other_box(L);
}

inline Modes* find_modes(lua_State* L) {
  const Box* box = find_box(L);
  return box ? box->modes.get() : nullptr;
}

struct CurrentScope {
  explicit CurrentScope(lua_State* L) : modes(find_modes(L)), saved(current) { current = L; }
  ~CurrentScope() { current = saved; }
  ModesScope modes;
  lua_State* saved;
};

// Pushes "FILE:LINE: " of the user's line: of the first Lua function on the stack that is not the standard library's,
// or of the first one if all are.
void push_where(lua_State* L) {
  lua_Debug frame, found;
  bool any = false;
  for (int level = 1; level < 64 && lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline <= 0) continue;
    const bool stdlib = std::strncmp(frame.source, "@lutra/", 7) == 0;
    if (!any || !stdlib) found = frame;
    any = true;
    if (!stdlib) break;
  }
  if (any) {
    lua_pushfstring(L, "%s:%d: ", found.short_src, found.currentline);
  } else {
    lua_pushliteral(L, "");
  }
}

// Pushes the message with the line in front.
void push_message(lua_State* L, const char* prefix, const char* what) {
  lua_settop(L, 0);
  push_where(L);
  lua_pushstring(L, prefix);
  lua_pushstring(L, what);
  lua_concat(L, 3);
}

}  // namespace

Runtime* find_runtime(lua_State* L) {
  const Box* box = find_box(L);
  return box ? box->runtime.get() : nullptr;
}

Runtime& runtime(lua_State* L) {
  Runtime* rt = find_runtime(L);
  if (!rt) fail_internal("Lutra is not open in this Lua state");
  return *rt;
}

void load_environment(Config& config);  // config.cc

bool make_runtime(lua_State* L) {
  if (find_box(L)) return false;
  auto fresh = std::make_unique<Runtime>();
  auto modes = std::make_shared<Modes>();
  {
    const ModesScope scope(modes.get());  // load_environment fills in its settings
    load_environment(fresh->config);
  }
  lua_pushlightuserdata(L, const_cast<char*>(&kRuntimeKey));
  auto* box = new (lua_newuserdata(L, sizeof(Box))) Box;
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, collect_runtime);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  fresh->L = L;
  box->modes = std::move(modes);
  box->modes->account = new_account();
  box->runtime = std::move(fresh);
  // The thread that opened Lutra may be a coroutine, so the registry keeps it alive as long as the state.
  lua_pushlightuserdata(L, const_cast<char*>(&kThreadKey));
  lua_pushthread(L);
  lua_rawset(L, LUA_REGISTRYINDEX);
  return true;
}

lua_State* current_lua() { return current; }

void check_not_sandboxed(const char* fn) {
  const Runtime* rt = current ? find_runtime(current) : nullptr;
  if (rt && rt->sandboxed) fail(fn, ": not available in a sandbox");
}

std::shared_ptr<Modes> modes_of(lua_State* L) {
  const Box* box = find_box(L);
  return box ? box->modes : nullptr;
}

std::weak_ptr<bool> runtime_alive(lua_State* L) { return runtime(L).alive; }

int guarded(lua_State* L, int (*fn)(lua_State*)) {
  {
    CurrentScope scope(L);
    try {
      return fn(L);
    } catch (const std::bad_alloc&) {
      push_message(L, "", "out of memory");
    } catch (const Error& error) {
      push_message(L, error.kind == ErrorKind::kInternal ? "internal error: " : "", error.what());
    } catch (const std::exception& error) {
      push_message(L, "internal error: ", error.what());
    }
  }
  return lua_error(L);
}

}  // namespace lutra
